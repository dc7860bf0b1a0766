"""A controller of the async client, on Trio and on asyncio."""

import anyio
import anyio.to_thread
import pytest

from relayd import CommandFailedError, Outcome, connect
from relayd.protocol.commands import ClearQueue
from relayd.protocol.errors import InvalidStateError, NotFoundError, WaitTimeoutError


async def work_off(socket, relay, number=1):
    """Ends the next commands."""
    async with connect(socket, worker="w") as worker:
        async for command in worker.relay(relay).work():
            async with command:
                command.complete({"did": command.payload})
            number -= 1
            if number == 0:
                return


async def kinds(client, relay, command_id):
    """What the history says of a command."""
    return [event.kind async for event in client.follow(relay, live=False) if event.command_id == command_id]


def test_a_task_and_its_outcome(run_served, served, relay):
    async def main(client):
        build = client.relay(relay)
        assert client.relay(relay) is build
        handle = await build.submit({"x": 1})
        await work_off(str(served.socket), relay)
        outcome = Outcome(handle.command_id, "task", "completed", 5, {"did": {"x": 1}})
        assert await handle.outcome() == await handle.outcome(0) == outcome
        assert await handle.result() == {"did": {"x": 1}}

    run_served(main)


def test_a_rejection_is_an_outcome_and_no_exception_until_the_result_is_asked_for(run_served, relay):
    async def main(client):
        handle = await client.relay(relay).submit()
        cancel = await handle.cancel()
        assert (await cancel.outcome()).completed
        outcome = await handle.outcome()
        assert (outcome.state, outcome.reason, outcome.completed) == ("rejected", "cancelled", False)
        with pytest.raises(CommandFailedError) as raised:
            await handle.result()
        assert raised.value.outcome == outcome
        with pytest.raises(InvalidStateError):
            await handle.cancel()

    run_served(main)


def test_waiting_ends_with_its_timeout_and_can_begin_again(run_served, served, relay):
    async def main(client):
        handle = await client.relay(relay).submit()
        for timeout in (0, 0.05):
            with pytest.raises(WaitTimeoutError):
                await handle.outcome(timeout)
        await work_off(str(served.socket), relay)
        assert (await handle.outcome(5)).completed
        with pytest.raises(NotFoundError):
            await client.relay(relay).handle("no-such-command").outcome()

    run_served(main)


def test_a_submit_whose_answer_was_lost_is_one_command(run_served, way, relay):
    async def main(controller):
        way.lose("accepted")
        async with connect(way.path) as client:
            handle = await client.relay(relay).submit("once")
        assert way.lost_all
        assert await kinds(controller, relay, handle.command_id) == ["command.queued", "command.started"]

    run_served(main)


def test_waiting_goes_through_the_death_of_the_daemon(run_served, served, relay):
    async def main(client):
        handle = await client.relay(relay).submit("x")
        outcomes = []

        async def wait():
            outcomes.append(await handle.outcome())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.to_thread.run_sync(served.kill)
            await anyio.to_thread.run_sync(served.start)
            await work_off(str(served.socket), relay)
        assert outcomes == [Outcome(handle.command_id, "task", "completed", 5, {"did": "x"})]

    run_served(main)


def test_settings_and_side_tasks(run_served, served, relay):
    async def main(client):
        side = await client.relay(relay).side_task("beside")
        setting = await client.relay(relay).configure("colour", "red")
        await work_off(str(served.socket), relay, 2)
        assert await side.result() == {"did": "beside"}
        assert await setting.result() == {"did": {"colour": "red"}}
        assert list((await client.status(relay)).config) == ["colour"]

    run_served(main)


def test_a_checkpoint_is_completed_or_released(run_served, relay):
    async def main(client):
        async with client.relay(relay).checkpoint() as checkpoint:
            assert (await client.status(relay)).barrier.command_id == checkpoint.command_id
            await checkpoint.complete()
        completed = checkpoint.cut
        async with client.relay(relay).checkpoint() as checkpoint:
            assert checkpoint.cut.ordinal > completed.ordinal
        with pytest.raises(ZeroDivisionError):
            async with client.relay(relay).checkpoint():
                raise ZeroDivisionError
        with anyio.move_on_after(0.1):
            async with client.relay(relay).checkpoint():
                await anyio.sleep_forever()
        status = await client.status(relay)
        assert (status.floor, status.barrier) == (completed, None)

    run_served(main)


def test_a_checkpoint_whose_maker_is_cancelled_while_it_drains_is_given_up(run_served, served, relay):
    async def main(client):
        async with connect(str(served.socket), worker="w") as worker:
            await client.relay(relay).submit()
            async for command in worker.relay(relay).work():
                async with command:
                    with anyio.move_on_after(0.1) as waiting:
                        async with client.relay(relay).checkpoint():
                            pass
                    assert waiting.cancelled_caught
                    assert (await client.status(relay)).barrier is None
                break

    run_served(main)


def test_a_checkpoint_ends_with_its_connection(run_served, way, relay):
    async def main(controller):
        async with connect(way.path) as client:
            checkpoint = client.relay(relay).checkpoint()
            await checkpoint.__aenter__()
            way.cut()
            outcome = await controller.relay(relay).handle(checkpoint.command_id).outcome()
            assert (outcome.state, outcome.reason) == ("interrupted", "owner_lost")
            way.mend()
            with pytest.raises(InvalidStateError):
                await checkpoint.complete()
            with pytest.raises(InvalidStateError):
                await checkpoint.__aexit__(None, None, None)

    run_served(main)


def test_close_seals_the_relay_at_an_exact_cut(run_served, served, relay, monkeypatch):
    from relayd.client.acheckpoint import AsyncCheckpoint  # noqa: PLC0415 - patched below

    close, cuts = AsyncCheckpoint.close, []

    async def main(client):
        async def disturbed(checkpoint):
            cuts.append(checkpoint.cut)
            if len(cuts) == 1:
                await client.submit(relay, ClearQueue())
            await close(checkpoint)

        monkeypatch.setattr(AsyncCheckpoint, "close", disturbed)
        assert await client.relay(relay).close() == cuts[1]
        assert (await client.status(relay)).execution == "closed"
        async with connect(str(served.socket), worker="w") as worker:
            assert [command async for command in worker.relay(relay).work()] == []

    run_served(main)
