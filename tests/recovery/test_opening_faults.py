"""The writing half under faults: killed, failed or out of room at any call, it opens again to the same state."""

import contextlib
import errno
from collections.abc import Callable, Iterator

import pytest
from support import oracle
from support.faults import READS, Call, Fail, Faults, Kill, Killed, changing, each_fault, named
from support.relays import (
    OTHER_SEGMENT,
    RelayDisk,
    acknowledged,
    append,
    close,
    ends,
    event,
    name,
    sealed,
    seen,
    segment,
    snapshot,
    state,
)

from relayd.journal.active import SyncedEnd
from relayd.recovery.refusal import OpeningError

COUNTS = (1, 2, 1)
WHOLE = segment(*COUNTS)
HEADER, FIRST, SECOND, LAST = (each.end for each in ends(*COUNTS))
TORN = oracle.group(LAST, 5, [event(5, 30)])[:-1]
ACTIVE_AFTER = segment(1, first=8, segment=OTHER_SEGMENT)
FAILED_GROUP = oracle.group(LAST, 5, [event(5)])


def busy(disk: RelayDisk) -> int:
    """Something for each step to do: torn bytes, zeros, two bad files, a copy that is the same and one that is not."""
    disk.put_segments(
        {name(1, 3): segment(3, segment=b"a" * 16), name(1, 3, ".log.zst"): sealed(1, 3, segment=b"a" * 16)}
    )
    disk.put_segments({name(4, 7): segment(4, first=4, segment=b"b" * 16), name(4, 7, ".log.zst"): b"different"})
    torn = oracle.group(len(ACTIVE_AFTER), 9, [event(9, 30)], OTHER_SEGMENT)[:-1]
    disk.active(ACTIVE_AFTER + torn[:50] + bytes(900))
    disk.put(snapshot=b"bad", snapshot_previous=snapshot(2), acknowledged=b"bad", snapshot_new=b"left")
    return 8


def plain(disk: RelayDisk) -> int:
    disk.active(WHOLE, SECOND).put(snapshot=snapshot(2), acknowledged=acknowledged(2))
    return 4


def stale(disk: RelayDisk) -> int:
    disk.put_segments({name(1, 7, ".log.zst"): sealed(1, 7)}).active(segment(1, 2)).put(snapshot=snapshot(7))
    return 7


def missing(disk: RelayDisk) -> int:
    disk.put_segments({name(1, 4): WHOLE})
    return 4


def torn_header(disk: RelayDisk) -> int:
    disk.put_segments({name(1, 4): WHOLE}).active(segment(segment=OTHER_SEGMENT)[:30])
    return 4


SCENES = [busy, plain, stale, missing, torn_header]


@pytest.fixture(params=SCENES, ids=[scene.__name__ for scene in SCENES])
def scene(request, tmp_path):
    disk = RelayDisk(tmp_path)
    last = request.param(disk)
    return disk, last, disk.tree()


def attempt(disk: RelayDisk, faults: Faults, synced: SyncedEnd | None = None) -> OpeningError | None:
    """Opens under faults and closes; the refusal, where that is what came of it."""
    try:
        close(disk.open(faults, synced))
    except OpeningError as refused:
        return refused
    return None


def prove_open(disk: RelayDisk, last: int, synced: SyncedEnd | None = None) -> None:
    """Opens as if nothing had been: state, every event once, nothing unfinished; and appends go on."""
    opened = disk.open(synced=synced)
    assert seen(opened) == state(last)
    append(opened, event(last + 1))
    close(opened)
    again = disk.look()
    assert seen(again) == state(last + 1)
    view = again.catalogue.view()
    assert all(view.find(ordinal) is not None for ordinal in range(1, last + 2))
    assert not [path for path in disk.tree() if path.endswith(".new")]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_at_every_call_it_opens_to_the_same_state(scene, after):
    disk, last, tree = scene
    kept = set()
    for faults in each_fault(lambda n: Kill(n, after=after), changing):
        disk.restore(tree)
        with contextlib.suppress(Killed):
            close(disk.open(faults))
        prove_open(disk, last)
        kept.add(tuple(sorted(disk.quarantine().values())))
    assert len(kept) == 1, "each run keeps the same bytes, once"


