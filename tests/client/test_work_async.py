"""A worker of the async client, on Trio and on asyncio: outcomes, cancels, capacity."""

import logging

import anyio
import pytest

from relayd import NotConnectedError, connect
from relayd.protocol.errors import ForbiddenError, InvalidRequestError, NotFoundError


@pytest.fixture
def run_worker(run_served, served):
    """Runs an async function with a controller's client and a worker's."""

    def start(function):
        async def main(client):
            async with connect(str(served.socket), worker="w") as worker:
                await function(client, worker)

        run_served(main)

    return start


async def the_next(work):
    """One command of a worker's."""
    return await anext(aiter(work))


async def in_flight(client, relay):
    return [held.command_id for held in (await client.status(relay)).in_flight]


def test_leaving_the_block_completes_with_the_result(run_worker, relay):
    async def main(client, worker):
        handle = await client.relay(relay).submit({"n": 20})
        async for command in worker.relay(relay).work():
            assert (command.command_id, command.type, command.delivery) == (handle.command_id, "task", 1)
            async with command:
                command.result = command.payload["n"] + 1
            assert (command.end, command.lost, command.cancelled) == ("completed", False, False)
            break
        assert await handle.result(0) == 21

    run_worker(main)


def test_what_the_body_says_is_the_end(run_worker, relay):
    async def main(client, worker):
        build = client.relay(relay)
        handles = [await build.submit() for _ in range(2)]
        work = worker.relay(relay).work()
        async with await the_next(work) as command:
            command.reject("not today", result=1)
        async with await the_next(work) as command:
            command.interrupt("half done")
        ends = [await handle.outcome(0) for handle in handles]
        assert [(end.state, end.message, end.result) for end in ends] == [
            ("rejected", "not today", 1),
            ("interrupted", "half done", None),
        ]

    run_worker(main)


def test_an_exception_rejects_and_goes_on(run_worker, relay):
    async def main(client, worker):
        handle = await client.relay(relay).submit()
        command = await the_next(worker.relay(relay).work())
        with pytest.raises(ZeroDivisionError):
            async with command:
                raise ZeroDivisionError("by nought")
        outcome = await handle.outcome(0)
        assert (outcome.state, outcome.message) == ("rejected", "ZeroDivisionError: by nought")

    run_worker(main)


def test_the_exceptions_of_a_group_are_all_told(run_worker, relay):
    async def main(client, worker):
        handle = await client.relay(relay).submit()
        with pytest.raises(ExceptionGroup):
            async with await the_next(worker.relay(relay).work()):
                raise ExceptionGroup("two", [ValueError("one"), ExceptionGroup("more", [KeyError()])])
        assert (await handle.outcome(0)).message == "ValueError: one; KeyError"

    run_worker(main)


def test_a_result_that_cannot_be_sent_rejects(run_worker, relay):
    async def main(client, worker):
        handle = await client.relay(relay).submit()
        with pytest.raises(InvalidRequestError):
            async with await the_next(worker.relay(relay).work()) as command:
                command.result = object()
        assert (await handle.outcome(0)).state == "rejected"

    run_worker(main)


def test_a_cancel_ends_the_body_and_rejects(run_worker, relay):
    async def main(client, worker):
        handle = await client.relay(relay).submit()
        command = await the_next(worker.relay(relay).work())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(handle.cancel, "cancel-1")
            async with command:
                await anyio.sleep_forever()
        assert (command.cancelled, command.end) == (True, "rejected")
        cancel = client.relay(relay).handle("cancel-1")
        outcome = await handle.outcome(0)
        assert (outcome.state, outcome.message) == ("rejected", "cancelled")
        assert (await cancel.outcome(0)).completed

    run_worker(main)


def test_a_body_that_is_cancelled_may_say_otherwise(run_worker, relay):
    async def main(client, worker):
        handle = await client.relay(relay).submit()
        command = await the_next(worker.relay(relay).work())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(handle.cancel)
            async with command:
                try:
                    await anyio.sleep_forever()
                finally:
                    command.complete("what there was")
        assert await handle.result(0) == "what there was"

    run_worker(main)


def test_a_command_that_was_cancelled_before_it_was_handed_over_is_given_to_nobody(run_served, served, relay):
    """Its first worker is gone, and the cancel comes with it to the next one of the same identity."""

    async def main(client):
        handle = await client.relay(relay).submit("first")
        async with connect(str(served.socket), worker="w") as gone:
            await the_next(gone.relay(relay).work())
            cancel = await handle.cancel()
        other = await client.relay(relay).submit("second")
        async with connect(str(served.socket), worker="w") as worker:
            async with await the_next(worker.relay(relay).work()) as command:
                assert command.payload == "second"
            assert (await handle.outcome(10)).message == "cancelled"
        assert (await cancel.outcome(0)).completed
        assert (await other.outcome(0)).completed

    run_served(main)


