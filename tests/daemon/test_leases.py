"""Who holds a command, what becomes of it when that connection ends, and that nothing runs twice unasked."""

import errno

import pytest
import trio
from support.faults import Fail, Faults, named
from support.inside import inside
from support.lane_calls import AGAIN, SIDE, TASK, claim, events, finish, kinds, many, refused, submit, told
from support.lane_calls import worker as connect_worker
from trio.testing import wait_all_tasks_blocked

LEASE = 30


async def gone(worker):
    worker.stream.vanish()
    await wait_all_tasks_blocked()


async def test_while_its_connection_lives_nobody_else_is_handed_a_command(daemon):
    client, worker, same, other = await daemon.relay(), *[await connect_worker(daemon, one) for one in ("w", "w", "v")]
    await submit(client, "task-0001", AGAIN)
    await claim(worker)
    for one in (same, other, worker):
        assert await claim(one) == []
    await trio.sleep(10 * LEASE)
    assert await told(client, "task-0001") == ("in_flight", None)


async def test_the_identity_gets_back_what_it_lost_hold_of_first_and_counted_against_capacity(daemon):
    client, worker, other = await daemon.relay(max_active=4), *[await connect_worker(daemon, one) for one in ("w", "v")]
    for at in range(4):
        await submit(client, f"task-000{at}", AGAIN if at % 2 else TASK)
    assert await claim(other) == [("task-0000", 1)]
    assert await claim(worker, 2) == [("task-0001", 1), ("task-0002", 1)]
    await gone(worker)
    again = await connect_worker(daemon, "w")
    assert await claim(other, 0) == []
    assert await claim(again, 1) == [("task-0001", 2)]
    assert await claim(again, 9) == [("task-0002", 2), ("task-0003", 1)]
    assert events(daemon)[-2][2] == {"worker": "w", "delivery": 2}
    await finish(again, "task-0001")


async def test_another_identity_is_never_handed_an_orphan(daemon):
    client, worker = await daemon.relay(), await connect_worker(daemon, "w")
    await submit(client, "task-0001", AGAIN)
    await claim(worker)
    await gone(worker)
    other = await connect_worker(daemon, "v")
    assert await claim(other) == []
    assert await refused(daemon, other, "finish", command_id="task-0001", outcome="completed") == "forbidden"


async def test_a_claim_that_waits_under_the_same_identity_is_handed_the_orphan_at_once(daemon):
    client, worker, same = await daemon.relay(), *[await connect_worker(daemon, "w") for _ in range(2)]
    await submit(client, "task-0001", TASK)
    await claim(worker)
    waiting = same.send("claim", relay="a", capacity=1, wait_ms=60_000)
    await gone(worker)
    assert [one["delivery"] for one in (await same.answer(waiting))["commands"]] == [2]


@pytest.mark.parametrize(
    ("command", "then"),
    [
        (TASK, [("command.interrupted", {"type": "task", "reason": "lease_expired"})]),
        (AGAIN, [("command.requeued", {"reason": "lease_expired"}), ("command.started", None)]),
        (
            SIDE,
            [
                (
                    "command.completed",
                    {"type": "side_task", "reason": "lease_expired", "result": {"status": "interrupted"}},
                )
            ],
        ),
        (
            {"type": "configure", "key": "k", "value": 1},
            [("command.interrupted", {"type": "configure", "reason": "lease_expired"})],
        ),
    ],
    ids=["task", "requeue", "side_task", "configure"],
)
async def test_what_becomes_of_each_type_when_its_lease_runs_out_and_not_before(daemon, command, then):
    client, worker = await daemon.relay(), await connect_worker(daemon)
    await submit(client, "work-0001", command)
    await claim(worker)
    await gone(worker)
    await trio.sleep(LEASE - 0.01)
    assert len(events(daemon, 4)) == 0
    await trio.sleep(0.02)
    assert events(daemon, 4) == [(kind, "work-0001", data) for kind, data in then]
    assert (await client.done("status", relay="a")).get("config", {}) == {}


