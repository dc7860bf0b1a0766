import errno
import shutil

import pytest
from support import oracle
from support.bench import (
    ALL,
    END_1,
    FIRST,
    SECOND,
    WHOLE,
    Bench,
    batch,
    commit_both,
    failure_of,
    refuses,
)
from support.faults import Fail, Faults, Killed, Short, each_fault, named

from relayd.journal.active import SyncedEnd
from relayd.journal.writer import SyncFailedError, WriteFailedError, Written
from relayd.protocol.errors import RelayRemovedError


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    yield made
    made.close()


def test_two_groups_are_on_disk_byte_for_byte(bench):
    writer = bench.writer()
    assert writer.commit(batch(1, *FIRST)) == Written(1, 48, END_1)
    assert writer.commit(batch(3, *SECOND)) == Written(1, END_1, len(WHOLE))
    assert bench.active.read_bytes() == WHOLE
    assert (bench.relay / "watermark").read_bytes() == oracle.watermark(oracle.SEGMENT, len(WHOLE))
    assert (writer.active_first, writer.last_ordinal, writer.active_bytes) == (1, 3, len(WHOLE))
    assert writer.synced_end == SyncedEnd(oracle.SEGMENT, len(WHOLE))


def test_records_may_come_in_one_buffer_or_many(bench):
    for parts in ([b"".join(batch(1, *FIRST).payload)], [memoryview(part) for part in batch(1, *FIRST).payload]):
        writer = bench.writer()
        whole = batch(1, *FIRST)
        writer.commit(type(whole)(1, 2, parts))
        assert bench.active.read_bytes() == oracle.segment_of([FIRST])


def test_a_commit_is_one_write_one_sync_then_the_proof_of_its_place_then_the_watermark(bench):
    faults = Faults()
    writer = bench.writer(faults)
    writer.commit(batch(1, *FIRST))
    place = ["still_there relay/", "still_there journal/", "stat active.log"]
    group = ["write active.log.new", "sync active.log.new"]
    assert faults.names() == [
        "unlink idle",
        *group,
        *place,
        "open update watermark",
        "open create watermark",
        "write watermark",
    ]
    faults.log.clear()
    writer.commit(batch(3, *SECOND))
    assert faults.names() == [*group, *place, "write watermark"]


def test_idle_is_gone_and_synced_before_the_first_write(bench):
    faults = Faults()
    writer = bench.writer(faults, idle=True)
    writer.commit(batch(1, *FIRST))
    assert faults.names()[:4] == ["unlink idle", "sync relay/", "write active.log.new", "sync active.log.new"]
    assert not (bench.relay / "idle").exists()


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EROFS])
def test_each_call_of_commit_failed_in_turn(bench, code, after):
    """Only the watermark may fail without a word; any other failure ends the writer, and nothing is answered."""
    outcomes = {}
    for faults in each_fault(lambda n: Fail(n, code, after=after)):
        writer = bench.writer(faults, idle=True)
        answered = {}
        failed = failure_of(commit_both, writer, answered)
        if failed is not None:
            assert failed.error.errno == code
            end = END_1 if answered else 48
            assert failed.synced == (SyncedEnd(oracle.SEGMENT, end) if isinstance(failed, SyncFailedError) else None)
            if faults.met_at.name == "write":
                assert bench.active.stat().st_size == end
            assert not [call for call in faults.since() if call.startswith(("sync", "write"))]
            refuses(writer)
        else:
            assert answered == ALL
            assert len(bench.unmarked) == faults.met
        assert oracle.read_journal(bench.journal).items() >= answered.items()
        outcomes.setdefault(str(faults.met_at), set()).add(failed and type(failed))
    assert outcomes == {
        "unlink idle": {WriteFailedError},
        "sync relay/": {WriteFailedError},
        "write active.log.new": {WriteFailedError},
        "sync active.log.new": {SyncFailedError},
        "open update watermark": {None},
        "open create watermark": {None},
        "write watermark": {None},
        "still_there relay/": {WriteFailedError},
        "still_there journal/": {WriteFailedError},
        "stat active.log": {WriteFailedError},
        "None": {None},
    }


def test_a_write_that_took_k_bytes_is_cut_back_for_every_k(bench):
    for taken in range(len(WHOLE) - END_1):
        faults = Faults(Short(2, taken), named("write active.log.new"))
        writer = bench.writer(faults)
        writer.commit(batch(1, *FIRST))
        with pytest.raises(WriteFailedError) as failed:
            writer.commit(batch(3, *SECOND))
        assert failed.value.error.errno == errno.ENOSPC
        assert failed.value.synced is None
        assert bench.active.read_bytes() == WHOLE[:END_1], taken
        assert faults.since() == ["truncate active.log.new"]


def test_a_cut_back_that_fails_too_leaves_the_error_of_the_write(bench):
    faults = Faults(Fail(1, errno.EIO, forever=True), named("write active.log.new", "truncate active.log.new"))
    writer = bench.writer(faults)
    with pytest.raises(WriteFailedError) as failed:
        writer.commit(batch(1, *FIRST))
    assert failed.value.synced is None
    assert faults.since() == ["truncate active.log.new"]


def test_a_kill_after_k_bytes_of_a_group_leaves_the_groups_before_whole(bench):
    for taken in range(len(WHOLE) - END_1):
        faults = Faults(Short(2, taken, kill=True), named("write active.log.new"))
        writer = bench.writer(faults)
        with pytest.raises(Killed):
            commit_both(writer)
        assert bench.active.read_bytes() == WHOLE[: END_1 + taken]
        assert (bench.relay / "watermark").read_bytes() == oracle.watermark(oracle.SEGMENT, END_1)


def deleted(bench):
    shutil.rmtree(bench.relay)


def moved(bench):
    bench.relay.rename(bench.path / "elsewhere")


def replaced_by_a_copy(bench):
    moved(bench)
    shutil.copytree(bench.path / "elsewhere", bench.relay)


def state_moved(bench):
    bench.path.rename(bench.path.with_name("state-elsewhere"))


def journal_moved(bench):
    bench.journal.rename(bench.relay / "elsewhere")


def active_deleted(bench):
    bench.active.unlink()


def active_replaced(bench):
    copy = bench.journal / "copy"
    copy.write_bytes(bench.active.read_bytes())
    copy.replace(bench.active)


FATES = [deleted, moved, replaced_by_a_copy, state_moved, journal_moved, active_deleted, active_replaced]


@pytest.mark.parametrize("fate", FATES)
@pytest.mark.parametrize("before", ["the first group", "a later group", "a rotation"])
def test_nothing_is_answered_into_a_relay_that_is_gone_from_its_path(bench, fate, before):
    writer = bench.writer(idle=True)
    if before != "the first group":
        commit_both(writer)
    fate(bench)
    with pytest.raises(RelayRemovedError):
        writer.rotate() if before == "a rotation" else writer.commit(batch(writer.last_ordinal + 1, b"lost"))
    with pytest.raises(ValueError, match="opens again"):
        writer.commit(batch(writer.last_ordinal + 1, b"more"))


def test_a_closed_writer_refuses(bench):
    writer = bench.writer()
    writer.commit(batch(1, *FIRST))
    writer.close()
    writer.close()
    with pytest.raises(ValueError, match="was closed"):
        writer.commit(batch(3, *SECOND))