def test_a_second_kill_while_opening_after_the_first(scene):
    disk, last, tree = scene
    for faults in each_fault(lambda n: Kill(2 * n, after=True), changing):
        disk.restore(tree)
        for again in (faults, Faults(Kill(faults.plan.n // 2 + 1), changing)):
            with contextlib.suppress(Killed):
                close(disk.open(again))
        prove_open(disk, last)


@pytest.mark.parametrize("after", [False, True], ids=["without effect", "with effect"])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
def test_an_error_at_every_call_is_typed_and_the_next_opening_is_right(scene, code, after):
    disk, last, tree = scene
    for faults in each_fault(lambda n: Fail(n, code, after=after), changing):
        disk.restore(tree)
        refused = attempt(disk, faults)
        assert refused is None or refused.reason == "storage_failed"
        prove_open(disk, last, None if refused is None else refused.synced)


def test_row_1_a_read_error_refuses_and_no_byte_changes(scene):
    disk, last, tree = scene
    reads: Callable[[Call], bool] = lambda call: call.name in READS  # noqa: E731
    refusals = 0
    for faults in each_fault(lambda n: Fail(n, errno.EIO), reads):
        disk.restore(tree)
        refused = attempt(disk, faults)
        if refused is not None:
            refusals += 1
            assert refused.reason == "storage_failed"
            if not any(map(changing, faults.log)):
                assert disk.tree() == tree
        prove_open(disk, last)
    assert refusals > 5


def no_room() -> Faults:
    """A disk on which no file can be made and none can grow, and everything else works."""
    return Faults(Fail(1, errno.ENOSPC, forever=True), named("open create", "make_directory"))


def test_without_room_the_rewrite_is_done_all_the_same_and_reads_are_served(tmp_path):
    disk = RelayDisk(tmp_path).active(WHOLE + TORN, SECOND).put(acknowledged=acknowledged(2))
    faults = no_room()
    opened = disk.open(faults)
    assert opened.full
    assert opened.writer is None
    assert seen(opened) == state(4)
    assert opened.report.full
    assert opened.acknowledgements.acknowledged.ordinal == 2
    assert opened.catalogue.view().active.last == 4
    written = [call for call in faults.names() if call.startswith(("write", "sync", "truncate"))]
    assert written[:4] == ["write active.log", "sync active.log", "write acknowledged", "sync acknowledged"]
    close(opened)
    assert disk.tree()["journal/active.log"] == WHOLE + TORN
    prove_open(disk, 4)
    assert TORN in disk.quarantine().values()


def test_without_room_for_a_fresh_active_log_reads_are_served(tmp_path):
    disk = RelayDisk(tmp_path)
    last = missing(disk)
    opened = disk.open(no_room())
    assert opened.full
    assert opened.catalogue.view().active is None
    assert seen(opened) == state(last)
    close(opened)
    prove_open(disk, last)


def test_without_room_for_a_snapshot_alone_the_relay_is_open(tmp_path):
    disk = RelayDisk(tmp_path).active(WHOLE, LAST)
    opened = disk.open(Faults(Fail(1, errno.ENOSPC), named("write snapshot.new")))
    assert not opened.full
    assert opened.report.snapshot_trouble
    assert (opened.unsnapshotted_events, opened.generations) == (4, (None, None))
    assert "snapshot.new" not in disk.tree()
    append(opened, event(5))
    close(opened)


def test_a_snapshot_that_fails_between_its_renames_leaves_nothing_to_collect_by(tmp_path):
    disk = RelayDisk(tmp_path).active(WHOLE, LAST).put(snapshot=snapshot(2), snapshot_previous=snapshot(1))
    opened = disk.open(Faults(Fail(1), named("replace snapshot.new snapshot")))
    assert opened.generations == (None, None)
    close(opened)
    prove_open(disk, 4)


def calls_on_old_file(faults: Faults) -> Iterator[str]:
    """Syncs of active.log, before another file gets its name."""
    for call in faults.names():
        if call == "replace active.log.new active.log":
            return
        if call == "sync active.log":
            yield call


def test_the_bytes_behind_a_failed_sync_are_not_shown_again(tmp_path):
    """E: the group whose sync failed is in the file, whole, and counts for nothing; the file gets a successor."""
    disk = RelayDisk(tmp_path).active(WHOLE + FAILED_GROUP, LAST)
    faults = Faults()
    opened = disk.open(faults, SyncedEnd(oracle.SEGMENT, LAST))
    assert seen(opened) == state(4)
    assert opened.writer.synced_end == SyncedEnd(oracle.SEGMENT, LAST)
    assert list(calls_on_old_file(faults)) == []
    assert "open update active.log" not in faults.names()
    assert disk.tree()["journal/active.log"] == WHOLE
    append(opened, event(5))
    close(opened)
    assert seen(disk.look()) == state(5)


def test_what_was_synced_counts_whatever_the_watermark_says(tmp_path):
    for mark in (None, SECOND, LAST + len(FAILED_GROUP)):
        disk = RelayDisk(tmp_path / str(mark)).active(WHOLE + FAILED_GROUP, mark)
        opened = disk.open(synced=SyncedEnd(oracle.SEGMENT, LAST))
        assert seen(opened) == state(4)
        close(opened)
        assert disk.tree()["watermark"] == oracle.watermark(oracle.SEGMENT, LAST)


def test_a_file_shorter_than_what_was_synced_is_corrupt(tmp_path):
    disk = RelayDisk(tmp_path).active(WHOLE[:SECOND])
    assert disk.refused("journal_corrupt", SyncedEnd(oracle.SEGMENT, LAST)).detail.offset == SECOND


def test_a_failed_sync_of_a_segment_that_is_rotated_by_now_says_nothing_of_the_next(tmp_path):
    disk = RelayDisk(tmp_path).put_segments({name(1, 4): WHOLE}).active(segment(2, first=5, segment=OTHER_SEGMENT))
    opened = disk.open(synced=SyncedEnd(oracle.SEGMENT, LAST))
    assert seen(opened) == state(6)
    close(opened)


@pytest.mark.parametrize("after", [False, True])
def test_where_the_successor_cannot_be_made_the_relay_is_unavailable_and_nothing_is_forgotten(tmp_path, after):
    synced = SyncedEnd(oracle.SEGMENT, LAST)
    disk = RelayDisk(tmp_path).active(WHOLE + FAILED_GROUP, LAST)
    tree = disk.tree()
    on_successor = named("open create active.log.new", "write active.log.new", "sync active.log.new", "replace", "sync")
    for faults in each_fault(lambda n: Fail(n, errno.ENOSPC, after=after), on_successor):
        disk.restore(tree)
        refused = attempt(disk, faults, synced)
        succeeded = disk.tree()["journal/active.log"] == WHOLE
        assert refused is None or (refused.reason, succeeded or refused.synced == synced) == ("storage_failed", True)
        prove_open(disk, 4, None if refused is None else refused.synced)


def test_the_writing_halfs_own_failed_sync_cuts_nothing_and_is_not_tried_again(tmp_path):
    disk = RelayDisk(tmp_path).active(WHOLE, SECOND)
    faults = Faults(Fail(1), named("sync active.log"))
    opened = disk.open(faults)
    assert seen(opened) == state(4)
    assert list(calls_on_old_file(faults)) == ["sync active.log"]
    assert "replace active.log.new active.log" in faults.names()
    close(opened)
    assert disk.tree()["journal/active.log"] == WHOLE
    prove_open(disk, 4)


def test_where_its_successor_fails_too_the_next_opening_knows_it(tmp_path):
    disk = RelayDisk(tmp_path).active(WHOLE, SECOND)
    refused = attempt(disk, Faults(Fail(1, forever=True), named("sync active.log", "sync active.log.new")))
    assert (refused.reason, refused.synced) == ("storage_failed", SyncedEnd(oracle.SEGMENT, LAST))
    faults = Faults()
    close(disk.open(faults, refused.synced))
    assert list(calls_on_old_file(faults)) == []


def test_a_failed_sync_without_room_for_a_successor_refuses(tmp_path):
    """Neither tried again on the file, nor served from."""
    disk = RelayDisk(tmp_path).active(WHOLE + bytes(600), SECOND)
    without_room = Faults(Fail(1, errno.ENOSPC, forever=True), named("sync active.log", "open create active.log.new"))
    refused = attempt(disk, without_room)
    assert (refused.reason, refused.synced) == ("storage_failed", SyncedEnd(oracle.SEGMENT, LAST))
    assert without_room.names().count("sync active.log") == 1
    prove_open(disk, 4, refused.synced)


def test_acknowledged_whose_sync_fails_is_replaced(tmp_path):
    said = acknowledged(2)
    disk = RelayDisk(tmp_path).active(WHOLE, LAST).put(acknowledged=said)
    faults = Faults(Fail(1), named("sync acknowledged"))
    close(disk.open(faults))
    assert faults.names().count("sync acknowledged") == 1
    assert "replace acknowledged.new acknowledged" in faults.names()
    assert disk.tree()["acknowledged"] == said


def test_nothing_is_open_before_what_was_found_is_synced(tmp_path):
    """Every name and byte that was only found is written through before the first append can be answered."""
    disk = RelayDisk(tmp_path).active(WHOLE).put(acknowledged=acknowledged(1))
    faults = Faults()
    close(disk.open(faults))
    calls = faults.names()
    order = [
        "write active.log",
        "sync active.log",
        "write acknowledged",
        "sync acknowledged",
        "sync journal/",
        "sync demo/",
    ]
    assert [call for call in calls if call in order][: len(order)] == order
    assert calls.index("sync active.log") < calls.index("write watermark")


def test_torn_bytes_are_on_disk_elsewhere_before_they_are_cut(tmp_path):
    disk = RelayDisk(tmp_path).active(WHOLE + TORN, LAST)
    faults = Faults()
    close(disk.open(faults))
    calls = faults.names()
    kept = f"active.log.{5:020}.torn.new"
    steps = [
        f"write {kept}",
        f"sync {kept}",
        f"replace {kept} {kept[:-4]}",
        "sync quarantine/",
        "truncate active.log",
        "sync active.log",
    ]
    assert [call for call in calls if call in steps] == steps


def test_a_sealed_copys_name_is_on_disk_before_the_rotated_file_goes(tmp_path):
    disk = RelayDisk(tmp_path)
    busy(disk)
    faults = Faults()
    close(disk.open(faults))
    calls = faults.names()
    at = calls.index(f"unlink {name(1, 3)}")
    assert (calls[at - 1], calls[at + 1]) == ("sync journal/", "sync journal/")


def test_every_step_is_synced_before_the_next_relies_on_it(tmp_path):
    """The whole order of a writing half that has something to do at each step."""
    disk = RelayDisk(tmp_path)
    busy(disk)
    faults = Faults()
    close(disk.open(faults))
    same, other, torn = name(1, 3), name(4, 7, ".log.zst"), f"active.log.{9:020}.torn"

    def kept(file: str) -> list[str]:
        return [
            f"open create {file}.new",
            f"write {file}.new",
            f"sync {file}.new",
            f"replace {file}.new {file}",
            "sync quarantine/",
        ]

    assert [str(call) for call in faults.log if changing(call)] == [
        "unlink snapshot.new",
        "make_directory quarantine",
        "sync demo/",
        *kept("snapshot"),
        "unlink snapshot",
        "sync demo/",
        *kept("acknowledged"),
        "unlink acknowledged",
        "sync demo/",
        *kept(other),
        f"unlink {other}",
        "sync journal/",
        "sync journal/",
        f"unlink {same}",
        "sync journal/",
        *kept(torn),
        "open update active.log",
        "truncate active.log",
        "sync active.log",
        "write active.log",
        "sync active.log",
        "sync journal/",
        "sync demo/",
        "open update watermark",
        "open create watermark",
        "write watermark",
        "truncate watermark",
        "open create snapshot.new",
        "write snapshot.new",
        "sync snapshot.new",
        "replace snapshot.new snapshot",
        "sync demo/",
    ]


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE])
def test_out_of_descriptors_is_told_as_it_is_and_costs_nothing(scene, code):
    """Nothing is wrong with the disk: the caller gets the OSError wherever it is met, and the relay opens later."""
    disk, last, tree = scene
    opens = named("open read", "open update", "open create", "directory")
    told: list[int | None] = []
    for faults in each_fault(lambda n: Fail(n, code), opens):
        disk.restore(tree)
        try:
            close(disk.open(faults))
        except OSError as error:
            told.append(error.errno)
        prove_open(disk, last)
    assert len(told) > 3
    assert set(told) == {code}


def test_out_of_descriptors_for_the_successor_of_a_failed_sync_forgets_nothing(tmp_path):
    """What the next opening has to know of the sync travels with the refusal alone."""
    disk = RelayDisk(tmp_path).active(WHOLE, SECOND)
    failing = Faults(Fail(1, errno.EMFILE, forever=True), named("sync active.log", "open create active.log.new"))
    refused = attempt(disk, failing)
    assert (refused.reason, refused.synced) == ("storage_failed", SyncedEnd(oracle.SEGMENT, LAST))
