"""The async client against a daemon on a real socket, on Trio and on asyncio."""

import threading

import anyio
import pytest
from fake_daemon import CUT, SILENCE, STOPPING, STORE, for_kind, once, ordinals, until

from relayd.client.aclient import connect
from relayd.client.errors import ConnectionLostError, NotConnectedError, ProtocolViolationError
from relayd.client.events import Gap
from relayd.protocol.cursor import Cursor, Span
from relayd.protocol.errors import (
    DesynchronizedError,
    IncompatibleProtocolError,
    NotFoundError,
    OverloadedError,
    StorageFailedError,
)
from relayd.protocol.messages import Attach, CancelRequest, Done, Record


def test_each_operation_asks_and_answers(daemon, run):
    async def main(client):
        assert client.welcome.daemon == "fake"
        assert [entry.relay for entry in await client.relays()] == ["r"]
        assert (await client.open("r", create=True)).created
        assert (await client.record("r", [("a", {"x": 1}), ("b", None, "command-1")])).first == 1
        assert (await client.status("r")).latest == daemon.latest
        page = await client.attach("r")
        assert [(event.kind, event.data) for event in page.events] == [("a", {"x": 1}), ("b", None)]
        assert (await client.acknowledge("r", page.through, "c")).through == page.through
        assert (await client.await_acknowledged("r", "c", page.through, 100)).through == page.through
        assert (await client.attach("r", {"consumer": "c"})).events == []
        await client.forget_consumer("r", "c")
        await client.delete_relay("r")
        await client.delete_relay("r", STORE)
        await client.leave()

    run(main)


def test_exceptions_leave_as_they_are(run):
    """A refusal in the block is raised by its own type, in no group."""

    async def refused(client):
        await client.status("other")

    async def broken(_client):
        raise ZeroDivisionError

    with pytest.raises(NotFoundError):
        run(refused)
    with pytest.raises(ZeroDivisionError):
        run(broken)


def test_where_nobody_listens_it_says_what_to_do(tmp_path, backend):
    async def main():
        async with connect(str(tmp_path / "s")):
            pass

    with pytest.raises(NotConnectedError, match="the way it is started here"):
        anyio.run(main, backend=backend)


def test_whoever_says_nothing_is_no_daemon(daemon, run, monkeypatch):
    monkeypatch.setattr("relayd.client.alink.WELCOME_SECONDS_MAX", 0.05)
    monkeypatch.setattr(daemon, "answer", lambda *_: SILENCE)
    with pytest.raises(NotConnectedError, match="did not answer within"):
        run(lambda client: client.relays())


def test_the_refusal_of_hello_is_raised(daemon, run, monkeypatch):
    monkeypatch.setattr(daemon, "answer", lambda *_: IncompatibleProtocolError("speaks 2"))
    with pytest.raises(IncompatibleProtocolError):
        run(lambda client: client.relays())


def test_a_hello_refused_later_reaches_every_call(daemon, run, monkeypatch):
    async def main(client):
        monkeypatch.setattr(daemon, "answer", lambda *_: IncompatibleProtocolError("speaks 2"))
        daemon.kill_connections()
        for _ in range(2):
            with pytest.raises(IncompatibleProtocolError):
                await client.relays()

    run(main)


def test_it_is_used_inside_its_block_only(daemon, backend):
    async def main():
        client = connect(daemon.path)
        with pytest.raises(NotConnectedError, match="enter it"):
            await client.relays()
        async with client:
            assert await client.relays()
            with pytest.raises(NotConnectedError, match="entered before"):
                async with client:
                    pass
        with pytest.raises(NotConnectedError, match="this client is closed"):
            await client.relays()

    anyio.run(main, backend=backend)


@pytest.mark.parametrize("failure", [CUT, STOPPING], ids=["cut", "stop"])
def test_what_is_safe_to_repeat_is_repeated(daemon, run, failure):
    async def main(client):
        for ask in (
            lambda: client.status("r"),
            lambda: client.open("r", create=True),
            lambda: client.attach("r"),
            lambda: client.record("r", [("k", 1)], producer="p", sequence=1),
        ):
            daemon.hooks.extend([once(failure), once(failure)])
            assert await ask()

    run(main)
    assert len(daemon.hellos) == 9


def test_what_is_not_safe_to_repeat_is_told(daemon, run):
    async def main(client):
        daemon.hooks.append(once(CUT))
        with pytest.raises(ConnectionLostError, match="may have been done or not"):
            await client.record("r", [("k", 1)])
        assert (await client.record("r", [("k", 2)])).first == 1, "what never left may be sent"

    run(main)


