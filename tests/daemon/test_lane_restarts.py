"""A relay in the middle of its commands, opened by a daemon that dies or whose disk fails at any call: nothing twice.

After the opening the checkpoint is interrupted and what may start starts, as events like any other
(docs/reference/protocol.md, "Checkpoints" and "Leases"). However often that is cut off, each of it is recorded once.
"""

import errno

import msgspec
import pytest
import trio
from support import lane, oracle
from support.faults import Fail, Kill, changing, each_fault
from support.inside import inside

AFTER_OPENING = [
    ("command.interrupted", "begin-0001", {"type": "begin_checkpoint", "reason": "owner_lost"}),
    ("command.started", "side-wait-1", None),
]
HANDED = [
    ("command.claimed", "cancel-told", {"worker": "w2", "delivery": 2}),
    ("command.claimed", "cancel-open", {"worker": "w2", "delivery": 1}),
    ("command.claimed", "task-again1", {"worker": "w2", "delivery": 3}),
    ("command.claimed", "side-fly-01", {"worker": "w2", "delivery": 4}),
    ("command.claimed", "task-pend-1", {"worker": "w2", "delivery": 1}),
    ("command.claimed", "side-wait-1", {"worker": "w2", "delivery": 1}),
]
ENDS = {
    "task-again1": ("rejected", "cancelled"),
    "side-fly-01": ("rejected", "cancelled"),
    "cancel-told": ("completed", None),
    "cancel-open": ("completed", None),
    "task-pend-1": ("interrupted", "lease_expired"),
    "side-wait-1": ("completed", "lease_expired"),
    "begin-0001": ("interrupted", "owner_lost"),
}
"""What became of everything when w2 has taken all it can get, and is gone for good."""


def prepared(place):
    """SCENE on disk: of the last group nobody knows whether it is synced."""
    relay = place / "relays" / "a"
    (relay / "journal").mkdir(parents=True)
    whole = lane.segment(lane.SCENE)
    (relay / "journal" / "active.log").write_bytes(whole)
    (relay / "watermark").write_bytes(oracle.watermark(oracle.SEGMENT, len(lane.segment(lane.SCENE[:-1]))))
    return place


def events(place) -> list[tuple]:
    """Everything behind SCENE as the files have it: kind, command, data."""
    found = oracle.read_journal(place / "relays" / "a" / "journal")
    assert list(found) == list(range(1, len(found) + 1))
    assert [found[at] for at in range(1, len(lane.SCENE) + 1)] == lane.SCENE
    said = [msgspec.msgpack.decode(found[at]) for at in range(len(lane.SCENE) + 1, len(found) + 1)]
    return [(event[1], event[3], event[2]) for event in said]


async def opened(daemon):
    """Waits, as a client does, until the relay is served and what follows an opening is recorded."""
    client = await daemon.connect()
    for _ in range(200):
        answer = await client.call("status", relay="a")
        if answer["re"] == "status" and "barrier" not in answer and not answer.get("trouble"):
            return answer
        if answer["re"] == "error":
            await client.call("open", relay="a")
        await trio.sleep(1)
    raise AssertionError(f"it is never served: {answer}")


async def work(daemon):
    """One worker takes everything, and goes away for good."""
    worker = daemon.connect_silent()
    await worker.done("hello", versions=[1], client="w", worker="w2")
    handed = await patiently(worker, "claim", capacity=9)
    worker.stream.vanish()
    await all_ended(daemon)
    return [(one["command_id"], one["delivery"]) for one in handed["commands"]]


async def patiently(client, op, **fields):
    """The answer, after refusals that passing trouble of the disk explains."""
    for _ in range(200):
        answer = await client.call(op, relay="a", **fields)
        if answer["re"] != "error":
            return answer
        assert answer["retryable"], answer
        await trio.sleep(1)
    raise AssertionError(f"it is never answered: {answer}")


async def all_ended(daemon):
    """Leases run out; whatever the disk does meanwhile, it all ends as it has to."""
    client = await daemon.connect()
    for _ in range(10):
        await trio.sleep(31)
        told = {name: await patiently(client, "command", command_id=name) for name in ENDS}
        if all(one["state"] in ("completed", "rejected", "interrupted") for one in told.values()):
            break
    assert {name: (one["state"], one.get("reason")) for name, one in told.items()} == ENDS


async def test_what_follows_an_opening_is_recorded_in_this_order_and_once(tmp_path):
    place = prepared(tmp_path)
    for _ in range(3):
        async with inside(place) as daemon:
            status = await opened(daemon)
            assert status["active"] == ["side-fly-01", "task-again1", "task-pend-1", "side-wait-1"]
    assert events(place) == AFTER_OPENING
    async with inside(place) as daemon:
        assert await work(daemon) == [(name, data["delivery"]) for _, name, data in HANDED]
    assert events(place)[:8] == AFTER_OPENING + HANDED


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_killed_at_every_call_of_the_opening_and_what_follows_it_each_event_is_recorded_once(tmp_path, after):
    runs = 0
    for faults in each_fault(lambda n: Kill(n, after=after), changing):
        runs += 1
        place = prepared(tmp_path / str(runs))
        try:
            async with inside(place, faults=faults) as daemon:
                await opened(daemon)
                await trio.sleep(10)
        except BaseException:
            if not faults.dead:
                raise
        assert events(place) in ([], AFTER_OPENING), "one group: all of it or nothing"
        async with inside(place) as daemon:
            await opened(daemon)
            assert events(place) == AFTER_OPENING
            await work(daemon)
    assert runs > 15


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
@pytest.mark.parametrize("after", [False, True], ids=["without effect", "with effect"])
async def test_whichever_call_fails_each_event_is_recorded_once_and_work_goes_on(tmp_path, code, after):
    runs = 0
    for faults in each_fault(lambda n: Fail(n, code, after=after), changing):
        runs += 1
        place = prepared(tmp_path / str(runs))
        async with inside(place, faults=faults) as daemon:
            await opened(daemon)
            found = events(place)
            assert found == AFTER_OPENING
            await work(daemon)
        assert events(place)[:2] == AFTER_OPENING
        assert [one for one in events(place) if one[:2] == AFTER_OPENING[0][:2]] == AFTER_OPENING[:1]
    assert runs > 15


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_killed_at_every_call_while_it_works_no_command_ends_twice(tmp_path, after):
    """Hand-overs, leases that run out, ends with their cancels: each terminal event once, whatever was cut off."""
    runs = 0
    for faults in each_fault(lambda n: Kill(n, after=after), changing):
        runs += 1
        place = prepared(tmp_path / str(runs))
        try:
            async with inside(place, faults=faults) as daemon:
                await opened(daemon)
                await work(daemon)
        except BaseException:
            if not faults.dead:
                raise
        async with inside(place) as daemon:
            await opened(daemon)
            await trio.sleep(31)
            worker = daemon.connect_silent()
            await worker.done("hello", versions=[1], client="w", worker="w2")
            await worker.done("claim", relay="a", capacity=9)
            worker.stream.vanish()
            await all_ended(daemon)
        ends = [
            name
            for kind, name, _ in events(place)
            if kind.removeprefix("command.") in ("completed", "rejected", "interrupted")
        ]
        assert len(ends) == len(set(ends))
        assert set(ENDS) <= set(ends)
    assert runs > 20
