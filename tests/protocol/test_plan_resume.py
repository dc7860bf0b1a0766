"""What a reader gets: each row of the table by its number, and all of them against a model that lists the events."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relayd.protocol.cursor import (
    GENESIS,
    Cursor,
    Found,
    Gap,
    History,
    Live,
    Refused,
    Replay,
    Span,
    describe,
    parse_cursor,
    plan_resume,
)

BRISK = settings(max_examples=400, derandomize=True, deadline=None)
VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "cursors.json").read_text())


def digest(ordinal: int) -> bytes:
    """The digest of this history's event at `ordinal`."""
    return bytes(16) if ordinal == 0 else bytes([ordinal]) * 16


def at(ordinal: int) -> Cursor:
    return Cursor(ordinal, digest(ordinal))


FOREIGN = b"\xee" * 16
HISTORY = History(at(2), at(5))
WHOLE = History(GENESIS, at(5))


def cursor_of(pair: list) -> Cursor:
    return Cursor(pair[0], None if pair[1] is None else bytes.fromhex(pair[1]))


@pytest.mark.parametrize("row", VECTORS["plan"], ids=lambda row: f"{row['cursor'][0]}: {row['decision']}")
def test_the_vectors(row):
    history = History(cursor_of(row["history"]["evicted"]), cursor_of(row["history"]["latest"]))
    found = None if row["found"] is None else bytes.fromhex(row["found"])
    decision = plan_resume(history, cursor_of(row["cursor"]), Found(found))
    assert describe(decision) == row["decision"]
    assert decision.latest == history.latest


@pytest.mark.parametrize("text", VECTORS["malformed"], ids=ascii)
@pytest.mark.parametrize("history", [HISTORY, WHOLE, History(GENESIS, GENESIS)])
def test_row_1_what_is_no_cursor_is_refused_as_malformed_and_never_a_fresh_start(text, history):
    assert plan_resume(history, text, Found()) == Refused("malformed", history.latest)


@pytest.mark.parametrize("text", VECTORS["good"])
def test_a_cursor_as_text_is_decided_as_the_cursor_it_says(text):
    parsed = parse_cursor(text)
    assert plan_resume(HISTORY, text, Found(digest(3))) == plan_resume(HISTORY, parsed, Found(digest(3)))


@pytest.mark.parametrize("ordinal", [6, 7, 2**64 - 1])
@pytest.mark.parametrize("given_digest", [None, digest(5), FOREIGN])
@pytest.mark.parametrize("found", [None, digest(5), digest(6)])
def test_row_2_a_cursor_past_the_latest_is_ahead_and_never_clamped(ordinal, given_digest, found):
    assert plan_resume(HISTORY, Cursor(ordinal, given_digest), Found(found)) == Refused("ahead", at(5))


def test_row_2_one_past_an_empty_history_is_ahead():
    assert plan_resume(History(GENESIS, GENESIS), Cursor(1), Found()) == Refused("ahead", GENESIS)


@pytest.mark.parametrize("ordinal", [0, 1, 2, 3, 4, 5])
def test_row_3_a_digest_that_differs_from_the_one_found_is_another_history(ordinal):
    """Before rows 4, 5 and 6: not live, no gap, whatever cannot be read behind it."""
    found = Found(digest(ordinal), Span(ordinal + 1, 5))
    assert plan_resume(HISTORY, Cursor(ordinal, FOREIGN), found) == Refused("digest_mismatch", at(5))


def test_row_3_needs_a_digest_on_both_sides():
    assert plan_resume(WHOLE, Cursor(3, FOREIGN), Found()) == Replay(3, at(5), verified=False)
    assert plan_resume(WHOLE, Cursor(3), Found(digest(3))) == Replay(3, at(5), verified=False)


def test_row_3_holds_at_genesis():
    assert plan_resume(WHOLE, Cursor(0, FOREIGN), Found(digest(0))) == Refused("digest_mismatch", at(5))