def test_without_reconnect_a_lost_connection_is_the_end(daemon, run):
    async def main(client):
        daemon.hooks.append(once(CUT))
        for _ in range(2):
            with pytest.raises(ConnectionLostError):
                await client.relays()
        with pytest.raises(ConnectionLostError):
            await client.follow("r").__anext__()

    run(main, reconnect=False)
    assert len(daemon.hellos) == 1


def test_many_tasks_share_a_connection(daemon, run):
    async def main(client):
        found = []

        async def wait_for_event():
            found.append(ordinals((await client.attach("r", wait_ms=5000)).events))

        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(wait_for_event)
            await until(daemon, lambda: len(daemon.waiting) == 10)
            assert await client.relays(), "who waits holds up nobody"
            daemon.append("k")
        assert found == [[1]] * 10

    run(main)
    assert len(daemon.hellos) == 1


def test_garbage_ends_the_connection_and_is_told(daemon, run):
    async def main(client):
        daemon.hooks.append(once(b"GET / HTTP/1.1\r\n"))
        with pytest.raises(ProtocolViolationError):
            await client.status("r")
        assert await client.status("r"), "the next call has a new connection"
        daemon.hooks.append(once(Done(0)))
        with pytest.raises(ProtocolViolationError, match="answered Status with Done"):
            await client.status("r")

    run(main)


# Cancellation.


def test_a_cancelled_wait_is_taken_back(daemon, run):
    async def main(client):
        with anyio.move_on_after(0.02):
            await client.attach("r", wait_ms=60_000)
        await until(daemon, lambda: not daemon.waiting)
        taken = [one for one in daemon.seen if isinstance(one, CancelRequest)]
        asked = [one for one in daemon.seen if isinstance(one, Attach)]
        assert [one.request for one in taken] == [asked[0].id]
        assert await client.relays()
        link = await client.connected()
        assert link._session.in_flight == 0
        assert not link._pending

    run(main)
    assert len(daemon.hellos) == 1


def test_cancelled_before_sending_nothing_is_sent(daemon, run):
    async def main(client):
        with anyio.CancelScope() as scope:
            scope.cancel()
            await client.record("r", [("k", 1)])
        assert await client.relays()

    run(main)
    assert not any(isinstance(one, Record) for one in daemon.seen)
    assert len(daemon.hellos) == 1


def test_cancelled_in_the_middle_of_a_frame_the_connection_ends_and_others_go_on(daemon, run):
    async def main(client):
        found = []

        async def wait_for_event():
            found.append(ordinals((await client.attach("r", wait_ms=5000)).events))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait_for_event)
            await until(daemon, lambda: daemon.waiting)
            daemon.reading.clear()
            with anyio.move_on_after(0.05) as scope:
                # The daemon reads nothing now: the socket takes a part of this and no more.
                await client.record("r", [("k", bytes(1 << 20))] * 6)
            assert scope.cancelled_caught
            daemon.reading.set()
            await until(daemon, lambda: len(daemon.hellos) == 2 and daemon.waiting)
            daemon.append("k")
        assert found == [[1]]

    run(main)


def test_leaving_the_block_cancels_nothing_outside(daemon, run, backend):
    async def main():
        with anyio.move_on_after(0.02) as scope:
            async with connect(daemon.path) as client, anyio.create_task_group() as tasks:
                tasks.start_soon(client.await_acknowledged, "r", "c", Cursor(0), 1)
                async for _event in client.follow("r"):
                    pass
        assert scope.cancelled_caught
        async with connect(daemon.path) as client:
            assert await client.relays()

    anyio.run(main, backend=backend)


# Following.


def test_follow_gives_each_event_once_in_order_across_pages(daemon, run):
    async def main(client):
        for number in range(10):
            daemon.append("k", number)
        daemon.page_events = 3
        assert [event.data async for event in client.follow("r", live=False)] == list(range(10))
        assert [len(page.events) async for page in client.pages("r", live=False)] == [3, 3, 3, 1]
        assert [event.ordinal async for event in client.follow("r", "latest", live=False)] == []

    run(main)


