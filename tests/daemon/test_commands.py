"""The types of commands, what each records, and every refusal, which records nothing."""

import pytest
import trio
from support.inside import inside
from support.lane_calls import AGAIN, SIDE, TASK, claim, events, finish, groups, kinds, refused, submit, told
from support.lane_calls import worker as connect_worker
from support.lane_choices import WRONG

NOBODY = "nobody-0001"


@pytest.mark.parametrize("command", WRONG, ids=repr)
async def test_a_wrong_command_is_invalid_request_and_writes_nothing(daemon, command):
    client = await daemon.relay()
    assert await refused(daemon, client, "submit", command_id="task-0001", command=command) == "invalid_request"


@pytest.mark.parametrize(
    "command_id", ["", "seven77", "a" * 129, "has space", "ümlauts-1", "dot.dot.1", 12345678, None]
)
async def test_a_command_id_has_8_to_128_of_its_alphabet(daemon, command_id):
    client = await daemon.relay()
    assert await refused(daemon, client, "submit", command_id=command_id, command=TASK) == "invalid_request"


@pytest.mark.parametrize("command_id", ["a" * 8, "Z" * 128, "09_-aZ__"])
async def test_a_command_id_at_its_bounds_is_accepted(daemon, command_id):
    client = await daemon.relay()
    assert await submit(client, command_id, TASK) == 2


async def test_a_task_is_queued_started_claimed_and_ends_each_by_an_event(daemon):
    client, worker = await daemon.relay(), await connect_worker(daemon)
    assert await submit(client, "task-0001", TASK) == 2
    assert await told(client, "task-0001") == ("pending", None)
    assert await claim(worker) == [("task-0001", 1)]
    assert await told(client, "task-0001") == ("in_flight", None)
    assert (await finish(worker, "task-0001", result={"n": 1}, message="well"))["ordinal"] == 5
    assert events(daemon) == [
        ("command.queued", "task-0001", {"command": TASK}),
        ("command.started", "task-0001", None),
        ("command.claimed", "task-0001", {"worker": "w1", "delivery": 1}),
        ("command.completed", "task-0001", {"type": "task", "message": "well", "result": {"n": 1}}),
    ]
    answer = await client.done("command", relay="a", command_id="task-0001")
    assert answer == {
        "re": "command", "id": answer["id"], "command_id": "task-0001", "type": "task", "state": "completed",
        "ordinal": 2, "terminal": 5, "message": "well", "result": {"n": 1},
    }  # fmt: skip


@pytest.mark.parametrize("outcome", ["rejected", "interrupted"])
async def test_what_a_worker_ends_without_completing_it_has_the_reason_by_worker(daemon, outcome):
    client, worker = await daemon.relay(), await connect_worker(daemon)
    await submit(client, "task-0001", AGAIN)
    await claim(worker)
    await finish(worker, "task-0001", outcome)
    assert events(daemon, 4) == [(f"command.{outcome}", "task-0001", {"type": "task", "reason": "by_worker"})]


async def test_completing_a_configure_sets_it_and_rejecting_one_does_not(daemon):
    client, worker = await daemon.relay(), await connect_worker(daemon)
    for at, (value, outcome) in enumerate([({"deep": [1]}, "completed"), ("other", "rejected")]):
        await submit(client, f"conf-000{at}", {"type": "configure", "key": "model", "value": value})
        await claim(worker)
        assert (await client.done("status", relay="a")).get("config", {}) == (
            {} if not at else {"model": {"deep": [1]}}
        )
        await finish(worker, f"conf-000{at}", outcome)
    assert (await client.done("status", relay="a"))["config"] == {"model": {"deep": [1]}}


