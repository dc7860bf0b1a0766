"""The reader's way, without I/O: each table row is what a daemon says, and what the reader then does."""

import contextlib

import pytest
from fake_daemon import record_bytes

from relayd.client.errors import ConnectionLostError, NoAnswerError, NotConnectedError, ProtocolViolationError
from relayd.client.events import Gap
from relayd.client.following import INTERNAL_ERRORS_MAX, Following
from relayd.protocol.cursor import Cursor, Span
from relayd.protocol.errors import (
    DesynchronizedError,
    InternalError,
    InvalidRequestError,
    NotFoundError,
    OverloadedError,
    PositionDetail,
    RelayRemovedError,
    ShuttingDownError,
    StorageFailedError,
)
from relayd.protocol.messages import ConsumerPosition, LostSpan, Page

GENESIS = Cursor(0, bytes(16))


def cursor(ordinal):
    return Cursor(ordinal, record_bytes(ordinal, "k", None)[1] if ordinal else bytes(16))


def page(after, count, latest, gap=None):
    made = [record_bytes(ordinal, "k", None) for ordinal in range(after + 1, after + count + 1)]
    packed = b"".join(record for record, _ in made)
    return Page(1, packed, count, cursor(after + count), cursor(latest), verified=True, gap=gap)


def following(after="earliest", *, live=True):
    return Following("r", after, live=live, max_bytes=1000)


def take(reader, answer):
    """Asks, is answered, and gives what was asked as (after, wait_ms) with the ordinals that came."""
    call = reader.next_call()
    reader.advance(answer)
    proven = reader.prove(call, answer)
    return (call.request.after, call.request.wait_ms), [event.ordinal for event in proven.events]


def damage(reason, requested, earliest, latest=9, lost=None):
    return DesynchronizedError("no", PositionDetail(reason, requested, earliest, cursor(latest), lost))


def test_it_catches_up_to_the_latest_of_the_first_page_and_then_waits_live():
    reader = following()
    assert take(reader, page(0, 2, latest=4)) == (("earliest", 0), [1, 2])
    assert reader.catching_up
    assert take(reader, page(2, 1, latest=6)) == ((cursor(2), 0), [3])
    assert take(reader, page(3, 1, latest=7)) == ((cursor(3), 0), [4])
    assert not reader.catching_up
    assert take(reader, page(4, 3, latest=7)) == ((cursor(4), 30_000), [5, 6, 7])
    assert take(reader, page(7, 0, latest=7)) == ((cursor(7), 30_000), [])
    assert reader.next_call().request.after == cursor(7)


def test_without_live_it_ends_there_and_leaves_what_came_later():
    reader = following(live=False)
    assert take(reader, page(0, 2, latest=4))[1] == [1, 2]
    assert take(reader, page(2, 4, latest=6))[1] == [3, 4]
    assert reader.next_call() is None


def test_the_page_that_is_cut_short_says_so():
    reader = following(live=False)
    take(reader, page(0, 1, latest=2))
    call, answer = reader.next_call(), page(1, 4, latest=5)
    reader.advance(answer)
    assert reader.prove(call, answer).through == cursor(2)


def test_an_empty_relay_ends_at_once_without_live():
    reader = following(live=False)
    take(reader, page(0, 0, latest=0))
    assert reader.next_call() is None


@pytest.mark.parametrize("live", [True, False])
def test_latest_asks_first_where_that_is(live):
    reader = following("latest", live=live)
    assert take(reader, page(8, 0, latest=8)) == (("latest", 0), [])
    call = reader.next_call()
    assert call is None if not live else (call.request.after, call.request.wait_ms) == (cursor(8), 30_000)


def test_a_consumer_goes_on_where_it_stands():
    reader = following({"consumer": "c"})
    assert take(reader, page(4, 1, latest=6)) == ((ConsumerPosition("c"), 0), [5])
    assert take(reader, page(5, 1, latest=6)) == ((cursor(5), 0), [6])


def test_what_is_no_place_is_refused_at_once():
    with pytest.raises(InvalidRequestError, match="is no cursor"):
        following("03")