@pytest.mark.parametrize("history", [HISTORY, WHOLE, History(at(5), at(5))])
def test_row_4_a_cursor_at_the_latest_is_live(history):
    """Before row 5: also where everything is evicted."""
    assert plan_resume(history, at(5), Found(digest(5))) == Live(at(5), verified=True)
    assert plan_resume(history, Cursor(5), Found(digest(5))) == Live(at(5), verified=False)
    assert plan_resume(history, at(5), Found()) == Live(at(5), verified=False)


def test_row_4_an_empty_history_is_live_from_genesis():
    empty = History(GENESIS, GENESIS)
    assert plan_resume(empty, GENESIS, Found(GENESIS.digest)) == Live(GENESIS, verified=True)
    assert plan_resume(empty, Cursor(0), Found(GENESIS.digest)) == Live(GENESIS, verified=False)


@pytest.mark.parametrize(("cursor", "first"), [(at(0), 1), (Cursor(0), 1), (at(1), 2), (Cursor(1), 2), (Cursor(2), 2)])
@pytest.mark.parametrize("unreadable", [None, Span(1, 2), Span(3, 4)])
def test_row_5_below_what_is_evicted_or_there_without_its_digest_is_a_gap(cursor, first, unreadable):
    """Before row 6; the reader is told from where it is served completely."""
    decision = plan_resume(HISTORY, cursor, Found(None, unreadable))
    assert decision == Gap("evicted", Span(first, 2), at(2), at(5))


def test_row_5_a_digest_that_is_not_the_evicted_events_own_is_none():
    assert plan_resume(HISTORY, Cursor(2, FOREIGN), Found()) == Gap("evicted", Span(2, 2), at(2), at(5))


def test_row_5_does_not_hold_with_the_digest_of_what_is_evicted():
    assert plan_resume(HISTORY, at(2), Found(digest(2))) == Replay(2, at(5), verified=True)
    assert describe(plan_resume(HISTORY, at(2), Found())) == "replay"


def test_row_5_the_gaps_own_cursor_is_served():
    gap = plan_resume(HISTORY, Cursor(0), Found())
    assert isinstance(gap, Gap)
    assert describe(plan_resume(HISTORY, gap.resume, Found())) == "replay"


@pytest.mark.parametrize("cursor", [at(3), Cursor(3), Cursor(3, FOREIGN)])
@pytest.mark.parametrize("last", [4, 5])
def test_row_6_where_the_next_event_cannot_be_read_the_gap_says_which_and_where_to_go_on(cursor, last):
    found = Found(digest(3) if cursor.digest == digest(3) else None, Span(4, last))
    assert plan_resume(HISTORY, cursor, found) == Gap("unreadable", Span(4, last), Cursor(last, None), at(5))


def test_row_6_the_gaps_own_cursor_is_served_or_live():
    assert describe(plan_resume(HISTORY, Cursor(4), Found(digest(4)))) == "replay"
    assert describe(plan_resume(HISTORY, Cursor(5), Found(digest(5)))) == "live"


def test_row_6_right_after_what_is_evicted():
    found = Found(digest(2), Span(3, 4))
    assert plan_resume(HISTORY, at(2), found) == Gap("unreadable", Span(3, 4), Cursor(4), at(5))


@pytest.mark.parametrize("ordinal", [3, 4])
def test_row_7_anything_else_is_a_replay_of_all_that_follows(ordinal):
    assert plan_resume(HISTORY, at(ordinal), Found(digest(ordinal))) == Replay(ordinal, at(5), verified=True)
    assert plan_resume(HISTORY, Cursor(ordinal), Found(digest(ordinal))) == Replay(ordinal, at(5), verified=False)


@pytest.mark.parametrize("cursor", [GENESIS, Cursor(0), "0", "0-" + "0" * 32])
def test_row_7_ordinal_0_with_nothing_evicted_is_a_fresh_start(cursor):
    assert describe(plan_resume(WHOLE, cursor, Found(GENESIS.digest))) == "replay"
    assert plan_resume(WHOLE, cursor, Found()).after == 0