async def test_max_active_tasks_are_started_and_a_started_configure_stops_the_queue(daemon):
    client, worker = await daemon.relay(max_active=2), await connect_worker(daemon)
    for name, command in [
        ("task-0001", TASK),
        ("conf-0001", {"type": "configure", "key": "k", "value": 1}),
        ("task-0002", TASK),
    ]:
        await submit(client, name, command)
    assert await claim(worker, 9) == [("task-0001", 1), ("conf-0001", 1)]
    await finish(worker, "task-0001")
    assert await told(client, "task-0002") == ("queued", None), "one could start, but a configure is started"
    await finish(worker, "conf-0001")
    assert await told(client, "task-0002") == ("pending", None)


async def test_four_side_tasks_run_beside_the_queue_and_a_later_task_waits_for_an_earlier_one(daemon):
    client, worker = await daemon.relay(max_active=3), await connect_worker(daemon)
    await submit(client, "task-0001", TASK)
    for at in range(5):
        await submit(client, f"side-000{at}", SIDE)
    await submit(client, "task-0002", TASK)
    status = await client.done("status", relay="a")
    assert sorted(status["active"]) == ["side-0000", "side-0001", "side-0002", "side-0003", "task-0001"]
    assert sorted(status["queued"]) == ["side-0004", "task-0002"]
    assert status["queued_count"] == 2
    assert await claim(worker, 3) == [("task-0001", 1), ("side-0000", 1), ("side-0001", 1)]
    assert await claim(worker, 9) == [("side-0002", 1), ("side-0003", 1)]
    for at in range(4):
        await finish(worker, f"side-000{at}")
        assert await told(client, "task-0002") == ("queued", None)
    assert await claim(worker, 9) == [("side-0004", 1)]
    await finish(worker, "side-0004")
    assert await told(client, "task-0002") == ("pending", None)


async def test_claims_follow_acceptance_never_ids_and_never_pass_capacity(daemon):
    client, worker = await daemon.relay(max_active=4), await connect_worker(daemon)
    for name in ("zzzz-0001", "aaaa-0001", "mmmm-0001", "bbbb-0001"):
        await submit(client, name, TASK)
    assert await claim(worker, 0) == []
    assert await claim(worker, 1) == [("zzzz-0001", 1)]
    assert await claim(worker, 2) == [("aaaa-0001", 1), ("mmmm-0001", 1)]


async def test_removing_ends_what_is_queued_in_one_group_and_nothing_else(daemon):
    client = await daemon.relay()
    for at in range(4):
        await submit(client, f"task-000{at}", TASK)
    for at in range(5):
        await submit(client, f"side-000{at}", SIDE)
    before = len(events(daemon)) + 1
    await submit(client, "remove-01", {"type": "remove_queued", "command_id": "task-0002"})
    for other in ("task-0000", "side-0004", NOBODY, "remove-01"):
        await submit(client, f"remove-{other}", {"type": "remove_queued", "command_id": other})
    await submit(client, "clear-001", {"type": "clear_queue"})
    rejected = {"type": "task", "reason": "removed"}
    found = events(daemon, before)
    assert found[:3] == [
        ("command.queued", "remove-01", {"command": {"type": "remove_queued", "command_id": "task-0002"}}),
        ("command.rejected", "task-0002", rejected),
        ("command.completed", "remove-01", {"type": "remove_queued", "result": {"removed": ["task-0002"]}}),
    ]
    assert [data["result"] for kind, _, data in found[3:11] if kind == "command.completed"] == 4 * [{"removed": []}]
    assert found[11:] == [
        ("command.queued", "clear-001", {"command": {"type": "clear_queue"}}),
        ("command.rejected", "task-0001", rejected),
        ("command.rejected", "task-0003", rejected),
        ("command.completed", "clear-001", {"type": "clear_queue", "result": {"removed": ["task-0001", "task-0003"]}}),
    ]
    assert groups(daemon)[-1] == (before + 12, 4)
    assert await told(client, "side-0004") == ("queued", None)


# Cancels


