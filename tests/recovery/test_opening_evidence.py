"""What an opening takes for proof, and what it does not, where files contradict each other."""

import pytest
from support import oracle, sealed_oracle
from support.relays import (
    OTHER_SEGMENT,
    OTHER_STORE,
    RelayDisk,
    acknowledged,
    append,
    close,
    cursor,
    ends,
    event,
    events,
    name,
    pack,
    sealed,
    seen,
    segment,
    snapshot,
    state,
)

from relayd.journal.names import SegmentKind, SegmentName

COUNTS = (1, 2, 1)
WHOLE = segment(*COUNTS)
HEADER, FIRST, SECOND, LAST = (each.end for each in ends(*COUNTS))


@pytest.fixture
def disk(tmp_path):
    return RelayDisk(tmp_path)


def test_an_active_log_is_not_stale_where_damage_hides_newer_ordinals(disk):
    damaged = WHOLE[: FIRST + 70] + bytes([WHOLE[FIRST + 70] ^ 1]) + WHOLE[FIRST + 71 :]
    disk.put_segments({name(1, 3, ".log.zst"): sealed(1, 3)}).active(damaged)
    disk.put(snapshot=snapshot(3)).refused("journal_conflict")


def test_bytes_behind_a_state_that_is_gone_are_corrupt_not_torn(disk):
    disk.active(WHOLE[:SECOND] + b"junk").put(snapshot=snapshot(4)).refused("journal_corrupt")


@pytest.mark.parametrize("marked", [1, 2])
def test_a_watermark_of_any_sealed_segment_says_nothing_of_an_empty_active_log(disk, marked):
    ids = {1: b"1" * 16, 2: b"2" * 16}
    disk.put_segments({name(3 * n - 2, 3 * n, ".log.zst"): sealed(3 * n - 2, 3 * n, segment=ids[n]) for n in ids})
    disk.active(b"").put(watermark=oracle.watermark(ids[marked], 300))
    assert seen(disk.look()) == state(6)


def test_a_watermark_of_no_file_here_proves_that_active_log_was_more(disk):
    disk.put_segments({name(1, 3, ".log.zst"): sealed(1, 3)}).active(b"")
    disk.put(watermark=oracle.watermark(OTHER_SEGMENT, 300)).refused("journal_corrupt")


def test_a_watermark_of_another_segment_spares_no_rewrite(disk):
    disk.active(WHOLE).put(watermark=oracle.watermark(OTHER_SEGMENT, SECOND))
    assert disk.look().report.rewritten_bytes == LAST


def test_a_rotated_file_with_more_than_its_name_says(disk):
    disk.put_segments({name(1, 2): WHOLE}).active(segment(first=3, segment=OTHER_SEGMENT))
    assert disk.refused("journal_corrupt").detail.offset == FIRST


def test_a_sealed_copy_with_other_records_of_the_same_range_is_different(disk):
    copy, other = name(1, 4, ".log.zst"), sealed_oracle.sealed_of([events(1, 3), [pack([1, "output"])]])
    disk.put_segments({name(1, 4): WHOLE, copy: other}).active(segment(1, first=5, segment=OTHER_SEGMENT))
    assert seen(disk.look()) == state(5)
    assert disk.quarantine() == {copy: other}


def test_another_relays_whole_active_log_beside_this_relays_snapshot(disk):
    created = pack([1000, "relay.created", {"store": OTHER_STORE, "retention": "checkpointed", "max_active": 1}])
    header = oracle.segment_header(OTHER_STORE, oracle.SEGMENT)
    disk.active(header + oracle.group(48, 1, [created, event(2)]))
    disk.put(snapshot=snapshot(2)).refused("journal_conflict")


@pytest.mark.parametrize("witness", ["acknowledged", "rotated", "sealed"])
def test_another_relays_only_snapshot_is_passed_over_where_others_bear_witness(disk, witness):
    foreign = snapshot(3, store=OTHER_STORE)
    disk.put(snapshot=foreign)
    if witness == "acknowledged":
        disk.active(WHOLE + oracle.group(LAST, 5, [event(5)])).put(acknowledged=acknowledged(2))
    else:
        files = {name(1, 4): WHOLE} if witness == "rotated" else {name(1, 4, ".log.zst"): sealed(1, 4)}
        disk.put_segments(files).active(segment(1, first=5, segment=OTHER_SEGMENT))
    assert seen(disk.look()) == state(5)
    assert disk.quarantine() == {"snapshot": foreign}


def test_snapshots_of_two_relays_and_no_segment_that_tells(disk):
    disk.active(b"").put(snapshot=snapshot(3), snapshot_previous=snapshot(2, store=OTHER_STORE))
    disk.refused("journal_conflict")


def test_a_rotation_after_an_opening_names_what_the_file_holds(disk):
    disk.put_segments({name(1, 4): WHOLE}).active(segment(2, first=5, segment=OTHER_SEGMENT))
    opened = disk.open(segment_bytes=100)
    append(opened, event(7))
    assert opened.writer.needs_rotation
    assert opened.writer.rotate().name == SegmentName(SegmentKind.ROTATED, 5, 7)
    close(opened)
    assert seen(disk.look()) == state(7)


def test_acknowledged_cursors_below_what_is_read_are_believed(disk):
    """Nothing speaks against them; their events may be collected or sealed."""
    disk.put_segments({name(1, 4, ".log.zst"): sealed(1, 4)}).active(segment(1, first=5, segment=OTHER_SEGMENT))
    disk.put(snapshot=snapshot(5), acknowledged=acknowledged(2, c=cursor(2), d=cursor(5)))
    assert sorted(disk.look().acknowledgements.consumers) == ["c", "d"]


def test_a_single_damaged_generation_of_a_collected_relay_is_lost_with_its_state(disk):
    disk.put_segments({name(3, 4, ".log.zst"): sealed(3, 4)}).active(segment(1, first=5, segment=OTHER_SEGMENT))
    disk.put(snapshot=snapshot(5)[:-1], snapshot_previous=snapshot(4, base=2))
    assert seen(disk.look()) == state(5)
    disk.put(snapshot=b"bad", snapshot_previous=b"bad").refused("snapshot_lost")


def test_an_active_log_that_was_synced_past_its_last_whole_group_is_no_stale_copy(disk):
    """All it still shows is in the sealed file; its watermark says that more was answered, which is not set aside."""
    disk.put_segments({name(1, 3, ".log.zst"): sealed(1, 3, segment=OTHER_SEGMENT)})
    disk.active(WHOLE[:SECOND], marked=LAST).put(snapshot=snapshot(3)).refused("journal_conflict")


def test_a_stale_active_log_with_an_end_that_cannot_be_judged_is_not_set_aside(disk):
    disk.put_segments({name(1, 3, ".log.zst"): sealed(1, 3, segment=OTHER_SEGMENT)})
    disk.active(WHOLE[:SECOND] + b"\x01" * 600).put(snapshot=snapshot(3)).refused("journal_conflict")
