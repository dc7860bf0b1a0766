import errno
import itertools
import shutil

import pytest
from support import oracle
from support.bench import (
    ALL,
    END_1,
    FIRST,
    FRESH,
    ROTATED,
    WHOLE,
    Bench,
    batch,
    commit_both,
    failure_of,
    refuses,
)
from support.faults import Fail, Faults, Kill, Killed, changing, each_fault, named

from relayd.journal.active import SyncedEnd
from relayd.journal.names import SegmentKind, SegmentName
from relayd.journal.writer import Rotated, RotateFailedError, WriteFailedError, Written
from relayd.protocol.errors import RelayRemovedError

LAST_RENAME = "replace active.log.new active.log"


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    yield made
    made.close()


def test_a_rotation_renames_and_copies_nothing(bench):
    faults = Faults()
    writer = bench.writer(faults)
    commit_both(writer)
    assert writer.needs_rotation
    faults.log.clear()
    assert writer.rotate() == Rotated(SegmentName(SegmentKind.ROTATED, 1, 3), len(WHOLE))
    changes = [str(call) for call in faults.log if changing(call)]
    assert changes == [
        "open create active.log.new",
        "write active.log.new",
        "sync active.log.new",
        f"replace active.log {ROTATED}",
        "replace active.log.new active.log",
        "sync journal/",
        "write watermark",
    ]
    assert (bench.journal / ROTATED).read_bytes() == WHOLE
    assert bench.active.read_bytes() == oracle.segment_header(segment=FRESH)
    assert (bench.relay / "watermark").read_bytes() == oracle.watermark(FRESH, 48)
    assert not writer.needs_rotation
    assert writer.synced_end == SyncedEnd(FRESH, 48)
    assert writer.commit(batch(4, b"fourth")) == Written(4, 48, 48 + 64 + 28 + 6)
    assert bench.active.read_bytes() == oracle.segment_of([[b"fourth"]], 4, FRESH)
    assert {file.name for file in bench.journal.iterdir()} == {ROTATED, "active.log"}


def test_a_segment_is_rotated_at_its_size_and_not_before(bench):
    writer = bench.writer(segment_bytes=END_1 + 1)
    writer.commit(batch(1, *FIRST))
    assert not writer.needs_rotation
    writer = bench.writer(segment_bytes=END_1)
    writer.commit(batch(1, *FIRST))
    assert writer.needs_rotation
    writer.rotate()
    assert not bench.writer(segment_bytes=1).needs_rotation, "a segment without records has no name to be given"


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EMFILE])
def test_each_call_of_a_rotation_failed_in_turn(bench, code, after):
    """Before any rename, no room or no descriptor lets the segment grow on; everything else ends the writer."""
    outcomes = {}
    for faults in each_fault(lambda n: Fail(n, code, after=after)):
        plan, faults.plan = faults.plan, None
        writer = bench.writer(faults)
        commit_both(writer)
        faults.plan, faults.count = plan, 0
        failed = failure_of(writer.rotate)
        faults.plan = None
        if failed is None:
            outcome = "goes on" if writer.active_first == 1 else "rotated"
            writer.commit(batch(4, b"fourth"))
        else:
            outcome = type(failed)
            if outcome is RotateFailedError:
                fresh = bench.active.exists() and bench.active.read_bytes()[24:40] == FRESH
                assert failed.error.errno == code
                assert failed.synced == (SyncedEnd(FRESH, 48) if fresh else None)
            refuses(writer)
        assert oracle.read_journal(bench.journal) == (ALL if failed else {**ALL, 4: b"fourth"})
        left = (LAST_RENAME, False) if not after else ("open create active.log.new", True)
        assert (bench.journal / "active.log.new").exists() is ((str(faults.met_at), after) == left)
        outcomes[str(faults.met_at)] = outcome
    room = code == errno.ENOSPC
    lacking = "goes on" if code in (errno.ENOSPC, errno.EMFILE) else RotateFailedError
    # A rename that happened and says that it had no room: the place cannot be proven any more.
    first_rename = (RelayRemovedError if after else "goes on") if room else RotateFailedError
    assert outcomes == {
        "still_there relay/": RotateFailedError,
        "still_there journal/": RotateFailedError,
        "stat active.log": RotateFailedError,
        "open create active.log.new": lacking,
        "write active.log.new": lacking,
        "sync active.log.new": lacking,
        f"stat {ROTATED}": "goes on" if room else RotateFailedError,
        f"replace active.log {ROTATED}": first_rename,
        LAST_RENAME: RotateFailedError,
        "sync journal/": RotateFailedError,
        "write watermark": "rotated",
        "None": "rotated",
    }


