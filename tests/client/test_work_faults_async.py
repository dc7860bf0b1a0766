"""A worker of the async client through lost answers, lost connections, and deaths: nothing is begun twice here."""

import subprocess
import sys

import anyio
import anyio.to_thread
import pytest
from support.daemon import REPOSITORY

from relayd import connect
from relayd.client.errors import ConnectionLostError


async def the_next(work):
    return await anext(aiter(work))


async def until(happened):
    """Waits for another process to have done something."""
    while not happened():  # noqa: ASYNC110 - it says nothing when it has
        await anyio.sleep(0.01)


async def in_flight(client, relay, deliveries):
    """Waits until so many commands are in flight, with these deliveries."""
    while [held.delivery for held in (await client.status(relay)).in_flight] != deliveries:  # noqa: ASYNC110 - as above
        await anyio.sleep(0.02)


async def kinds(client, relay, command_id):
    """What the history says of a command."""
    return [event.kind async for event in client.follow(relay, live=False) if event.command_id == command_id]


ONCE = ["command.queued", "command.started", "command.claimed", "command.completed"]
CLAIMED_AGAIN = [*ONCE[:3], *ONCE[2:]]


def test_a_claim_whose_answer_was_lost_comes_again(run_served, way, relay):
    async def main(client):
        handle = await client.relay(relay).submit()
        way.lose("claimed")
        async with connect(way.path, worker="w") as worker, await the_next(worker.relay(relay).work()) as command:
            assert command.delivery == 2
        assert way.lost_all
        assert await kinds(client, relay, handle.command_id) == CLAIMED_AGAIN

    run_served(main)


def test_a_finish_whose_answer_was_lost_is_recorded_once(run_served, way, relay):
    async def main(client):
        handle = await client.relay(relay).submit()
        async with connect(way.path, worker="w") as worker:
            way.lose("finished", "finished")
            async with await the_next(worker.relay(relay).work()) as command:
                command.result = 7
            assert (command.end, command.lost) == ("completed", False)
        assert way.lost_all
        assert await handle.result(0) == 7
        assert await kinds(client, relay, handle.command_id) == ONCE

    run_served(main)


def test_what_is_in_hand_is_claimed_again_on_the_new_connection_and_begun_once(run_served, way, relay):
    async def main(client):
        begun = []
        go_on = anyio.Event()

        async def handler(command):
            begun.append(command.payload)
            await go_on.wait()
            return command.payload

        async with connect(way.path, worker="w") as worker, anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: worker.relay(relay).run(handler, capacity=3))
            handles = [await client.relay(relay).submit(number) for number in range(3)]
            await until(lambda: len(begun) == 3)
            # Answers to what it claims again are lost too.
            way.lose("claimed")
            way.cut()
            way.mend()
            waiting = await client.relay(relay).submit(3)
            await until(lambda: way.lost_all)
            go_on.set()
            assert [await handle.result() for handle in (*handles, waiting)] == [0, 1, 2, 3]
            tasks.cancel_scope.cancel()
        assert sorted(begun) == [0, 1, 2, 3]

    run_served(main)


def test_a_cancel_comes_through_a_new_connection(run_served, way, relay):
    async def main(client):
        handle = await client.relay(relay).submit()
        async with connect(way.path, worker="w") as worker:
            command = await the_next(worker.relay(relay).work())
            async with anyio.create_task_group() as tasks:
                way.cut()
                await handle.cancel()
                tasks.start_soon(anyio.to_thread.run_sync, way.mend)
                async with command:
                    await anyio.sleep_forever()
            assert (command.cancelled, command.end) == (True, "rejected")

    run_served(main)


@pytest.mark.parametrize("on_loss", ["interrupt", "requeue"])
def test_what_did_not_come_back_within_its_lease_is_cancelled_and_told_as_lost(run_served, way, relay, on_loss):
    async def main(client):
        handle = await client.relay(relay).submit(on_loss=on_loss)
        async with connect(way.path, worker="w") as worker:
            work = worker.relay(relay).work()
            async with await the_next(work) as command:
                way.cut()
                await in_flight(client, relay, [])
                way.mend()
                await anyio.sleep_forever()
            assert (command.lost, command.end, command.cancelled) == (True, None, False)
            if on_loss == "interrupt":
                assert (await handle.outcome(0)).reason == "lease_expired"
            else:
                async with await the_next(work) as again:
                    assert (again.command_id, again.delivery) == (command.command_id, 2)
                assert (await handle.outcome(0)).completed

    run_served(main)