def naive(events: list[int], lost: set[int], evicted: int, cursor: Cursor, found: bytes | None) -> tuple:
    """What the table says, worked out on the list of this history's ordinals (genesis included)."""
    latest = events[-1]
    if cursor.ordinal not in events:
        return ("refused ahead",)
    if cursor.digest and found and cursor.digest != found:
        return ("refused digest_mismatch",)
    behind = [ordinal for ordinal in events if ordinal > cursor.ordinal]
    if not behind:
        return ("live", bool(cursor.digest and found))
    kept = [ordinal for ordinal in events if ordinal > evicted]
    proven = bool(cursor.digest and found) or cursor.digest == digest(evicted)
    if behind[0] not in kept or (0 < cursor.ordinal == evicted and not proven):
        return ("gap evicted", min(behind[0], evicted), evicted, at(evicted))
    if behind[0] in lost:
        last = behind[0]
        while last + 1 in lost:
            last += 1
        return ("gap unreadable", behind[0], last, Cursor(last))
    return ("replay", bool(cursor.digest and found), [(ordinal, digest(ordinal)) for ordinal in behind], latest)


def seen(decision, events: list[int]) -> tuple:
    match decision:
        case Replay():
            sent = [(ordinal, digest(ordinal)) for ordinal in events if ordinal > decision.after]
            return (describe(decision), decision.verified, sent, decision.latest.ordinal)
        case Live():
            return (describe(decision), decision.verified)
        case Gap():
            return (describe(decision), *decision.lost, decision.resume)
        case _:
            return (describe(decision),)


@given(st.data())
@BRISK
def test_every_cursor_gets_what_the_model_says(data):
    latest = data.draw(st.integers(0, 12))
    evicted = data.draw(st.integers(0, latest))
    events = list(range(latest + 1))
    lost = data.draw(st.sets(st.integers(evicted + 1, latest))) if evicted < latest else set()
    ordinal = data.draw(st.integers(0, latest + 2))
    cursor = Cursor(ordinal, data.draw(st.sampled_from([None, digest(ordinal), FOREIGN])))
    found = data.draw(st.sampled_from([None, digest(ordinal)])) if ordinal <= latest else None
    first = last = ordinal + 1
    while last + 1 in lost:
        last += 1
    unreadable = Span(first, last) if first in lost else None
    decision = plan_resume(History(at(evicted), at(latest)), cursor, Found(found, unreadable))
    assert seen(decision, events) == naive(events, lost, evicted, cursor, found)
    assert decision.latest == at(latest)


@given(st.data())
@BRISK
def test_a_reader_that_goes_on_from_each_gap_gets_all_that_is_left_and_is_told_of_all_that_is_not(data):
    latest = data.draw(st.integers(1, 12))
    evicted = data.draw(st.integers(0, latest))
    lost = data.draw(st.sets(st.integers(evicted + 1, latest))) if evicted < latest else set()
    start = data.draw(st.integers(0, latest))
    cursor, told, got = Cursor(start), set(), []
    for _ in range(3 * latest + 3):
        last = cursor.ordinal + 1
        while last + 1 in lost:
            last += 1
        unreadable = Span(cursor.ordinal + 1, last) if cursor.ordinal + 1 in lost else None
        decision = plan_resume(History(at(evicted), at(latest)), cursor, Found(digest(cursor.ordinal), unreadable))
        if isinstance(decision, Live):
            break
        if isinstance(decision, Gap):
            told |= set(range(decision.lost.first, decision.lost.last + 1))
            cursor = decision.resume
        else:
            assert isinstance(decision, Replay)
            got.append(cursor.ordinal + 1)
            cursor = at(cursor.ordinal + 1)
    else:
        pytest.fail("the reader never came to the end")
    behind = set(range(start + 1, latest + 1))
    assert set(got) == {ordinal for ordinal in behind if ordinal > evicted and ordinal not in lost}
    assert behind - set(got) <= told