def test_a_segment_that_cannot_be_rotated_grows_to_four_times_its_size(bench):
    faults = Faults(Fail(1, errno.ENOSPC, forever=True), named("open create active.log.new"))
    writer = bench.writer(faults, segment_bytes=150)
    for ordinal in itertools.count(1):
        writer.commit(batch(ordinal, b"x" * 50))
        if not writer.needs_rotation:
            continue
        if writer.active_bytes >= 600:
            break
        assert writer.rotate() is None
    with pytest.raises(WriteFailedError) as failed:
        writer.rotate()
    assert failed.value.error.errno == errno.ENOSPC
    assert len(oracle.read_journal(bench.journal)) == ordinal
    refuses(writer)


def test_a_rotation_goes_through_once_there_is_room_again(bench):
    faults = Faults(Fail(1, errno.ENOSPC), named("sync active.log.new"))
    writer = bench.writer(faults)
    faults.plan = None
    commit_both(writer)
    faults.plan, faults.count = Fail(1, errno.ENOSPC), 0
    assert writer.rotate() is None
    assert writer.commit(batch(4, b"fourth")).file_first == 1
    assert writer.rotate().name == SegmentName(SegmentKind.ROTATED, 1, 4)
    assert oracle.read_journal(bench.journal) == {**ALL, 4: b"fourth"}


def test_an_unfinished_segment_of_an_earlier_attempt_is_replaced(bench):
    writer = bench.writer()
    commit_both(writer)
    (bench.journal / "active.log.new").write_bytes(b"left over" * 100)
    assert writer.rotate() is not None
    assert bench.active.read_bytes() == oracle.segment_header(segment=FRESH)


def test_a_rotation_never_replaces_a_file_of_the_same_name(bench):
    writer = bench.writer()
    commit_both(writer)
    (bench.journal / ROTATED).write_bytes(b"another")
    with pytest.raises(RotateFailedError) as failed:
        writer.rotate()
    assert failed.value.error.errno == errno.EEXIST
    assert (bench.journal / ROTATED).read_bytes() == b"another"
    assert bench.active.read_bytes() == WHOLE


@pytest.mark.parametrize("after", [False, True])
def test_a_kill_at_each_call_of_committing_and_rotating_leaves_every_answered_event_once(bench, after):
    for faults in each_fault(lambda n: Kill(n, after=after)):
        writer = bench.writer(faults, idle=True)
        answered = {}
        try:
            commit_both(writer, answered)
            writer.rotate()
            writer.commit(batch(4, b"fourth"))
            answered[4] = b"fourth"
        except Killed:
            pass
        else:
            assert not faults.met
        found = oracle.read_journal(bench.journal)
        assert found.items() >= answered.items()
        assert found.items() <= {**ALL, 4: b"fourth"}.items()
        for file in bench.journal.glob("*.log"):
            _, _, end = oracle.read_segment(file.read_bytes())
            assert end == file.stat().st_size


def test_a_relay_removed_while_a_rotation_makes_its_file_is_said_to_be_removed(bench):
    faults = Faults(counted=named("open create active.log.new"))
    writer = bench.writer(faults)
    commit_both(writer)
    faults.counted = lambda call: str(call) == "open create active.log.new" and shutil.rmtree(bench.relay)
    with pytest.raises(RelayRemovedError):
        writer.rotate()
