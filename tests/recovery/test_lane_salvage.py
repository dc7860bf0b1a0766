"""Salvage of a relay in the middle of its commands: each that had not ended at the end of the prefix is interrupted."""

import contextlib
import os
import shutil

import msgspec
import pytest
from support import lane, oracle
from support.faults import Kill, Killed, changing, each_fault
from support.inside import inside, run_virtually
from support.relays import RelayDisk, framed, seen

from relayd.journal.real_storage import open_state_directory
from relayd.recovery.salvage import salvage_relay
from relayd.recovery.salvage_steps import Means

SCENE = lane.SCENE
LAST = len(SCENE)
BEHIND = [lane.queued("task-lost-1", type="task"), lane.ended("completed", "task-again1"), lane.started("task-wait-1")]
"""Three events that a damaged group holds, and one intact group behind it."""
INTACT = [lane.queued("task-lost-2", type="task")]
LOST = LAST + len(BEHIND) + len(INTACT)
NOW_MS = 7000


@pytest.fixture(autouse=True)
def _no_syncs(monkeypatch):
    for call in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, call, lambda _: None)


def damaged(root, bodies=SCENE) -> RelayDisk:
    """`bodies`, a group in which a byte of the first record is another one, and a whole group."""
    content = lane.segment(bodies)
    bad = bytearray(oracle.group(len(content), len(bodies) + 1, BEHIND))
    for at in (70, 64 + 28 + len(BEHIND[0]) + 40, 64 + 56 + len(BEHIND[0]) + len(BEHIND[1]) + 40):
        bad[at] ^= 0x55
    content += bad
    content += oracle.group(len(content), len(bodies) + len(BEHIND) + 1, INTACT)
    return RelayDisk(root).active(content, len(content))


def run(disk: RelayDisk, faults=None, rescued=None):
    with contextlib.closing(open_state_directory(str(disk.path))) as relay:
        means = Means(
            rescued, lambda cursor, body: b"%d %s" % (cursor.ordinal, body.kind.encode()), disk.new_id, NOW_MS
        )
        return salvage_relay(relay if faults is None else faults.wrap(relay), "demo", means, tail=False)


def fresh_group(disk: RelayDisk) -> tuple[int, list]:
    """The first ordinal of active.log, and its events; all are in one group."""
    content = (disk.journal / "active.log").read_bytes()
    bodies = oracle.read_segment(content)[1]
    assert content.count(b"RLYG") == 1
    return min(bodies), [msgspec.msgpack.decode(body) for _, body in sorted(bodies.items())]


def interrupted(at: int, name: str) -> list:
    """What is remembered of one that salvage ended at ordinal `at`."""
    return lane.terminal(name, "interrupted", at, "lost")


def expected_lane(ends: dict[str, int]) -> dict:
    """The lane when all that lived has been interrupted, in this order, at these ordinals."""
    ended = lane.ENDED | {name: interrupted(at, name) for name, at in ends.items()}
    return {"ended": ended, "config": lane.CONFIG, "live_bytes": lane.live_bytes(lane.CONFIG)}


def prove_salvaged(disk: RelayDisk) -> None:
    first, events = fresh_group(disk)
    assert first == LOST + 1
    assert events[0][:3] == [NOW_MS, "relay.lost", {"first": LAST + 1, "last": LOST, "reason": "damaged"}]
    types = {name: lane.COMMANDS[name][1]["type"] for name in lane.LIVE}
    said = {event[3]: event[:3] for event in events[1:]}
    assert said == {
        name: [NOW_MS, "command.interrupted", {"type": kind, "reason": "lost"}] for name, kind in types.items()
    }
    assert len(events) == 1 + len(lane.LIVE)
    opened = disk.look()
    ends = {event[3]: first + at for at, event in enumerate(events) if at}
    last = oracle.record(
        first + len(events) - 1, oracle.read_segment(disk.tree()["journal/active.log"])[1][max(ends.values())]
    )
    state = lane.state(
        expected_lane(ends), frontier=[max(ends.values()), last[12:28]], execution_since=NOW_MS, last_event_at=NOW_MS
    )
    assert seen(opened) == state
    assert list(seen(opened)["lane"]["ended"]) == [*lane.ENDED, *ends], "remembered in the order of their ends"


def test_everything_that_had_not_ended_is_interrupted_in_the_group_of_relay_lost(tmp_path):
    disk = damaged(tmp_path)
    disk.refused("journal_corrupt")
    rescued = tmp_path / "rescued"
    report = run(disk, rescued=str(rescued))
    assert (report.lost, report.refusal, report.rescued_events) == ((LAST + 1, LOST), None, 1)
    assert rescued.read_bytes() == b"%d command.queued\n" % LOST
    prove_salvaged(disk)
    assert not run(disk, rescued=str(rescued)).changed


@pytest.mark.parametrize("count", [20, LAST])
def test_so_it_is_from_a_snapshot_in_the_prefix(tmp_path, count):
    before = RelayDisk(tmp_path / "before").active(lane.segment(SCENE[:count])).look()
    disk = damaged(tmp_path / "it")
    said = seen(before)
    whole = {"format": 1, "relay": "demo", "store": oracle.STORE, "frontier": said["frontier"], "base": [0, bytes(16)]}
    disk.put(snapshot=framed(b"RLYSNAP1", whole | {"state": said}))
    run(disk)
    prove_salvaged(disk)