@pytest.mark.parametrize(
    ("command", "state"),
    [(TASK, "pending"), (SIDE, "pending"), ({"type": "configure", "key": "k", "value": 1}, "queued")],
)
async def test_a_cancel_of_what_no_worker_holds_ends_both_at_once_in_one_group(daemon, command, state):
    client = await daemon.relay()
    if state == "queued":
        await submit(client, "task-0001", TASK)
    await submit(client, "target-01", command)
    assert await told(client, "target-01") == (state, None)
    ordinal = await submit(client, "cancel-01", {"type": "cancel", "target": "target-01"})
    assert events(daemon, ordinal - 1) == [
        ("command.queued", "cancel-01", {"command": {"type": "cancel", "target": "target-01"}}),
        ("command.rejected", "target-01", {"type": command["type"], "reason": "cancelled"}),
        ("command.completed", "cancel-01", {"type": "cancel"}),
    ]
    assert groups(daemon)[-1] == (ordinal, 3)


async def test_cancels_go_to_the_holder_first_and_outside_capacity_and_end_with_their_target(daemon):
    client, worker, other = await daemon.relay(max_active=2), await connect_worker(daemon), await connect_worker(daemon)
    await submit(client, "task-0001", TASK)
    await submit(client, "task-0002", TASK)
    assert await claim(worker) == [("task-0001", 1)]
    for name in ("cancel-01", "cancel-02"):
        await submit(client, name, {"type": "cancel", "target": "task-0001"})
    assert await claim(other, 0) == [], "it goes to the connection that holds the target, not to the identity"
    assert await claim(worker, 1) == [("cancel-01", 1), ("cancel-02", 1), ("task-0002", 1)]
    assert await claim(worker, 1) == [], "once per connection"
    assert await told(client, "cancel-01") == ("in_flight", None)
    assert await refused(daemon, worker, "finish", command_id="cancel-01", outcome="completed") == "forbidden"
    ordinal = (await finish(worker, "task-0001", result=1))["ordinal"]
    assert events(daemon, ordinal - 1) == [
        ("command.completed", "task-0001", {"type": "task", "result": 1}),
        ("command.completed", "cancel-01", {"type": "cancel"}),
        ("command.completed", "cancel-02", {"type": "cancel"}),
    ]
    assert groups(daemon)[-1] == (ordinal, 3)


async def test_capacity_0_waits_for_cancels_alone(daemon):
    client, worker = await daemon.relay(max_active=2), await connect_worker(daemon)
    await submit(client, "task-0001", TASK)
    await claim(worker)
    waiting = worker.send("claim", relay="a", capacity=0, wait_ms=60_000)
    await submit(client, "task-0002", TASK)
    await trio.sleep(1)
    assert worker.answered(waiting) is None
    await submit(client, "cancel-01", {"type": "cancel", "target": "task-0001"})
    assert [one["command_id"] for one in (await worker.answer(waiting))["commands"]] == ["cancel-01"]


@pytest.mark.parametrize(
    ("target", "code"),
    [(NOBODY, "not_found"), ("cancel-00", "not_found"), ("ended-001", "invalid_state"), ("stands-01", "invalid_state")],
)
async def test_what_cannot_be_cancelled(daemon, target, code):
    client, worker = await daemon.relay(), await connect_worker(daemon)
    await submit(client, "ended-001", {"type": "notice", "text": "x"})
    await submit(client, "task-0001", TASK)
    await claim(worker)
    await submit(client, "stands-01", {"type": "cancel", "target": "task-0001"})
    command = {"type": "cancel", "target": target}
    assert await refused(daemon, client, "submit", command_id="cancel-00", command=command) == code


# Claim and finish


async def test_claim_without_a_worker_is_forbidden(daemon):
    client = await daemon.relay()
    await submit(client, "task-0001", TASK)
    assert await refused(daemon, client, "claim", capacity=1) == "forbidden"


