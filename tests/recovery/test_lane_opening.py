"""A relay with commands opens to the same state from whatever it starts, and refuses what cannot follow."""

import contextlib
import errno

import msgspec
import pytest
from support import lane
from support.faults import Fail, Faults, Kill, Killed, changing, each_fault
from support.relays import RelayDisk, append, close, framed, pack, seen

from relayd.recovery.cat import StoredEvent, iter_path
from relayd.recovery.refusal import OpeningError
from relayd.recovery.verify import verify_path
from relayd.relay.state import encode_state

SCENE = lane.SCENE
LAST = len(SCENE)
AFTER = lane.queued("task-late-1", type="task")


@pytest.fixture
def disk(tmp_path):
    return RelayDisk(tmp_path).active(lane.segment(SCENE))


def snapshot(said: dict) -> bytes:
    whole = {"format": 1, "relay": "demo", "store": said["store"], "frontier": said["frontier"], "base": [0, bytes(16)]}
    return framed(b"RLYSNAP1", whole | {"state": said})


def encoded_at(tmp_path, count: int) -> bytes:
    """The state that the first `count` events add up to, encoded."""
    return encode_state(RelayDisk(tmp_path / f"at-{count}").active(lane.segment(SCENE[:count])).look().state)


def test_the_fold_is_what_the_tables_say(disk):
    assert seen(disk.look()) == lane.state()


def test_from_snapshot_from_the_previous_one_and_from_nothing_it_is_the_same_state(disk):
    from_nothing = disk.open()
    assert from_nothing.report.source == "nothing"
    close(from_nothing)
    expected = encode_state(from_nothing.state)
    kept = disk.tree()
    from_snapshot = disk.look()
    assert (from_snapshot.report.source, encode_state(from_snapshot.state)) == ("snapshot", expected)
    assert msgspec.msgpack.decode((disk.path / "snapshot").read_bytes()[48:])["state"] == lane.state()

    disk.restore(kept)
    (disk.path / "snapshot").rename(disk.path / "snapshot.previous")
    disk.put(snapshot=b"damaged")
    from_previous = disk.look()
    assert (from_previous.report.source, encode_state(from_previous.state)) == ("snapshot.previous", expected)


@pytest.mark.parametrize("count", range(1, LAST))
def test_from_a_snapshot_at_each_event_the_rest_folds_to_the_same_state(disk, tmp_path, count):
    said = msgspec.msgpack.decode(encoded_at(tmp_path, count))
    disk.put(snapshot=snapshot(said))
    opened = disk.look()
    assert (opened.report.source, opened.report.folded_events) == ("snapshot", LAST - count)
    assert encode_state(opened.state) == encoded_at(tmp_path, LAST)


def test_a_snapshot_that_an_earlier_version_wrote_has_no_commands_and_opens(disk):
    """Its state has no `lane`."""
    said = lane.state({}, SCENE[:1], execution_since=1000)
    del said["lane"]
    disk.put(snapshot=snapshot(said))
    opened = disk.look()
    assert (opened.report.source, seen(opened)) == ("snapshot", lane.state())


@pytest.mark.parametrize(
    "kind", ["command.paused", "checkpoint.moved", "relay.renamed", "surface.shown", "reply.given", "edits.asked"]
)
def test_a_kind_of_a_later_version_refuses_and_is_named(tmp_path, kind):
    later = pack([3000, kind, {"x": 1}, "task-wait-1"])
    disk = RelayDisk(tmp_path).active(lane.segment([*SCENE, later]))
    refused = disk.refused("later_format")
    assert f"ordinal {LAST + 1} is a `{kind}`" in str(refused)


CANNOT_FOLLOW = {
    "claimed, of an id that nobody knows": lane.claimed("task-none-1", "w1"),
    "claimed, not started": lane.claimed("task-wait-1", "w1"),
    "claimed, of one that ended": lane.claimed("task-done-1", "w1"),
    "claimed, of a checkpoint": lane.claimed("begin-0001", "w1"),
    "claimed, of no command": pack([1, "command.claimed", {"worker": "w", "delivery": 1}]),
    "queued, a second time": lane.queued("task-wait-1", type="task", payload=b"raw"),
    "queued, though it ended": lane.queued("task-done-1", type="task"),
    "queued, of no type": lane.queued("task-none-1", type="unheard_of"),
    "queued, that is no command": pack([1, "command.queued", {"command": 7}, "task-none-1"]),
    "started, of nobody": lane.started("task-none-1"),
    "started, twice": lane.started("task-pend-1"),
    "requeued, of one that waits": lane.requeued("task-wait-1"),
    "requeued, not handed over": lane.requeued("task-pend-1"),
    "completed, of nobody": lane.ended("completed", "task-none-1"),
    "rejected, twice": lane.ended("rejected", "task-done-1"),
    "interrupted, without its type": pack([1, "command.interrupted", {"reason": "lost"}, "task-wait-1"]),
    "ready, of another checkpoint": lane.ready("begin-none"),
}