def test_earliest_tells_of_a_gap_first():
    reader = following()
    call, answer = reader.next_call(), page(3, 2, latest=5, gap=LostSpan(1, 3))
    reader.advance(answer)
    proven = reader.prove(call, answer)
    assert proven.gap == Gap("evicted", Span(1, 3), Cursor(3))
    assert reader.next_call().request.after == cursor(5)


@pytest.mark.parametrize(
    ("error", "gap"),
    [
        (damage("evicted", cursor(2), cursor(5)), Gap("evicted", Span(3, 5), cursor(5))),
        (damage("evicted", cursor(2), cursor(5), lost=(3, 5)), Gap("evicted", Span(3, 5), cursor(5))),
        (damage("unreadable", cursor(2), GENESIS, lost=(3, 6)), Gap("unreadable", Span(3, 6), Cursor(6))),
    ],
)
def test_lost_events_are_told_and_reading_goes_on_behind_them(error, gap):
    reader = following(cursor(2))
    assert reader.refused(error).gap == gap
    assert reader.next_call().request.after == gap.resume


def test_a_gap_past_the_target_ends_reading_without_live():
    reader = following(cursor(2), live=False)
    reader.refused(damage("unreadable", cursor(2), GENESIS, latest=6, lost=(3, 6)))
    assert reader.next_call() is None


@pytest.mark.parametrize(
    ("after", "error"),
    [
        (cursor(2), damage("evicted", cursor(2), cursor(5))),
        (cursor(2), damage("unreadable", cursor(2), GENESIS, lost=(3, 6))),
        (cursor(5), damage("evicted", cursor(5), cursor(5))),
        (cursor(5), damage("evicted", cursor(5), cursor(3))),
    ],
    ids=["evicted", "unreadable", "no further", "backwards"],
)
def test_the_same_damage_twice_fails_loudly(after, error):
    reader = following(after)
    with contextlib.suppress(DesynchronizedError):
        reader.refused(error)
    with pytest.raises(DesynchronizedError):
        reader.refused(error)


def test_damage_after_damage_is_another_gap_while_it_leads_further():
    reader = following(cursor(2))
    reader.refused(damage("unreadable", cursor(2), GENESIS, lost=(3, 4)))
    reader.refused(damage("evicted", Cursor(4), cursor(4)))
    assert reader.next_call().request.after == cursor(4), "now with the digest that it lacked"
    reader.refused(damage("evicted", cursor(4), cursor(7)))
    assert reader.next_call().request.after == cursor(7)


@pytest.mark.parametrize("reason", ["ahead", "digest_mismatch", "a word of a later version"])
def test_another_history_is_an_error(reason):
    with pytest.raises(DesynchronizedError):
        following(cursor(2)).refused(damage(reason, cursor(2), GENESIS))


@pytest.mark.parametrize("error", [ShuttingDownError("x"), OverloadedError("x"), StorageFailedError("x")])
def test_what_time_lifts_is_asked_again_with_the_same_cursor(error):
    reader = following(cursor(2))
    for _ in range(20):
        assert reader.refused(error) is None
        assert reader.next_call().request.after == cursor(2)


@pytest.mark.parametrize(
    "error",
    [NotFoundError("x"), RelayRemovedError("x"), NotConnectedError("x"), ConnectionLostError("x"), NoAnswerError("x")],
)
def test_what_time_does_not_lift_ends_it(error):
    with pytest.raises(type(error)):
        following(cursor(2)).refused(error)


def test_a_bug_that_shows_again_and_again_is_not_asked_for_ever():
    reader = following(cursor(2))
    for _ in range(INTERNAL_ERRORS_MAX - 1):
        assert reader.refused(InternalError("bug")) is None
    with pytest.raises(InternalError):
        reader.refused(InternalError("bug"))


def test_a_daemon_that_sends_nothing_of_what_it_said_is_caught():
    reader = following(cursor(2))
    take(reader, page(2, 1, latest=5))
    with pytest.raises(ProtocolViolationError, match="no event after 3"):
        reader.advance(page(3, 0, latest=5))
