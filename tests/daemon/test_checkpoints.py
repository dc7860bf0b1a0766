"""Checkpoints: the cut, each way that one ends, what is held meanwhile, and a relay closed at the exact cut."""

import errno

import pytest
import trio
from support.faults import Fail, Faults, named
from support.inside import inside
from support.lane_calls import (
    AGAIN,
    SIDE,
    TASK,
    claim,
    cursor,
    cut_of,
    events,
    finish,
    groups,
    kinds,
    refused,
    submit,
    told,
)
from support.lane_calls import worker as connect_worker
from trio.testing import wait_all_tasks_blocked

BARRIER = 600
BEGIN = {"type": "begin_checkpoint"}
COMPLETE = {"type": "complete_checkpoint", "barrier": "begin-001"}
RELEASE = {"type": "release_checkpoint", "barrier": "begin-001"}
NOTICE = {"type": "notice", "text": "x"}


def close(cut):
    return {"type": "close", "barrier": "begin-001", "cut": cut}


async def begun(client):
    """A checkpoint that is ready; its cut."""
    await submit(client, "begin-001", BEGIN)
    return await cut_of(client, "begin-001")


async def held(client, **fields):
    """A record that is held back; its request."""
    request = client.send("record", relay="a", **({"events": [["x", 1]]} | fields))
    await wait_all_tasks_blocked()
    assert client.answered(request) is None
    return request


async def test_a_checkpoint_waits_for_what_was_started_and_nothing_new_starts(daemon):
    client, worker = await daemon.relay(), await connect_worker(daemon)
    await submit(client, "task-0001", TASK)
    await submit(client, "side-0001", SIDE)
    await submit(client, "begin-001", BEGIN)
    for name, command in (("task-0002", TASK), ("side-0002", SIDE)):
        await submit(client, name, command)
    assert await claim(worker, 9) == [("task-0001", 1), ("side-0001", 1)], "pending ones are handed over still"
    waiting = client.send("command", relay="a", command_id="begin-001", wait_ms=60_000)
    await finish(worker, "task-0001")
    assert await told(client, "task-0002") == ("queued", None)
    ordinal = (await finish(worker, "side-0001"))["ordinal"]
    assert events(daemon, ordinal) == [("checkpoint.ready", "begin-001", {"barrier": "begin-001"})]
    cut = cursor(daemon, ordinal + 1)
    assert (await client.answer(waiting))["cut"] == cut
    status = await client.done("status", relay="a")
    assert status["barrier"] == {"command_id": "begin-001", "cut": cut}
    assert sorted(status["queued"]) == ["side-0002", "task-0002"]


async def test_completing_moves_the_floor_to_the_cut_and_work_goes_on(daemon):
    client = await daemon.relay()
    cut = await begun(client)
    await submit(client, "task-0001", TASK)
    ordinal = await submit(client, "complete1", COMPLETE)
    assert events(daemon, ordinal - 1) == [
        ("command.queued", "complete1", {"command": COMPLETE}),
        ("command.completed", "complete1", {"type": "complete_checkpoint", "result": {"floor": cut}}),
        ("command.completed", "begin-001", {"type": "begin_checkpoint", "result": {"cut": cut}}),
        ("command.started", "task-0001", None),
    ]
    assert groups(daemon)[-1] == (ordinal, 4)
    assert (await client.done("status", relay="a"))["floor"] == cut


async def test_releasing_leaves_the_floor_and_advance_floor_moves_it_up(daemon):
    client = await daemon.relay()
    cut = await begun(client)
    ordinal = await submit(client, "release-1", RELEASE)
    assert [(kind, name) for kind, name, _ in events(daemon, ordinal)] == [
        ("command.completed", "release-1"),
        ("command.completed", "begin-001"),
    ]
    assert "floor" not in await client.done("status", relay="a")
    ordinal = await submit(client, "floor-001", {"type": "advance_floor", "cursor": cut})
    assert events(daemon, ordinal)[0][2] == {"type": "advance_floor", "result": {"floor": cut}}
    assert (await client.done("status", relay="a"))["floor"] == cut


async def test_the_floor_moves_to_any_cursor_with_its_right_digest_and_nowhere_else(daemon):
    client = await daemon.relay()
    await client.done("record", relay="a", events=[["x", at] for at in range(5)])
    await submit(client, "floor-001", {"type": "advance_floor", "cursor": cursor(daemon, 4)})
    await submit(client, "floor-002", {"type": "advance_floor", "cursor": cursor(daemon, 4)})
    latest = (await client.done("status", relay="a"))["latest"]
    wrong = [
        cursor(daemon, 3),
        [4, bytes(16)],
        [latest[0], bytes(16)],
        [latest[0] + 1, latest[1]],
        [2**63, latest[1]],
        [0, bytes(16)],
    ]
    for at, one in enumerate(wrong):
        command = {"type": "advance_floor", "cursor": one}
        assert await refused(daemon, client, "submit", command_id=f"wrong-00{at}", command=command) == "invalid_state"
    await submit(client, "floor-003", {"type": "advance_floor", "cursor": latest})
    assert (await client.done("status", relay="a"))["floor"] == latest