@pytest.mark.parametrize("body", CANNOT_FOLLOW.values(), ids=CANNOT_FOLLOW)
def test_an_event_that_cannot_follow_is_corrupt_and_named_and_nothing_changes(tmp_path, body):
    disk = RelayDisk(tmp_path).active(lane.segment([*SCENE, body, AFTER]))
    refused = disk.refused("journal_corrupt")
    kind = msgspec.msgpack.decode(body)[1]
    assert f"ordinal {LAST + 1} is a `{kind}`" in str(refused)
    assert refused.detail.file.endswith("active.log")


def test_a_second_begin_checkpoint_cannot_follow_while_one_is_made(tmp_path):
    """One at a time: the first would be forgotten, and never end."""
    disk = RelayDisk(tmp_path).active(lane.segment([*SCENE, lane.queued("begin-0002", type="begin_checkpoint")]))
    assert f"ordinal {LAST + 1}" in str(disk.refused("journal_corrupt"))


def test_cat_and_verify_read_a_journal_of_commands(disk):
    close(disk.open())
    before = disk.tree()
    for below in (disk.path, disk.journal, disk.journal / "active.log"):
        shown = [one for one in iter_path(str(below)) if isinstance(one, StoredEvent)]
        assert [(one.cursor.ordinal, one.stored) for one in shown] == list(enumerate(SCENE, 1))
        report = verify_path(str(below))
        assert (report.findings, report.damaged, report.records) == ((), False, LAST)
    assert disk.tree() == before


# The writing half under faults, as test_opening_faults.py has it, with commands


TORN = lane.oracle.group(len(lane.segment(SCENE)), LAST + 1, [AFTER, lane.started("task-wait-1")])[:-1]


@pytest.fixture
def scene(tmp_path):
    """Torn bytes of a group of commands behind SCENE, a bad snapshot, and one in the middle."""
    said = msgspec.msgpack.decode(encoded_at(tmp_path, 20))
    disk = RelayDisk(tmp_path).active(lane.segment(SCENE) + TORN, len(lane.segment(SCENE)))
    disk.put(snapshot=b"bad", snapshot_previous=snapshot(said))
    return disk, disk.tree()


def prove_open(disk: RelayDisk, synced=None) -> None:
    """It opens to SCENE's state, goes on, and the snapshot says the same."""
    opened = disk.open(synced=synced)
    assert seen(opened) == lane.state()
    append(opened, AFTER)
    close(opened)
    again = disk.look()
    assert list(again.state.lane.queue) == ["task-wait-1", "conf-wait-1", "task-late-1"]
    assert disk.snapshots()[0]["state"] == seen(again)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_at_every_call_it_opens_to_the_same_commands(scene, after):
    disk, tree = scene
    number = 0
    for faults in each_fault(lambda n: Kill(n, after=after), changing):
        number += 1
        disk.restore(tree)
        with contextlib.suppress(Killed):
            close(disk.open(faults))
        prove_open(disk)
    assert number > 20


def attempt(disk: RelayDisk, faults: Faults) -> OpeningError | None:
    """Opens under faults and closes; the refusal, where that is what came of it."""
    try:
        close(disk.open(faults))
    except OpeningError as refused:
        return refused
    return None


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
def test_an_error_at_every_call_costs_no_command(scene, code):
    disk, tree = scene
    for faults in each_fault(lambda n: Fail(n, code), changing):
        disk.restore(tree)
        refused = attempt(disk, faults)
        assert refused is None or refused.reason == "storage_failed"
        prove_open(disk, None if refused is None else refused.synced)


def test_a_kill_while_opening_after_a_kill(scene):
    disk, tree = scene
    for faults in each_fault(lambda n: Kill(2 * n, after=True), changing):
        disk.restore(tree)
        for again in (faults, Faults(Kill(faults.plan.n // 2 + 1), changing)):
            with contextlib.suppress(Killed):
                close(disk.open(again))
        prove_open(disk)
