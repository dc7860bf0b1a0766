"""The synchronous producer against a daemon on a real socket."""

import contextlib

import pytest
from fake_daemon import CUT, SILENCE, STOPPING, for_kind, produced

from relayd.client.errors import NoAnswerError
from relayd.client.sync import Client
from relayd.protocol.errors import (
    ConflictError,
    NotFoundError,
    OverloadedError,
    StorageFailedError,
    StorageFullError,
)
from relayd.protocol.messages import (
    Record,
)


def test_a_stream_is_recorded_once_and_in_order(daemon, client):
    with client.producer("r", "p", batch_events=10) as stream:
        assert [stream.record("k", number) for number in range(95)] == list(range(1, 96))
        assert stream.flush() == daemon.latest
        assert stream.position == 95
    assert produced(daemon) == list(range(95))
    with client.producer("r", "p") as stream:
        assert stream.position == 95
        assert stream.record("k", 95) == 96
    assert produced(daemon) == list(range(96)), "leaving the block flushes"


def test_a_lone_event_goes_at_once(daemon, client):
    with client.producer("r", "p") as stream:
        stream.record("k", 0)
        daemon.wait_for(lambda: len(daemon.records) == 1)


def test_batches_are_pipelined(daemon, client):
    with client.producer("r", "p", batch_events=1, in_flight=4) as stream:
        stream.record("k", 0)
        stream.flush()
        daemon.lock.acquire()
        try:
            for number in range(1, 5):
                stream.record("k", number)
            assert stream._producing.in_flight == 4
        finally:
            daemon.lock.release()
    assert produced(daemon) == list(range(5))


def test_an_exception_in_the_block_does_not_flush(daemon, client):
    def break_off():
        with client.producer("r", "p", linger_ms=60_000) as stream:
            daemon.hooks.append(for_kind(Record, SILENCE))
            stream.record("k", 0)
            stream.record("k", 1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        break_off()
    client.relays()
    assert produced(daemon) == []
    assert sum(isinstance(one, Record) for one in daemon.seen) == 2, "where it stands, and the first event"
    assert client._link._answers == {}


@pytest.mark.parametrize(
    "failure", [StorageFailedError("x"), OverloadedError("x"), CUT, STOPPING], ids=["disk", "full", "cut", "stop"]
)
def test_whatever_time_lifts_the_stream_goes_on(daemon, client, failure):
    with client.producer("r", "p", batch_events=2, in_flight=3) as stream:
        for number in range(40):
            if number % 7 == 3:
                daemon.hooks.append(for_kind(Record, failure))
            stream.record("k", number)
        stream.flush()
    assert produced(daemon) == list(range(40))


@pytest.mark.parametrize("failure", [StorageFullError("x"), OverloadedError("x"), CUT, STOPPING])
def test_a_stream_begun_while_there_is_no_room_waits_for_it(daemon, client, failure):
    daemon.hooks.extend(for_kind(Record, failure) for _ in range(3))
    with client.producer("r", "p") as stream:
        assert stream.through is None
        stream.record("k", 0)
        assert stream.flush() == stream.through == daemon.latest
    assert produced(daemon) == [0]


def test_without_reconnect_a_stream_begun_while_there_is_no_room_is_refused(daemon):
    daemon.hooks.append(for_kind(Record, StorageFullError("x")))
    with Client(daemon.path, reconnect=False) as client, pytest.raises(StorageFullError):
        client.producer("r", "p").flush()


def test_events_that_were_there_after_all_are_not_doubled(daemon, client):
    def recorded_and_lost(request):
        if isinstance(request, Record) and request.events:
            daemon.record(request)
            return CUT
        return None

    with client.producer("r", "p", batch_events=2) as stream:
        for number in range(20):
            if number % 5 == 0:
                daemon.hooks.append(recorded_and_lost)
            stream.record("k", number)
    assert produced(daemon) == list(range(20))


def test_a_daemon_that_restarts_in_the_middle_of_a_batch_costs_time_only(daemon, client):
    with client.producer("r", "p", batch_events=5, in_flight=3) as stream:
        for number in range(60):
            stream.record("k", number)
            if number % 13 == 7:
                daemon.restart()
    assert produced(daemon) == list(range(60))


def test_what_cannot_be_helped_ends_the_stream(daemon, client):
    stack = contextlib.ExitStack()
    stream = stack.enter_context(client.producer("r", "p"))
    daemon.hooks.append(for_kind(Record, NotFoundError("gone")))
    # The answer may be there as soon as the event is taken in.
    with contextlib.suppress(NotFoundError):
        stream.record("k", 0)
    for again in (stream.flush, lambda: stream.record("k", 1), stack.close):
        with pytest.raises(NotFoundError):
            again()


def test_a_second_producer_of_the_name_is_betrayed(daemon, client):
    stack = contextlib.ExitStack()
    stream = stack.enter_context(client.producer("r", "p"))
    client.record("r", [("k", "other")], producer="p", sequence=1)
    with contextlib.suppress(ConflictError):
        stream.record("k", "mine")
    with pytest.raises(ConflictError, match="another one runs under the same name"):
        stack.close()


def test_the_timeout_bounds_flush_and_the_stream_can_go_on(daemon):
    with Client(daemon.path, timeout=0.05) as client, client.producer("r", "p") as stream:
        daemon.hooks.append(for_kind(Record, SILENCE))
        stream.record("k", 0)
        with pytest.raises(NoAnswerError):
            stream.flush()
        assert stream.flush() == daemon.latest
    assert produced(daemon) == [0]


def test_sending_more_than_the_sockets_hold_does_not_lock_up(daemon, client):
    for _ in range(40):
        daemon.append("k", bytes(100_000))
    daemon.page_events = 20
    reading = client.pages("r", live=False, max_bytes=4 << 20)
    next(reading)
    # The next page is on its way and fills the socket while four megabytes go the other way.
    recorded = client.record("r", [("k", bytes(1 << 20))] * 4)
    assert recorded.first == 41
    assert len(next(reading).events) == 20