def test_it_follows_live_through_everything(daemon, run):
    async def main(client):
        following = client.follow("r", daemon.latest)
        seen = []
        for number in range(12):
            with anyio.move_on_after(0.005):
                await following.__anext__()
            if number % 4 == 1:
                daemon.restart()
            if number % 4 == 2:
                daemon.kill_connections()
            if number % 4 == 3:
                daemon.hooks.append(for_kind(Attach, StorageFailedError("x")))
            daemon.append("k", number)
            seen.append((await following.__anext__()).data)
        assert seen == list(range(12))

    run(main)


@pytest.mark.parametrize("failure", [CUT, STOPPING, OverloadedError("x")], ids=["cut", "stop", "full"])
def test_a_page_that_was_asked_for_ahead_is_asked_for_again(daemon, run, failure):
    async def main(client):
        for number in range(9):
            daemon.append("k", number)
        daemon.page_events = 3
        daemon.hooks.append(for_kind(Attach, failure, number=2))
        daemon.hooks.append(for_kind(Attach, failure, number=1))
        assert [event.data async for event in client.follow("r", live=False)] == list(range(9))

    run(main)


def test_without_reconnect_a_page_asked_for_ahead_is_lost_with_its_connection(daemon, run):
    async def main(client):
        for number in range(9):
            daemon.append("k", number)
        daemon.page_events = 3
        daemon.hooks.append(for_kind(Attach, CUT, number=2))
        pages = client.pages("r", live=False)
        await pages.__anext__()
        with pytest.raises(ConnectionLostError):
            await pages.__anext__()

    run(main, reconnect=False)


def test_an_iterator_that_was_cancelled_goes_on_where_it_was(daemon, run):
    async def main(client):
        for number in range(40):
            daemon.append("k", number)
        daemon.page_events = 3
        following = client.follow("r", live=False)
        seen, cancelled = [], 0
        while True:
            with anyio.CancelScope() as scope:
                if len(seen) % 2 == 0 and cancelled <= len(seen):
                    cancelled = len(seen) + 1
                    scope.cancel()
                try:
                    seen.append((await following.__anext__()).data)
                except StopAsyncIteration:
                    break
        assert seen == list(range(40))

    run(main)


def test_gaps_are_told_and_reading_goes_on(daemon, run):
    async def main(client):
        for number in range(9):
            daemon.append("k", number)
        daemon.page_events = 2
        daemon.evicted = 3
        daemon.unreadable = (7, 8)
        found = [one async for one in client.follow("r", live=False)]
        assert ordinals(one for one in found if not isinstance(one, Gap)) == [4, 5, 6, 9]
        assert [one for one in found if isinstance(one, Gap)] == [
            Gap("evicted", Span(1, 3), Cursor(3)),
            Gap("unreadable", Span(7, 8), Cursor(8)),
        ]

    run(main)


def test_the_same_damage_twice_is_raised(daemon, run):
    async def main(client):
        for number in range(4):
            daemon.append("k", number)
        damage = daemon.desynchronized("unreadable", daemon.cursor(1), (2, 3))
        daemon.hooks.extend([for_kind(Attach, damage), for_kind(Attach, damage)])
        following = client.follow("r", daemon.cursor(1))
        assert await following.__anext__() == Gap("unreadable", Span(2, 3), Cursor(3))
        with pytest.raises(DesynchronizedError):
            await following.__anext__()

    run(main)


def test_answers_may_come_a_byte_at_a_time(daemon, run):
    async def main(client):
        await client.record("r", [("k", number) for number in range(20)])
        assert [event.data async for event in client.follow("r", live=False)] == list(range(20))

    daemon.byte_by_byte = True
    run(main)


# Every way to break off.


def test_a_connection_cut_at_any_byte_of_the_answers_changes_nothing(daemon, backend):
    async def story(cut):
        daemon.cut_after = cut
        while True:
            try:
                client = await connect(daemon.path).__aenter__()
            except (ConnectionLostError, NotConnectedError):
                continue
            break
        try:
            async with client.producer("r", "p", batch_events=2) as stream:
                for number in range(3):
                    await stream.record("k", number)
            return [event.data async for event in client.follow("r", live=False)]
        finally:
            await client.__aexit__(None, None, None)

    async def main():
        for cut in range(0, 500, 3):
            daemon.records.clear()
            del daemon.digests[1:]
            daemon.producers.clear()
            assert await story(cut) == [0, 1, 2], cut

    anyio.run(main, backend=backend)


def test_threads_of_the_fake_daemon_end(daemon):
    daemon.stop()
    assert threading.active_count() < 10