async def test_one_checkpoint_at_a_time_and_only_a_ready_one_is_ended(daemon):
    client, worker = await daemon.relay(), await connect_worker(daemon)
    await submit(client, "task-0001", TASK)
    await claim(worker)
    await submit(client, "begin-001", BEGIN)
    assert (await client.done("submit", relay="a", command_id="begin-001", command=BEGIN))["duplicate"]
    cut = [4, bytes(16)]
    refusals = [
        (BEGIN, "invalid_state"),
        (COMPLETE, "invalid_state"),
        (RELEASE, "invalid_state"),
        (close(cut), "invalid_state"),
        (RELEASE | {"barrier": "task-0001"}, "invalid_state"),
        (RELEASE | {"barrier": "nobody-01"}, "not_found"),
        (COMPLETE | {"barrier": "nobody-01"}, "not_found"),
        (close(cut) | {"barrier": "nobody-01"}, "not_found"),
    ]
    for command, code in refusals:
        assert await refused(daemon, client, "submit", command_id="other-001", command=command) == code
    await finish(worker, "task-0001")
    await submit(client, "release-1", RELEASE)
    assert await refused(daemon, client, "submit", command_id="other-001", command=RELEASE) == "invalid_state"


# Ends that nobody asked for


@pytest.mark.parametrize("ready", [False, True], ids=["waiting", "ready"])
async def test_it_ends_with_its_owners_connection_and_a_repeat_gives_no_ownership(daemon, ready):
    client, owner, worker = await daemon.relay(), await daemon.connect(), await connect_worker(daemon)
    if not ready:
        await submit(client, "task-0001", AGAIN)
        await claim(worker)
    await submit(owner, "begin-001", BEGIN)
    await submit(client, "task-0002", TASK)
    repeater = await daemon.connect()
    await submit(repeater, "begin-001", BEGIN)
    repeater.stream.vanish()
    await wait_all_tasks_blocked()
    assert (await client.done("status", relay="a"))["barrier"]["command_id"] == "begin-001"
    owner.stream.vanish()
    await wait_all_tasks_blocked()
    assert await told(client, "begin-001") == ("interrupted", "owner_lost")
    assert await told(client, "task-0002") == ("pending" if ready else "queued", None)


@pytest.mark.parametrize("ready", [False, True], ids=["waiting", "ready"])
async def test_it_expires_so_long_after_its_acceptance(daemon, ready):
    client, worker = await daemon.relay(), await connect_worker(daemon)
    if not ready:
        await submit(client, "task-0001", TASK)
        await claim(worker)
    await submit(client, "begin-001", BEGIN)
    await trio.sleep(BARRIER / 2)
    if not ready:
        await finish(worker, "task-0001")
    await trio.sleep(BARRIER / 2 - 0.01)
    assert "barrier" in await client.done("status", relay="a")
    await trio.sleep(0.02)
    assert await told(client, "begin-001") == ("interrupted", "expired")


@pytest.mark.parametrize("ready", [False, True], ids=["waiting", "ready"])
async def test_a_cancel_rejects_it(daemon, ready):
    client, worker = await daemon.relay(), await connect_worker(daemon)
    if not ready:
        await submit(client, "task-0001", TASK)
        await claim(worker)
    await submit(client, "begin-001", BEGIN)
    request = await held(client) if ready else None
    count = len(events(daemon)) + 1
    await submit(client, "cancel-01", {"type": "cancel", "target": "begin-001"})
    assert await told(client, "begin-001") == ("rejected", "cancelled")
    first = ["x"] if ready else []
    assert kinds(daemon, count) == [*first, "queued cancel-01", "rejected begin-001", "completed cancel-01"]
    if ready:
        assert (await client.answer(request))["first"] == count + 1


