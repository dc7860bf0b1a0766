"""The async producer against a daemon on a real socket, on Trio and on asyncio."""

import anyio
import pytest
from fake_daemon import CUT, SILENCE, STOPPING, for_kind, produced, until

from relayd.client.errors import ConnectionLostError
from relayd.protocol.errors import (
    ConflictError,
    NotFoundError,
    OverloadedError,
    StorageFailedError,
    StorageFullError,
)
from relayd.protocol.messages import Record


def test_a_stream_is_recorded_once_and_in_order(daemon, run):
    async def main(client):
        async with client.producer("r", "p", batch_events=10) as stream:
            assert [await stream.record("k", number) for number in range(95)] == list(range(1, 96))
            assert await stream.flush() == daemon.latest
            assert stream.position == 95
        async with client.producer("r", "p") as stream:
            assert stream.position == 95
            await stream.record("k", 95)
        assert produced(daemon) == list(range(96)), "leaving the block flushes"

    run(main)


def test_what_lingers_is_sent_without_being_asked(daemon, run):
    async def main(client):
        async with client.producer("r", "p", linger_ms=1) as stream:
            daemon.lock.acquire()
            try:
                await stream.record("k", 0)
                await stream.record("k", 1)
            finally:
                daemon.lock.release()
            await until(daemon, lambda: produced(daemon) == [0, 1])

    run(main)


@pytest.mark.parametrize(
    "failure", [StorageFailedError("x"), OverloadedError("x"), CUT, STOPPING], ids=["disk", "full", "cut", "stop"]
)
def test_whatever_time_lifts_the_stream_goes_on(daemon, run, failure):
    async def main(client):
        async with client.producer("r", "p", batch_events=2, in_flight=3) as stream:
            for number in range(40):
                if number % 7 == 3:
                    daemon.hooks.append(for_kind(Record, failure))
                await stream.record("k", number)

    run(main)
    assert produced(daemon) == list(range(40))


@pytest.mark.parametrize("failure", [StorageFullError("x"), OverloadedError("x"), CUT, STOPPING])
def test_a_stream_begun_while_there_is_no_room_waits_for_it(daemon, run, failure):
    async def main(client):
        async with client.producer("r", "p") as stream:
            await stream.record("k", 0)
            assert await stream.flush() == stream.through == daemon.latest

    daemon.hooks.extend(for_kind(Record, failure) for _ in range(3))
    run(main)
    assert produced(daemon) == [0]


def test_without_reconnect_a_stream_begun_while_there_is_no_room_is_refused(daemon, run):
    async def main(client):
        async with client.producer("r", "p"):
            pass

    daemon.hooks.append(for_kind(Record, StorageFullError("x")))
    with pytest.raises(StorageFullError):
        run(main, reconnect=False)


def test_events_that_were_there_after_all_are_not_doubled(daemon, run):
    def recorded_and_lost(request):
        if isinstance(request, Record) and request.events:
            daemon.record(request)
            return CUT
        return None

    async def main(client):
        async with client.producer("r", "p", batch_events=2) as stream:
            for number in range(20):
                if number % 5 == 0:
                    daemon.hooks.append(recorded_and_lost)
                await stream.record("k", number)

    run(main)
    assert produced(daemon) == list(range(20))


def test_a_daemon_that_restarts_in_the_middle_of_a_batch_costs_time_only(daemon, run):
    async def main(client):
        async with client.producer("r", "p", batch_events=5, in_flight=3) as stream:
            for number in range(60):
                await stream.record("k", number)
                if number % 13 == 7:
                    await anyio.to_thread.run_sync(daemon.restart)

    run(main)
    assert produced(daemon) == list(range(60))


def test_what_cannot_be_helped_ends_the_stream(daemon, run):
    async def main(client):
        async with client.producer("r", "p") as stream:
            daemon.hooks.append(for_kind(Record, NotFoundError("gone")))
            await stream.record("k", 0)
            with pytest.raises(NotFoundError):
                await stream.flush()
            await stream.record("k", 1)

    with pytest.raises(NotFoundError):
        run(main)


def test_without_reconnect_a_lost_connection_ends_the_stream(daemon, run):
    async def main(client):
        async with client.producer("r", "p") as stream:
            daemon.hooks.append(for_kind(Record, CUT))
            await stream.record("k", 0)
            await stream.flush()

    with pytest.raises(ConnectionLostError):
        run(main, reconnect=False)


def test_a_second_producer_of_the_name_is_betrayed(daemon, run):
    async def main(client):
        async with client.producer("r", "p") as stream:
            await client.record("r", [("k", "other")], producer="p", sequence=1)
            await stream.record("k", "mine")

    with pytest.raises(ConflictError):
        run(main)


def test_who_is_cancelled_in_record_has_not_recorded_it(daemon, run):
    async def main(client):
        sent = 0
        async with client.producer("r", "p", batch_events=2, in_flight=1) as stream:
            turn = 0
            while sent < 50:
                with anyio.CancelScope() as scope:
                    turn += 1
                    if turn % 3 == 0:
                        scope.cancel()
                    await stream.record("k", sent)
                    sent += 1

    run(main)
    assert produced(daemon) == list(range(50))


def test_an_exception_in_the_block_does_not_wait_for_the_daemon(daemon, run):
    async def main(client):
        async with client.producer("r", "p") as stream:
            daemon.hooks.append(for_kind(Record, SILENCE))
            await stream.record("k", 0)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(main)