def test_a_worker_that_is_cancelled_says_nothing_and_its_identity_may_go_on(run_served, served, relay):
    async def main(client):
        handle = await client.relay(relay).submit()
        async with connect(str(served.socket), worker="w") as worker:
            with anyio.move_on_after(0.1) as stopping:
                async with await the_next(worker.relay(relay).work()) as command:
                    await anyio.sleep_forever()
            assert stopping.cancelled_caught
            assert command.end is None
            assert await in_flight(client, relay) == [handle.command_id]
        async with (
            connect(str(served.socket), worker="w") as worker,
            await the_next(worker.relay(relay).work()) as command,
        ):
            assert command.delivery == 2
        assert (await handle.outcome(0)).completed

    run_served(main)


def test_run_calls_the_handler_for_each_up_to_capacity_at_once(run_worker, relay):
    async def main(client, worker):
        at_once, most = 0, 0
        three = anyio.Event()

        async def handler(command):
            nonlocal at_once, most
            at_once += 1
            most = max(most, at_once)
            if most == 3:
                three.set()
            await three.wait()
            await anyio.sleep(0.001)
            at_once -= 1
            return command.payload * 2

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: worker.relay(relay).run(handler, capacity=3))
            handles = [await client.relay(relay).submit(number) for number in range(12)]
            assert [await handle.result() for handle in handles] == [number * 2 for number in range(12)]
            tasks.cancel_scope.cancel()
        assert most == 3

    run_worker(main)


def test_a_worker_holds_no_more_than_its_capacity_and_nothing_ahead(run_worker, relay):
    async def main(client, worker):
        handles = [await client.relay(relay).submit(number) for number in range(4)]
        work = worker.relay(relay).work(capacity=2)
        async with await the_next(work):
            assert await in_flight(client, relay) == [handles[0].command_id]
            async with await the_next(work):
                with anyio.move_on_after(0.1) as waiting:
                    await the_next(work)
                assert waiting.cancelled_caught
                assert await in_flight(client, relay) == [handle.command_id for handle in handles[:2]]
            assert (await the_next(work)).command_id == handles[2].command_id

    run_worker(main)


def test_who_no_longer_waits_takes_nothing_from_others(run_worker, served, relay):
    async def main(client, worker):
        with anyio.move_on_after(0.1):
            await the_next(worker.relay(relay).work())
        await worker.status(relay)
        handle = await client.relay(relay).submit()
        async with connect(str(served.socket), worker="other") as other, await the_next(other.relay(relay).work()):
            assert await in_flight(client, relay) == [handle.command_id]

    run_worker(main)


def test_loops_on_one_relay_share_its_commands(run_worker, relay):
    async def main(client, worker):
        one, two = worker.relay(relay).work(), worker.relay(relay).work()
        found = []

        async def take(work):
            async with await the_next(work) as command:
                found.append(command.payload)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(take, one)
            tasks.start_soon(take, two)
            for number in range(2):
                await client.relay(relay).submit(number)
        assert sorted(found) == [0, 1]

    run_worker(main)


def test_what_a_handler_raises_is_told_and_the_worker_goes_on(run_worker, relay, caplog):
    async def main(client, worker):
        async def handler(command):
            if command.payload == "bad":
                raise ValueError("no good")

        told = []
        for failed in ({}, {"failed": lambda command, error: told.append((command.payload, str(error)))}):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lambda failed=failed: worker.relay(relay).run(handler, **failed))
                bad, good = [await client.relay(relay).submit(payload) for payload in ("bad", "good")]
                assert (await good.outcome()).completed
                assert (await bad.outcome()).message == "ValueError: no good"
                tasks.cancel_scope.cancel()
        assert told == [("bad", "no good")]

    with caplog.at_level(logging.ERROR, "relayd.worker"):
        run_worker(main)
    (record,) = [record for record in caplog.records if record.name == "relayd.worker"]
    assert "ValueError: no good" in record.getMessage()


def test_what_ends_a_worker_is_raised_as_it_is(run_worker, run_served, relay):
    async def main(client, worker):
        with pytest.raises(ForbiddenError):
            await the_next(client.relay(relay).work())
        with pytest.raises(ForbiddenError):
            await client.relay(relay).run(print)
        with pytest.raises(NotFoundError):
            await the_next(worker.relay("not-there").work())
        with pytest.raises(InvalidRequestError):
            worker.relay(relay).work(capacity=0)

    run_worker(main)


def test_a_client_that_is_left_ends_its_loops(run_served, served, relay):
    async def main(_client):
        async with anyio.create_task_group() as tasks:
            async with connect(str(served.socket), worker="w") as worker:

                async def wait():
                    with pytest.raises(NotConnectedError):
                        await the_next(worker.relay(relay).work())

                tasks.start_soon(wait)
                await worker.status(relay)
            with pytest.raises(NotConnectedError):
                await the_next(worker.relay(relay).work())

    run_served(main)


def test_run_ends_when_the_relay_is_closed(run_worker, relay):
    async def main(client, worker):
        async def handler(_command):
            return 1

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.relay(relay).run, handler)
            handle = await client.relay(relay).submit()
            assert await handle.result() == 1
            await client.relay(relay).close()

    run_worker(main)