async def test_an_opening_interrupts_it_whatever_its_cause(place):
    faults = Faults(None, named("sync active.log"))
    async with inside(place, faults=faults) as daemon:
        client = await daemon.relay()
        await begun(client)
        request = await held(client)
        faults.count, faults.plan = 0, Fail(1, errno.EIO)
        client.send("submit", relay="a", command_id="task-0001", command=TASK)
        assert (await client.answer(request))["code"] == "storage_failed"
        assert await told(client, "begin-001") == ("interrupted", "owner_lost")
        await submit(client, "begin-002", BEGIN)
    async with inside(place) as daemon:
        client = await daemon.relay()
        assert await told(client, "begin-002") == ("interrupted", "owner_lost")


async def test_after_a_restart_the_checkpoint_is_interrupted_before_the_queues_head_starts(place):
    async with inside(place) as daemon:
        client = await daemon.relay()
        await begun(client)
        await submit(client, "task-0001", TASK)
        count = len(events(daemon)) + 1
    async with inside(place) as daemon:
        await daemon.relay()
        assert kinds(daemon, count) == ["interrupted begin-001", "started task-0001"]
        assert groups(daemon)[-1] == (count + 1, 2)


async def test_one_whose_connection_ended_before_the_relay_was_open_has_lost_its_owner(place):
    async with inside(place) as daemon:
        await daemon.relay()
        await daemon.nobody_asks()
        daemon.gate.hold("open")
        owner = await daemon.connect()
        owner.send("submit", relay="a", command_id="begin-001", command=BEGIN)
        await wait_all_tasks_blocked()
        assert daemon.gate.reached, "the relay is being opened"
        owner.stream.vanish()
        await wait_all_tasks_blocked()
        daemon.gate.open()
        client = await daemon.connect()
        assert await told(client, "begin-001", wait_ms=1000) == ("interrupted", "owner_lost")


# Holding


@pytest.mark.parametrize("end", [COMPLETE, RELEASE], ids=["complete", "release"])
async def test_records_and_notices_are_held_and_recorded_in_order_when_it_ends(daemon, end):
    client, other = await daemon.relay(), await daemon.connect()
    cut = await begun(client)
    first = await held(client)
    second = other.send("submit", relay="a", command_id="notice-01", command=NOTICE)
    await wait_all_tasks_blocked()
    third = await held(client, events=[["y"], ["z"]])
    assert len(events(daemon, cut[0])) == 0
    ordinal = await submit(client, "ending-01", end)
    assert (await client.answer(first))["first"] == ordinal + 3
    assert (await other.answer(second))["ordinal"] == ordinal + 4
    assert (await client.answer(third))["through"][0] == ordinal + 7
    assert kinds(daemon, ordinal + 2) == ["x", "queued notice-01", "completed notice-01", "y", "z"]


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("task-0001", TASK),
        ("side-0001", SIDE),
        ("conf-0001", {"type": "configure", "key": "k", "value": 1}),
        ("clear-001", {"type": "clear_queue"}),
        ("remove-01", {"type": "remove_queued", "command_id": "nobody-01"}),
        ("floor-001", {"type": "advance_floor", "cursor": [0, bytes(16)]}),
    ],
)
async def test_anything_else_that_is_recorded_ends_the_hold_after_what_is_held(daemon, name, command):
    client = await daemon.relay()
    cut = await begun(client)
    request = await held(client)
    ordinal = await submit(client, name, command)
    assert (await client.answer(request))["first"] == cut[0] + 1
    assert ordinal == cut[0] + 2
    assert (await client.done("record", relay="a", events=[["y"]]))["first"] > ordinal, "nothing more is held"
    assert await refused(daemon, client, "submit", command_id="close-001", command=close(cut)) == "invalid_state"
    await submit(client, "complete1", COMPLETE)
    assert (await client.done("status", relay="a"))["floor"] == cut


async def test_a_refusal_ends_nothing(daemon):
    client = await daemon.relay()
    cut = await begun(client)
    request = await held(client)
    for command in (
        BEGIN,
        RELEASE | {"barrier": "nobody-01"},
        {"type": "cancel", "target": "nobody-01"},
        {"type": "no"},
    ):
        await refused(daemon, client, "submit", command_id="other-001", command=command)
    assert client.answered(request) is None
    await submit(client, "close-001", close(cut))
    assert (await client.answer(request))["code"] == "invalid_state"


async def test_later_requests_do_not_wait_but_for_those_that_ask_about_what_is_held(daemon):
    client = await daemon.relay()
    await begun(client)
    await held(client, producer="p", sequence=1)
    client.send("submit", relay="a", command_id="notice-01", command=NOTICE)
    waits = [
        client.send("record", relay="a", producer="p"),
        client.send("command", relay="a", command_id="notice-01"),
        client.send("submit", relay="a", command_id="notice-01", command=TASK),
    ]
    assert (await client.done("record", relay="a", producer="q"))["re"] == "recorded"
    assert (await client.done("command", relay="a", command_id="begin-001"))["cut"]
    assert (await client.done("status", relay="a"))["barrier"]
    assert (await client.done("attach", relay="a", after="earliest"))["count"]
    assert [client.answered(request) for request in waits] == [None] * 3
    await submit(client, "release-1", RELEASE)
    stands, asked, conflict = [await client.answer(request) for request in waits]
    assert stands["sequence"] == 1
    assert asked["state"] == "completed"
    assert conflict["code"] == "conflict"


