"""Large commands and many: each bound, and that nothing is written past it."""

import msgspec
import pytest
from support import oracle
from support.inside import inside
from support.lane_calls import TASK, claim, events, finish, many, refused, submit, told
from support.lane_calls import worker as connect_worker

MIB = 1024 * 1024
SNAPSHOT_MAX = 16 * MIB
pack = msgspec.msgpack.encode


def sized(size):
    """A task of exactly so many bytes."""
    around = len(pack({"type": "task", "payload": bytes(100_000)})) - 100_000
    return {"type": "task", "payload": bytes(size - around)}


async def test_a_command_of_1_mib_is_stored_once_and_over_it_is_too_large_before_anything_is_written(daemon):
    client, worker = await daemon.relay(), await connect_worker(daemon)
    command = sized(MIB)
    assert len(pack(command)) == MIB
    assert await refused(daemon, client, "submit", command_id="task-0000", command=sized(MIB + 1)) == "too_large"
    await submit(client, "task-0001", command)
    claimed = await worker.done("claim", relay="a", capacity=1)
    assert claimed["commands"][0]["command"] == command
    await finish(worker, "task-0001")
    bodies = oracle.read_journal(daemon.journal())
    assert sum(map(len, bodies.values())) < MIB + 1000
    assert (daemon.journal() / "active.log").stat().st_size < MIB + 3000


async def test_a_result_over_the_bound_of_an_event_is_too_large_and_the_command_goes_on(daemon):
    client, worker = await daemon.relay(), await connect_worker(daemon)
    await submit(client, "task-0001", TASK)
    await claim(worker)
    big = {"command_id": "task-0001", "outcome": "completed", "result": bytes(2 * MIB)}
    assert await refused(daemon, worker, "finish", **big) == "too_large"
    assert await told(client, "task-0001") == ("in_flight", None)
    await finish(worker, "task-0001", result=bytes(2 * MIB - 200))


async def test_10000_queued_tasks_of_1_kib_keep_the_snapshot_below_its_bound_and_open_again(place):
    names = [f"task-{at:06}-{'x' * 24}" for at in range(10_001)]
    command = {"type": "task", "payload": bytes(1024)}
    async with inside(place) as daemon:
        client = await daemon.relay()
        answers = await many(client, names, command)
        assert {answer["re"] for answer in list(answers.values())[:-1]} == {"accepted"}
        assert answers[names[-1]]["code"] == "overloaded"
        await daemon.nobody_asks()
    snapshot = (place / "relays" / "a" / "snapshot").read_bytes()
    assert 10 * MIB < len(snapshot) < SNAPSHOT_MAX
    async with inside(place) as daemon:
        client, worker = await daemon.relay(), await connect_worker(daemon)
        status = await client.done("status", relay="a")
        assert (status["queued_count"], status["active"]) == (9_999, names[:1])
        assert status["queued"] == names[1:101]
        assert await claim(worker) == [(names[0], 1)]


async def test_who_waits_for_a_command_that_ends_with_more_than_are_remembered_is_told_and_nothing_breaks(place):
    """`clear_queue` ends 9,999 commands in one group, whose first are forgotten before it is over."""
    names = [f"task-{at:06}" for at in range(10_000)]
    async with inside(place) as daemon:
        client = await daemon.relay()
        await many(client, names, TASK)
        first = client.send("command", relay="a", command_id=names[1], wait_ms=60_000)
        last = client.send("command", relay="a", command_id=names[-1], wait_ms=60_000)
        count = len(events(daemon))
        await submit(client, "clear-001", {"type": "clear_queue"})
        assert (await client.answer(first))["code"] == "not_found"
        assert (await client.answer(last))["reason"] == "removed"
        found = events(daemon, count + 1)
        assert found[-1] == (
            "command.completed",
            "clear-001",
            {"type": "clear_queue", "result": {"removed": names[1:]}},
        )
        assert len(found) == 10_001
        assert not daemon.said("request_failed")


async def test_what_is_accepted_at_the_bound_of_the_state_leaves_room_for_all_that_can_end(place):
    """15 MiB less what 8,192 terminal ids and 1,024 producers may come to: the snapshot holds whatever follows."""
    notice = {"type": "notice", "text": "x"}
    async with inside(place) as daemon:
        client = await daemon.relay()
        big = {"type": "task", "payload": bytes(256 * 1024)}
        answers = await many(client, [f"{at:04}-{'b' * 123}" for at in range(64)], big)
        small = {"type": "task", "payload": bytes(1024)}
        answers |= await many(client, [f"{at:04}-{'s' * 123}" for at in range(300)], small)
        codes = [answer.get("code") or answer["re"] for answer in answers.values()]
        assert set(codes) == {"accepted", "overloaded"}
        assert codes[-1] == "overloaded"
        answers = await many(client, [f"{at:04}-{'n' * 123}" for at in range(8192)], notice)
        assert {answer["re"] for answer in answers.values()} == {"accepted"}
        await daemon.nobody_asks()
        assert not [line for line in daemon.logged if line["level"] in ("error", "exception", "warning")]
    snapshot = (place / "relays" / "a" / "snapshot").read_bytes()
    assert 12 * MIB < len(snapshot) < SNAPSHOT_MAX


@pytest.mark.parametrize("count", [3, 9])
async def test_commands_of_1_mib_are_handed_over_in_frames_that_fit(daemon, count):
    client, worker = await daemon.relay(max_active=10), await connect_worker(daemon)
    for at in range(count):
        await submit(client, f"task-000{at}", sized(MIB))
    found = []
    while len(found) < count:
        found += await claim(worker, 10)
    assert found == [(f"task-000{at}", 1) for at in range(count)]