async def test_finish_looks_at_a_terminal_command_first_whoever_asks(daemon):
    client, worker = await daemon.relay(), await connect_worker(daemon)
    await submit(client, "task-0001", TASK)
    await claim(worker)
    said = {"result": {"a": 1, "b": [1.5, None]}, "message": "m"}
    ordinal = (await finish(worker, "task-0001", **said))["ordinal"]
    for asker in (worker, client):
        again = await finish(asker, "task-0001", result={"b": [1.5, None], "a": 1}, message="m")
        assert (again["ordinal"], again["duplicate"]) == (ordinal, True)
    for other in ({"result": 1, "message": "m"}, {"message": "m"}, {"result": said["result"]}, {}):
        assert (
            await refused(daemon, client, "finish", command_id="task-0001", outcome="completed", **other) == "conflict"
        )
    assert await refused(daemon, client, "finish", command_id="task-0001", outcome="rejected", **said) == "conflict"


async def test_a_null_result_or_message_is_none_at_all(daemon):
    client, worker = await daemon.relay(), await connect_worker(daemon)
    await submit(client, "task-0001", TASK)
    await claim(worker)
    await finish(worker, "task-0001", result=None, message=None)
    assert events(daemon, 4) == [("command.completed", "task-0001", {"type": "task"})]
    assert (await finish(worker, "task-0001"))["duplicate"]


async def test_who_may_not_finish(daemon):
    client, worker, other = await daemon.relay(), await connect_worker(daemon), await connect_worker(daemon)
    for at in range(2):
        await submit(client, f"task-000{at}", TASK)
    await claim(worker)
    finishes = [
        (other, "task-0000", "forbidden"),
        (client, "task-0000", "forbidden"),
        (worker, "task-0001", "invalid_state"),
        (worker, NOBODY, "not_found"),
    ]
    for asker, name, code in finishes:
        assert await refused(daemon, asker, "finish", command_id=name, outcome="completed") == code


async def test_command_waits_for_the_end_and_times_out_without(daemon):
    client, worker = await daemon.relay(), await connect_worker(daemon)
    await submit(client, "task-0001", TASK)
    assert (await client.refusal("command", relay="a", command_id="task-0001", wait_ms=500))[:2] == ("timeout", True)
    waiting = client.send("command", relay="a", command_id="task-0001", wait_ms=60_000)
    await claim(worker)
    await finish(worker, "task-0001", result=7)
    assert (await client.answer(waiting))["result"] == 7
    assert await refused(daemon, client, "command", command_id=NOBODY, wait_ms=60_000) == "not_found"


async def test_a_notice_is_a_line_and_nothing_else(daemon):
    client = await daemon.relay()
    await submit(client, "notice-01", {"type": "notice", "text": "hello"})
    assert kinds(daemon) == ["queued notice-01", "completed notice-01"]
    assert groups(daemon)[-1] == (2, 2)


# Bounds


async def test_past_the_queue_work_is_overloaded_and_what_makes_room_is_not_refused(place):
    async with inside(place, queue=3) as daemon:
        client, worker = await daemon.relay(), await connect_worker(daemon)
        for at in range(3):
            await submit(client, f"task-000{at}", TASK)
        await claim(worker)
        for command in (TASK, SIDE, {"type": "configure", "key": "k", "value": 1}):
            assert await refused(daemon, client, "submit", command_id="more-0001", command=command) == "overloaded"
        assert (await client.done("submit", relay="a", command_id="task-0002", command=TASK))["duplicate"]
        for name, command in [
            ("notice-01", {"type": "notice", "text": "x"}),
            ("cancel-01", {"type": "cancel", "target": "task-0000"}),
            ("cancel-02", {"type": "cancel", "target": "task-0001"}),
            ("remove-01", {"type": "remove_queued", "command_id": "task-0002"}),
            ("clear-001", {"type": "clear_queue"}),
        ]:
            await submit(client, name, command)
        await submit(client, "task-0009", TASK)