async def test_a_record_wrong_by_its_schema_is_refused_at_once(daemon):
    client = await daemon.relay()
    await begun(client)
    assert await refused(daemon, client, "record", events=[["relay.x"]]) == "invalid_request"
    wrong = {"type": "notice", "text": " "}
    assert await refused(daemon, client, "submit", command_id="notice-01", command=wrong) == "invalid_request"


async def test_what_is_held_is_decided_when_it_is_recorded(daemon):
    client = await daemon.relay()
    await begun(client)
    answers = [client.send("record", relay="a", events=[["x"]], producer="p", sequence=at) for at in (5, 7, 6, 5)]
    await submit(client, "release-1", RELEASE)
    found = [await client.answer(request) for request in answers]
    assert [one.get("code") for one in found] == [None, "invalid_state", None, None]
    assert found[3]["duplicate"]


async def test_a_held_record_whose_connection_ends_is_recorded_and_cancel_request_takes_one_out(daemon):
    client, gone = await daemon.relay(), await daemon.connect()
    await begun(client)
    await held(gone, events=[["gone"]])
    taken = await held(client, events=[["taken"]])
    gone.stream.vanish()
    await client.done("cancel_request", request=taken)
    assert client.answered(taken)["code"] == "cancelled"
    ordinal = await submit(client, "release-1", RELEASE)
    assert kinds(daemon, ordinal + 2) == ["gone"]


async def test_what_asks_about_a_held_notice_waits_no_longer_when_that_is_taken_out(daemon):
    client = await daemon.relay()
    await begun(client)
    notice = client.send("submit", relay="a", command_id="notice-01", command=NOTICE)
    asks = client.send("command", relay="a", command_id="notice-01")
    record = await held(client, producer="p", sequence=1)
    stands = client.send("record", relay="a", producer="p")
    await wait_all_tasks_blocked()
    assert client.answered(asks) is None
    await client.done("cancel_request", request=notice)
    await client.done("cancel_request", request=record)
    assert client.answered(asks)["code"] == "not_found"
    assert "sequence" not in client.answered(stands)


async def test_past_the_in_flight_bounds_records_are_overloaded_and_the_connection_is_read_on(place):
    async with inside(place, in_flight=4) as daemon:
        client = await daemon.relay()
        await begun(client)
        requests = [await held(client, events=[["x", at]]) for at in range(4)]
        assert await refused(daemon, client, "record", events=[["x", 4]]) == "overloaded"
        assert (await client.done("status", relay="a"))["barrier"]
        await submit(client, "release-1", RELEASE)
        assert [(await client.answer(request))["re"] for request in requests] == ["recorded"] * 4


# Closing


async def test_close_seals_the_relay_at_the_cut_in_one_group(daemon):
    client, worker = await daemon.relay(), await connect_worker(daemon)
    await submit(client, "task-0000", TASK)
    await claim(worker)
    await submit(client, "begin-001", BEGIN)
    for name, command in (("task-0001", TASK), ("side-0001", SIDE)):
        await submit(client, name, command)
    await finish(worker, "task-0000")
    cut = await cut_of(client, "begin-001")
    claiming = worker.send("claim", relay="a", capacity=1, wait_ms=60_000)
    request = await held(client)
    ordinal = await submit(client, "close-001", close(cut))
    assert ordinal == cut[0] + 1
    assert events(daemon, cut[0]) == [
        ("command.queued", "close-001", {"command": close(cut)}),
        ("relay.closed", None, {"barrier": "begin-001", "cut": cut}),
        ("command.rejected", "task-0001", {"type": "task", "reason": "relay_closed"}),
        ("command.rejected", "side-0001", {"type": "side_task", "reason": "relay_closed"}),
        ("command.completed", "begin-001", {"type": "begin_checkpoint", "result": {"cut": cut}}),
        ("command.completed", "close-001", {"type": "close"}),
    ]
    assert groups(daemon)[-1] == (ordinal, 6)
    assert (await client.answer(request))["code"] == "invalid_state"
    assert (await worker.answer(claiming))["code"] == "invalid_state"