def test_a_checkpoint_whose_cut_is_ready_is_interrupted_too(tmp_path):
    bodies = [lane.CREATED, lane.queued("begin-0001", type="begin_checkpoint"), lane.ready("begin-0001")]
    bodies.append(lane.queued("task-wait-1", type="task", payload=b"raw"))
    content = lane.segment(bodies)
    bad = bytearray(oracle.group(len(content), 5, [BEHIND[0]]))
    bad[70] ^= 0x55
    content += bytes(bad)
    disk = RelayDisk(tmp_path).active(content, len(content))
    assert run(disk).lost == (5, 5)
    first, events = fresh_group(disk)
    assert [event[1:] for event in events][1:] == [
        ["command.interrupted", {"type": "task", "reason": "lost"}, "task-wait-1"],
        ["command.interrupted", {"type": "begin_checkpoint", "reason": "lost"}, "begin-0001"],
    ]
    lived = seen(disk.look())["lane"]
    assert (lived.keys(), lived.get("live_bytes", 0)) == ({"ended"}, 0)
    assert [each[4] for each in lived["ended"].values()] == [first + 1, first + 2]


def test_an_event_that_cannot_follow_is_where_the_prefix_ends(tmp_path):
    bodies = [*SCENE, lane.claimed("task-none-1", "w1"), *INTACT]
    disk = RelayDisk(tmp_path).active(lane.segment(bodies), len(lane.segment(bodies)))
    disk.refused("journal_corrupt")
    report = run(disk)
    assert report.lost == (LAST + 1, LAST + 2)
    first, events = fresh_group(disk)
    assert {event[3] for event in events[1:]} == set(lane.LIVE)
    assert disk.look().state.lane.live_count == 0
    assert first == LAST + 3


def test_killed_at_every_call_it_is_run_again_and_ends_the_same(tmp_path):
    outcomes = set()
    number = 0
    for number, faults in enumerate(each_fault(lambda n: Kill(n, after=True), changing), 1):
        disk = damaged(tmp_path / str(number))
        with contextlib.suppress(Killed):
            run(disk, faults)
        assert run(disk).refusal is None
        prove_salvaged(disk)
        tree = disk.tree()
        kept = tuple(
            sorted((name, data) for name, data in tree.items() if name.startswith("journal/") and ".log.zst" in name)
        )
        outcomes.add(kept)
        shutil.rmtree(tmp_path / str(number))
    assert number > 10
    assert len(outcomes) == 1


def test_everything_behind_a_seed_is_lost_and_its_queue_is_interrupted(tmp_path):
    """The queue that only the seed tells is not forgotten with the journal."""
    command = lane.COMMANDS["task-wait-1"][1]
    seed = {"frontier": [40, b"s" * 16], "commands": [["task-wait-1", 24, command]], "config": {}, "terminal_ids": []}
    seed = framed(b"RLYSNAP1", seed | {"producers": {}})
    digest = oracle.hashlib.blake2b(seed, digest_size=32).digest()
    data = {"store": oracle.STORE, "seed": digest, "retention": "checkpointed", "max_active": 1}
    content = oracle.segment_of([[msgspec.msgpack.encode([5000, "relay.restored", data])]], first=41)
    bad = bytearray(content)
    bad[48 + 64 + 40] ^= 0x55
    disk = RelayDisk(tmp_path).active(bytes(bad), len(bad)).put(seed=seed)
    disk.refused("journal_corrupt")
    assert run(disk).lost == (41, 41)
    first, events = fresh_group(disk)
    assert (first, [event[1] for event in events]) == (42, ["relay.lost", "command.interrupted"])
    opened = disk.look()
    assert seen(opened)["lane"]["ended"] == {
        "task-wait-1": ["task", lane.canonical_digest(command), 24, "interrupted", 43,
                        lane.canonical_digest({"outcome": "interrupted"}), "lost"]
    }  # fmt: skip


def test_the_daemon_goes_on_with_a_salvaged_relay(tmp_path):
    """Ids are remembered as interrupted (lost), and new work is taken on."""
    disk = damaged(tmp_path / "state")
    run(disk)

    async def main():
        async with inside(tmp_path / "state") as daemon:
            client, worker = await daemon.connect(), daemon.connect_silent()
            await worker.done("hello", versions=[1], client="w", worker="w2")
            status = await client.done("status", relay="demo")
            assert (status["execution"], status.get("active"), status.get("queued"), status.get("barrier")) == (
                "idle", None, None, None,
            )  # fmt: skip
            for name in lane.LIVE:
                told = await client.done("command", relay="demo", command_id=name)
                assert (told["state"], told["reason"]) == ("interrupted", "lost")
                repeat = await client.done("submit", relay="demo", command_id=name, command=lane.COMMANDS[name][1])
                assert repeat["duplicate"]
            assert (await worker.done("claim", relay="demo", capacity=9))["commands"] == []
            await client.done("submit", relay="demo", command_id="begin-0009", command={"type": "begin_checkpoint"})
            await client.done("submit", relay="demo", command_id="task-lost-1", command={"type": "task"})
            assert (await client.done("status", relay="demo"))["barrier"]["cut"]

    run_virtually(main)