@pytest.mark.parametrize("command", [TASK, AGAIN, SIDE], ids=["task", "requeue", "side_task"])
async def test_one_whose_cancel_stands_is_rejected_when_its_lease_runs_out_and_never_repeated(daemon, command):
    client, worker = await daemon.relay(), await connect_worker(daemon)
    await submit(client, "work-0001", command)
    await claim(worker)
    await submit(client, "cancel-01", {"type": "cancel", "target": "work-0001"})
    await gone(worker)
    await trio.sleep(LEASE + 1)
    assert events(daemon, 5) == [
        ("command.rejected", "work-0001", {"type": command["type"], "reason": "cancelled"}),
        ("command.completed", "cancel-01", {"type": "cancel"}),
    ]


async def test_the_cancel_of_an_orphan_is_handed_over_with_it(daemon):
    client, worker = await daemon.relay(), await connect_worker(daemon)
    await submit(client, "task-0001", TASK)
    await claim(worker)
    await submit(client, "cancel-01", {"type": "cancel", "target": "task-0001"})
    assert await claim(worker, 0) == [("cancel-01", 1)]
    await gone(worker)
    await submit(client, "cancel-02", {"type": "cancel", "target": "task-0001"})
    again = await connect_worker(daemon)
    assert await claim(again, 0) == []
    assert await claim(again, 1) == [("cancel-01", 2), ("cancel-02", 1), ("task-0001", 2)]


async def test_leases_that_run_out_together_end_in_order_of_acceptance_and_requeued_ones_stand_before_the_rest(daemon):
    client, worker = await daemon.relay(max_active=3), await connect_worker(daemon)
    for name in ("zzzz-0001", "mmmm-0001", "aaaa-0001", "bbbb-0001"):
        await submit(client, name, AGAIN)
    await submit(client, "side-0001", SIDE)
    await claim(worker, 4)
    await submit(client, "begin-001", {"type": "begin_checkpoint"})
    count = len(events(daemon)) + 1
    await gone(worker)
    await trio.sleep(LEASE + 1)
    assert kinds(daemon, count)[:3] == ["requeued zzzz-0001", "requeued mmmm-0001", "requeued aaaa-0001"]
    assert kinds(daemon, count)[-2:] == ["completed side-0001", "ready begin-001"]
    status = await client.done("status", relay="a")
    assert status["queued"] == ["zzzz-0001", "mmmm-0001", "aaaa-0001", "bbbb-0001"]


# Openings


async def test_a_restart_ends_every_hold_and_gives_one_fresh_period(place):
    async with inside(place) as daemon:
        client, worker = await daemon.relay(max_active=2), await connect_worker(daemon)
        for at in range(3):
            await submit(client, f"task-000{at}", TASK)
        await claim(worker, 1)
        await trio.sleep(LEASE - 1)
    async with inside(place) as daemon:
        client, worker = await daemon.relay(), await connect_worker(daemon)
        status = await client.done("status", relay="a")
        assert (status["active"], status["queued"]) == (["task-0000", "task-0001"], ["task-0002"])
        await trio.sleep(LEASE - 1)
        assert await told(client, "task-0000") == ("in_flight", None)
        await trio.sleep(2)
        assert await told(client, "task-0000") == ("interrupted", "lease_expired")
        assert await told(client, "task-0002") == ("pending", None)


async def test_a_connection_that_lives_through_an_opening_keeps_what_it_holds(place):
    faults = Faults(None, named("sync active.log"))
    async with inside(place, faults=faults) as daemon:
        client, worker = await daemon.relay(), await connect_worker(daemon)
        await submit(client, "task-0001", AGAIN)
        await claim(worker)
        faults.count, faults.plan = 0, Fail(1, errno.EIO)
        assert (await client.refusal("record", relay="a", events=[["x"]]))[0] == "storage_failed"
        await trio.sleep(3 * LEASE)
        assert await claim(await connect_worker(daemon)) == []
        await finish(worker, "task-0001")