@pytest.mark.parametrize("again", [False, True], ids=["open", "opened again"])
async def test_a_closed_relay_refuses_what_is_new_repeats_first_answers_and_serves_what_reads_or_settles(place, again):
    async with inside(place) as daemon:
        client, worker = await daemon.relay(), await connect_worker(daemon)
        await submit(client, "task-0000", TASK)
        await claim(worker)
        await finish(worker, "task-0000", result=1)
        recorded = await client.done("record", relay="a", events=[["x"], ["y"]], producer="p", sequence=1)
        cut = await begun(client)
        await submit(client, "close-001", close(cut))
        if again:
            await daemon.nobody_asks()
            client, worker = await daemon.connect(), await connect_worker(daemon)
            await client.done("open", relay="a")
        new = [
            (client, "submit", {"command_id": "task-0009", "command": TASK}),
            (client, "submit", {"command_id": "notice-09", "command": NOTICE}),
            (client, "submit", {"command_id": "begin-009", "command": BEGIN}),
            (client, "submit", {"command_id": "cancel-09", "command": {"type": "cancel", "target": "nobody-01"}}),
            (client, "submit", {"command_id": "clear-009", "command": {"type": "clear_queue"}}),
            (client, "submit", {"command_id": "close-009", "command": close(cut)}),
            (client, "record", {"events": [["x"]]}),
            (client, "record", {"events": [["x"]], "producer": "p", "sequence": 3}),
            (client, "record", {"events": [["x"], ["z"]], "producer": "p", "sequence": 2}),
            (worker, "claim", {"capacity": 1}),
            (worker, "claim", {"capacity": 0, "wait_ms": 100}),
        ]
        for asker, op, fields in new:
            assert await refused(daemon, asker, op, **fields) == "invalid_state"
        for name, command in (("task-0000", TASK), ("close-001", close(cut)), ("begin-001", BEGIN)):
            assert (await client.done("submit", relay="a", command_id=name, command=command))["duplicate"]
        conflict = {"command_id": "task-0000", "command": AGAIN}
        assert await refused(daemon, client, "submit", **conflict) == "conflict"
        repeat = await client.done("record", relay="a", events=[["x"], ["y"]], producer="p", sequence=1)
        assert (repeat["duplicate"], repeat["through"]) == (True, recorded["through"])
        assert (await client.done("record", relay="a", producer="p"))["sequence"] == 2
        assert (await finish(worker, "task-0000", result=1))["duplicate"]
        status = await client.done("status", relay="a")
        assert (status["execution"], status.get("active", []), status.get("barrier")) == ("closed", [], None)
        assert (await client.done("acknowledge", relay="a", through=status["latest"]))["through"] == status["latest"]
        assert (await client.done("command", relay="a", command_id="task-0000"))["result"] == 1


async def test_a_close_with_another_cut_or_after_something_was_recorded_says_so_and_another_checkpoint_closes(daemon):
    client = await daemon.relay()
    cut = await begun(client)
    for wrong in ([cut[0], bytes(16)], [cut[0] - 1, cut[1]]):
        assert await refused(daemon, client, "submit", command_id="close-001", command=close(wrong)) == "invalid_state"
    await submit(client, "task-0001", TASK)
    refusal = await client.call("submit", relay="a", command_id="close-001", command=close(cut))
    assert "release the checkpoint" in refusal["message"]
    await submit(client, "release-1", RELEASE)
    await submit(client, "remove-01", {"type": "cancel", "target": "task-0001"})
    await submit(client, "begin-002", BEGIN)
    cut = await cut_of(client, "begin-002")
    await submit(client, "close-001", {"type": "close", "barrier": "begin-002", "cut": cut})


async def test_nobody_is_told_of_a_close_that_is_not_durable(place):
    """Neither the claim that waits, nor the record that is held; when the disk fails, the relay is not closed."""
    faults = Faults(None, named("sync active.log"))
    async with inside(place, faults=faults) as daemon:
        client, worker = await daemon.relay(), await connect_worker(daemon)
        cut = await begun(client)
        claiming = worker.send("claim", relay="a", capacity=1, wait_ms=60_000)
        request = await held(client)
        daemon.gate.hold("commit")
        closing = client.send("submit", relay="a", command_id="close-001", command=close(cut))
        await wait_all_tasks_blocked()
        assert not [*client.stream.answers, *worker.stream.answers]
        faults.count, faults.plan = 0, Fail(1, errno.EIO)
        daemon.gate.open()
        for asker, one in ((client, closing), (client, request), (worker, claiming)):
            assert (await asker.answer(one))["code"] == "storage_failed"
        assert (await client.done("status", relay="a"))["execution"] == "idle"