def test_an_end_that_comes_too_late_is_told_as_lost(run_served, way, relay):
    async def main(client):
        handle = await client.relay(relay).submit()
        async with connect(way.path, worker="w") as worker:
            async with await the_next(worker.relay(relay).work()) as command:
                way.cut()
                with anyio.CancelScope(shield=True):
                    assert (await handle.outcome()).reason == "lease_expired"
                command.complete()
                way.mend()
            assert (command.lost, command.end) == (True, None)

    run_served(main)


def test_without_reconnect_a_lost_connection_ends_the_worker(run_served, way, relay):
    async def main(client):
        await client.relay(relay).submit()
        async with connect(way.path, worker="w", reconnect=False) as worker:
            work = worker.relay(relay).work()
            async with await the_next(work) as command:
                way.cut()
                await anyio.sleep_forever()
            assert command.lost
            with pytest.raises(ConnectionLostError):
                await the_next(work)

    run_served(main)


def test_the_daemon_is_killed_twice_while_a_worker_works(run_served, served, relay):
    async def main(client):
        begun, deliveries = [], []
        go_on = anyio.Event()

        async def handler(command):
            begun.append(command.payload)
            await go_on.wait()
            deliveries.append(command.delivery)
            return command.payload

        async with connect(str(served.socket), worker="w") as worker, anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: worker.relay(relay).run(handler, capacity=2))
            handles = [await client.relay(relay).submit(number) for number in range(4)]
            await until(lambda: len(begun) == 2)
            for delivery in (2, 3):
                await anyio.to_thread.run_sync(served.kill)
                await anyio.to_thread.run_sync(served.start)
                await in_flight(client, relay, [delivery] * 2)
            await anyio.to_thread.run_sync(served.kill)
            go_on.set()
            await anyio.to_thread.run_sync(served.start)
            assert [await handle.result() for handle in handles] == [0, 1, 2, 3]
            tasks.cancel_scope.cancel()
        assert begun == [0, 1, 2, 3]
        assert deliveries[:2] == [3, 3]

    run_served(main)


WORKER = """
import sys, anyio, relayd

async def main(socket, relay, hangs):
    async with relayd.connect(socket, worker="w") as client:
        async for command in client.relay(relay).work():
            async with command:
                print(command.command_id, command.delivery, flush=True)
                if hangs:
                    await anyio.sleep_forever()
            return

anyio.run(main, *sys.argv[2:4], sys.argv[4] == "hangs", backend=sys.argv[1])
"""


def test_a_worker_that_was_killed_and_is_back_within_its_lease_gets_its_command_again(
    run_served, served, relay, backend
):
    def worker(word):
        command = [sys.executable, "-c", WORKER, backend, str(served.socket), relay, word]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY)

    async def main(client):
        handle = await client.relay(relay).submit()
        with worker("hangs") as first:
            assert await anyio.to_thread.run_sync(first.stdout.readline) == f"{handle.command_id} 1\n"
            first.kill()
        with worker("works") as second:
            assert await anyio.to_thread.run_sync(second.stdout.readline) == f"{handle.command_id} 2\n"
        assert (await handle.outcome()).completed

    run_served(main)


def test_a_waiting_claim_gets_what_its_own_identity_loses_hold_of(run_served, served, way, relay):
    """A new connection may ask before the daemon has noticed the end of the old one."""

    async def main(client):
        handle = await client.relay(relay).submit()
        async with connect(way.path, worker="w") as old, connect(str(served.socket), worker="w") as new:
            assert [one.delivery for one in await old.claim(relay, 1)] == [1]
            found = []

            async def claim():
                found.extend(await new.claim(relay, 1, wait_ms=20_000))

            with anyio.fail_after(5):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(claim)
                    await new.status(relay)
                    way.cut()
        assert [(one.command_id, one.delivery) for one in found] == [(handle.command_id, 2)]

    run_served(main)