async def test_a_finish_that_the_disk_lost_is_sent_again_by_the_connection_that_still_holds_it(place):
    """The end was not durable, so nothing of it has happened: neither the end nor the loss of the hold."""
    faults = Faults(None, named("sync active.log"))
    async with inside(place, faults=faults) as daemon:
        client, worker = await daemon.relay(), await connect_worker(daemon)
        await submit(client, "task-0001", TASK)
        await claim(worker)
        faults.count, faults.plan = 0, Fail(1, errno.EIO)
        done = {"relay": "a", "command_id": "task-0001", "outcome": "completed"}
        assert (await worker.refusal("finish", **done))[:2] == ("storage_failed", True)
        assert "duplicate" not in await worker.done("finish", **done)


async def test_a_hand_over_that_the_disk_failed_to_record_is_nobodys(place):
    faults = Faults(None, named("sync active.log"))
    async with inside(place, faults=faults) as daemon:
        client, worker = await daemon.relay(), await connect_worker(daemon)
        await submit(client, "task-0001", TASK)
        faults.count, faults.plan = 0, Fail(1, errno.EIO)
        assert (await worker.refusal("claim", relay="a", capacity=1))[0] == "storage_failed"
        assert await told(client, "task-0001") == ("pending", None)
        assert await claim(worker) == [("task-0001", 1)]


async def test_a_hand_over_recorded_but_not_answered_is_orphaned_at_once(daemon):
    client, worker, same = await daemon.relay(), *[await connect_worker(daemon, "w") for _ in range(2)]
    waiting = worker.send("claim", relay="a", capacity=1, wait_ms=60_000)
    await wait_all_tasks_blocked()
    daemon.gate.hold("commit")
    client.send("submit", relay="a", command_id="task-0001", command=TASK)
    await wait_all_tasks_blocked()
    second = same.send("claim", relay="a", capacity=1, wait_ms=60_000)
    await worker.done("cancel_request", request=waiting)
    assert worker.answered(waiting)["code"] == "cancelled"
    daemon.gate.open()
    handed = (await same.answer(second))["commands"]
    assert [(one["command_id"], one["delivery"]) for one in handed] == [("task-0001", 2)]
    assert await refused(daemon, worker, "finish", command_id="task-0001", outcome="completed") == "forbidden"


async def test_a_claim_whose_connection_ended_before_the_relay_was_open_is_handed_nothing(place):
    async with inside(place) as daemon:
        await daemon.relay()
        await daemon.nobody_asks()
        daemon.gate.hold("open")
        worker = await connect_worker(daemon)
        worker.send("claim", relay="a", capacity=1, wait_ms=60_000)
        await wait_all_tasks_blocked()
        assert daemon.gate.reached, "the relay is being opened"
        await gone(worker)
        daemon.gate.open()
        client = await daemon.connect()
        await submit(client, "task-0001", TASK)
        assert await told(client, "task-0001") == ("pending", None)
        assert kinds(daemon) == ["queued task-0001", "started task-0001"]


async def test_a_claim_is_answered_only_when_the_hand_over_is_durable(daemon):
    client, worker = await daemon.relay(), await connect_worker(daemon)
    await submit(client, "task-0001", TASK)
    daemon.gate.hold("commit")
    request = worker.send("claim", relay="a", capacity=1)
    await wait_all_tasks_blocked()
    assert worker.answered(request) is None
    daemon.gate.open()
    assert (await worker.answer(request))["commands"]


async def test_two_thousand_commands_in_flight_are_all_handed_back_after_a_restart(place):
    names = [f"task-{at:06}" for at in range(2_000)]
    async with inside(place) as daemon:
        client, worker = await daemon.relay(max_active=10_000), await connect_worker(daemon)
        await many(client, names, AGAIN)
        assert await claim(worker, 10_000) == [(name, 1) for name in names]
    async with inside(place) as daemon:
        await daemon.relay()
        assert await claim(await connect_worker(daemon), 10_000) == [(name, 2) for name in names]
