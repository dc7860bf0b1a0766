"""Each reason for which a relay does not open, by name: what is on disk, what is said, and that no byte changes."""

import os
import shutil
import struct
import zlib

import msgspec
import pytest
from support import oracle, sealed_oracle
from support.relays import (
    OTHER_SEGMENT,
    OTHER_STORE,
    RelayDisk,
    acknowledged,
    cursor,
    ends,
    event,
    events,
    framed,
    name,
    pack,
    sealed,
    segment,
    snapshot,
)

from relayd.journal.active import SyncedEnd
from relayd.protocol.errors import UnavailableError, from_wire, to_wire

COUNTS = (1, 2, 1)
WHOLE = segment(*COUNTS)
HEADER, FIRST, SECOND, LAST = (each.end for each in ends(*COUNTS))
FLIPPED = WHOLE[: FIRST + 70] + bytes([WHOLE[FIRST + 70] ^ 1]) + WHOLE[FIRST + 71 :]


@pytest.fixture
def disk(tmp_path):
    return RelayDisk(tmp_path)


def test_journal_corrupt_names_file_offset_ordinals_and_commands(disk):
    refused = disk.active(FLIPPED).refused("journal_corrupt")
    assert isinstance(refused, UnavailableError)
    detail = refused.detail
    assert (detail.file, detail.offset) == (str(disk.journal / "active.log"), FIRST)
    for said in (
        "the group after ordinal 1 does not check",
        f"offset {SECOND}",
        f"`relayd verify {disk.path}` says which events are damaged",
        f"`relayd salvage {disk.root} demo`",
    ):
        assert said in str(refused)


def test_journal_corrupt_where_active_log_is_missing_and_was_answered_from(disk):
    disk.put_segments({name(1, 1): segment(1, segment=OTHER_SEGMENT)}).put(
        watermark=oracle.watermark(oracle.SEGMENT, 400)
    )
    assert "active.log is missing" in str(disk.refused("journal_corrupt"))


def test_journal_corrupt_where_junk_stands_behind_an_ordinal_that_is_gone(disk):
    disk.active(WHOLE[:SECOND] + b"junk").put(acknowledged=acknowledged(4))
    assert "ordinals up to 4 were answered" in str(disk.refused("journal_corrupt"))


@pytest.mark.parametrize("tail", [b"x", bytes(1)], ids=["a byte", "a zero"])
def test_journal_corrupt_where_a_rotated_file_does_not_end_exactly(disk, tail):
    disk.put_segments({name(1, 4): WHOLE + tail}).active(segment(1, first=5, segment=OTHER_SEGMENT))
    assert disk.refused("journal_corrupt").detail.offset == LAST


def test_journal_corrupt_at_every_bit_and_shortening_of_a_rotated_file(disk):
    disk.active(segment(1, first=5, segment=OTHER_SEGMENT)).put(snapshot=snapshot(5))
    for at in range(0, LAST * 8, 7):
        damaged = bytearray(WHOLE)
        damaged[at // 8] ^= 1 << at % 8
        disk.put_segments({name(1, 4): bytes(damaged)})
        refused = disk.refused("journal_corrupt")
        assert refused.detail.offset <= at // 8
    for size in range(0, LAST, 13):
        disk.put_segments({name(1, 4): WHOLE[:size]}).refused("journal_corrupt")


def test_journal_corrupt_where_two_rotated_names_are_swapped(disk):
    disk.put_segments({name(1, 4): segment(4, first=5), name(5, 8): segment(4, segment=OTHER_SEGMENT)})
    assert name(1, 4) in str(disk.active(segment(first=9, segment=b"a" * 16)).refused("journal_corrupt"))


def test_journal_corrupt_in_a_sealed_file_that_the_fold_needs(disk):
    content = sealed(1, 7)
    bad = content[:20] + bytes([content[20] ^ 1]) + content[21:]
    disk.put_segments({name(1, 7, ".log.zst"): bad}).active(segment(1, first=8, segment=OTHER_SEGMENT))
    assert "ordinals 1 to 3" in str(disk.refused("journal_corrupt"))


def test_journal_corrupt_in_a_sealed_file_with_another_digest(disk):
    blocks = sealed_oracle.records_of([events(1, 3)])
    blocks[0][1] = blocks[0][1][:12] + b"x" * 16 + blocks[0][1][28:]
    frame = sealed_oracle.frame(b"".join(blocks[0]))
    bad = frame + sealed_oracle.index_frame(sealed_oracle.index_of(blocks, [frame], 1))
    disk.put_segments({name(1, 3, ".log.zst"): bad}).active(segment(1, first=4, segment=OTHER_SEGMENT))
    assert "digest" in str(disk.refused("journal_corrupt"))


@pytest.mark.parametrize("body", [b"\xc1", pack([1, "relay.evicted", {"through": "x"}]), pack([1])])
def test_journal_corrupt_where_a_record_is_no_event(disk, body):
    disk.active(oracle.segment_of([events(1, 3), [body]]))
    assert "ordinal 4" in str(disk.refused("journal_corrupt"))


def test_journal_undecided_names_the_bytes_and_the_command(disk):
    refused = disk.active(WHOLE[:-1] + bytes([WHOLE[-1] ^ 1])).refused("journal_undecided")
    assert refused.detail.offset == SECOND
    for said in (
        "the group after ordinal 3 does not check",
        f"{LAST - SECOND} bytes",
        f"`relayd salvage --tail {disk.root} demo`",
    ):
        assert said in str(refused)


def test_journal_gap_in_the_middle_names_ordinals(disk):
    disk.put_segments({name(1, 2): segment(2), name(6, 7): segment(2, first=6, segment=OTHER_SEGMENT)})
    refused = disk.active(segment(first=8, segment=b"a" * 16)).refused("journal_gap")
    assert "ordinals 3 to 5" in str(refused)
    assert refused.detail.file == str(disk.journal / name(6, 7))


def test_journal_gap_before_active_log(disk):
    disk.put_segments({name(1, 2): segment(2)}).active(segment(1, first=4, segment=OTHER_SEGMENT))
    assert "ordinal 3 is" in str(disk.refused("journal_gap"))


def test_journal_gap_above_base_where_the_beginning_is_missing(disk):
    disk.active(segment(2, first=5)).put(snapshot=snapshot(6, base=2))
    assert "ordinals 3 to 4" in str(disk.refused("journal_gap"))


def test_journal_gap_below_the_frontier_too(disk):
    disk.put_segments({name(1, 2, ".log.zst"): sealed(1, 2), name(6, 7, ".log.zst"): sealed(6, 7)})
    disk.active(segment(1, first=8, segment=OTHER_SEGMENT)).put(snapshot=snapshot(8))
    assert "ordinals 3 to 5" in str(disk.refused("journal_gap"))


def test_journal_gap_where_an_older_snapshot_was_put_back_and_its_events_collected(disk):
    disk.put_segments({name(5, 7, ".log.zst"): sealed(5, 7)}).active(segment(1, first=8, segment=OTHER_SEGMENT))
    disk.put(snapshot=snapshot(2)).refused("journal_gap")


def test_journal_gap_where_the_file_behind_a_hole_cannot_say_what_it_was(disk):
    disk.put_segments({name(1, 2, ".log.zst"): sealed(1, 2), name(6, 7, ".log.zst"): sealed(6, 7)[:-1]})
    disk.active(segment(1, first=8, segment=OTHER_SEGMENT)).put(snapshot=snapshot(8))
    assert "ordinals 3 to 5" in str(disk.refused("journal_gap"))


def test_a_frontier_in_a_lost_span_is_not_checked(disk):
    disk.put_segments({name(1, 2): segment(2), name(3, 5, ".lost"): b""}).active(
        segment(1, first=6, segment=OTHER_SEGMENT)
    )
    assert disk.put(snapshot=snapshot(5, frontier=[5, b"f" * 16])).look().state.frontier.ordinal == 6


def test_journal_gap_where_a_relay_lost_names_another_hole(disk):
    lost = pack([9, "relay.lost", {"first": 4, "last": 5, "reason": "salvage"}])
    active = oracle.segment_of([[lost]], 6, OTHER_SEGMENT)
    disk.put_segments({name(1, 2): segment(2)}).active(active)
    assert "ordinals 3 to 5" in str(disk.refused("journal_gap"))


def test_journal_gap_where_a_lost_span_is_past_the_state(disk):
    disk.put_segments({name(1, 2): segment(2), name(3, 5, ".lost"): b""}).active(
        segment(1, first=6, segment=OTHER_SEGMENT)
    )
    disk.put(snapshot=snapshot(2))
    assert "ordinals 3 to 5" in str(disk.refused("journal_gap"))


def test_journal_conflict_where_ranges_overlap(disk):
    disk.put_segments({name(1, 4): WHOLE, name(3, 6): segment(4, first=3, segment=OTHER_SEGMENT)})
    refused = disk.active(segment(first=7, segment=b"a" * 16)).refused("journal_conflict")
    assert name(1, 4) in str(refused)
    assert refused.detail.file == str(disk.journal / name(3, 6))


def test_journal_conflict_where_a_copy_has_another_range(disk):
    disk.put_segments({name(1, 4, ".log.zst"): sealed(1, 4), name(1, 3): segment(3)})
    disk.active(segment(first=5, segment=OTHER_SEGMENT)).refused("journal_conflict")


def test_journal_conflict_where_active_log_overlaps_and_goes_on(disk):
    disk.put_segments({name(1, 4): WHOLE}).active(segment(1, 2, first=4, segment=OTHER_SEGMENT))
    assert "ordinals 4 to 6" in str(disk.refused("journal_conflict"))


@pytest.mark.parametrize(
    "others",
    [
        {"snapshot": snapshot(4)},
        {"snapshot": snapshot(4), "acknowledged": acknowledged(2)},
        {"snapshot": snapshot(4), "snapshot_previous": snapshot(3)},
    ],
)
def test_journal_conflict_where_active_log_is_another_relays(disk, others):
    refused = disk.active(segment(*COUNTS, store=OTHER_STORE)).put(**others).refused("journal_conflict")
    assert OTHER_STORE.hex() in str(refused)


def test_journal_conflict_where_active_log_is_another_relays_beside_sealed_files(disk):
    disk.put_segments({name(1, 4, ".log.zst"): sealed(1, 4)}).put(snapshot=snapshot(4))
    disk.active(segment(1, first=5, store=OTHER_STORE, segment=OTHER_SEGMENT)).refused("journal_conflict")


@pytest.mark.parametrize("snapshots", [{}, {"snapshot": snapshot(5)}])
def test_journal_conflict_where_a_rotated_file_is_another_relays(disk, snapshots):
    disk.put_segments({name(1, 4): segment(*COUNTS, store=OTHER_STORE, segment=OTHER_SEGMENT)})
    disk.active(segment(1, first=5)).put(**snapshots).refused("journal_conflict")


def test_journal_conflict_where_a_sealed_file_that_is_needed_is_another_relays(disk):
    disk.put_segments({name(1, 4, ".log.zst"): sealed(1, 4, store=OTHER_STORE)})
    disk.active(segment(1, first=5, segment=OTHER_SEGMENT)).refused("journal_conflict")


def test_journal_conflict_where_the_first_event_names_another_store(disk):
    body = pack([1, "relay.created", {"store": OTHER_STORE, "retention": "checkpointed", "max_active": 1}])
    disk.active(oracle.segment_of([[body]])).refused("journal_conflict")


@pytest.mark.parametrize("active", [None, b"", segment(), b"short"])
def test_snapshot_lost_where_the_journal_holds_no_record(disk, active):
    if active is not None:
        disk.active(active)
    disk.refused("snapshot_lost")


def test_snapshot_lost_where_both_are_gone_and_the_beginning_is_collected(disk):
    disk.active(segment(2, first=5)).put(snapshot=b"bad")
    assert "begins with ordinal 5" in str(disk.refused("snapshot_lost"))


def test_snapshot_lost_where_the_first_event_is_none_that_makes_a_relay(disk):
    disk.active(oracle.segment_of([[event(2)], events(2, 3)]))
    assert "`output`" in str(disk.refused("snapshot_lost"))


def test_snapshot_ahead_where_the_journal_ends_before_the_state(disk):
    refused = disk.active(WHOLE[:SECOND]).put(snapshot=snapshot(4)).refused("snapshot_ahead")
    for said in ("ends with ordinal 3", "the snapshot stands at 4", "ordinals 4 to 4 were answered and are gone"):
        assert said in str(refused)


@pytest.mark.parametrize("zeros", [0, 600])
def test_snapshot_ahead_where_the_journal_ends_before_an_acknowledged_cursor(disk, zeros):
    disk.active(WHOLE[:SECOND] + bytes(zeros)).put(acknowledged=acknowledged(1, c=cursor(4)))
    assert "a consumer's acknowledged cursor stands at 4" in str(disk.refused("snapshot_ahead"))


def test_snapshot_ahead_where_active_log_is_stale_and_the_journal_too(disk):
    disk.put_segments({name(1, 7, ".log.zst"): sealed(1, 7)}).active(WHOLE)
    disk.put(snapshot=snapshot(9)).refused("snapshot_ahead")


def test_snapshot_ahead_where_the_journals_directory_is_gone(disk):
    disk.put(snapshot=snapshot(4))
    shutil.rmtree(disk.journal)
    disk.refused("snapshot_ahead")
    (disk.path / "snapshot").unlink()
    disk.refused("snapshot_lost")


@pytest.mark.parametrize("where", ["active", "rotated", "sealed", "leftover", "rotated leftover"])
def test_snapshot_conflict_where_the_frontiers_record_has_another_digest(disk, where):
    forked = snapshot(4, frontier=[4, b"f" * 16], base=4 if "leftover" in where else 0)
    if where == "active":
        disk.active(WHOLE)
    else:
        files = {name(1, 4): WHOLE} if "rotated" in where else {name(1, 4, ".log.zst"): sealed(1, 4)}
        disk.put_segments(files).active(segment(1, first=5, segment=OTHER_SEGMENT))
    refused = disk.put(snapshot=forked).refused("snapshot_conflict")
    assert (b"f" * 16).hex() in str(refused)
    disk.put(snapshot_previous=forked)
    assert disk.refused("snapshot_conflict").detail.file == str(disk.path / "snapshot")


def test_a_frontier_that_cannot_be_read_is_not_checked(disk):
    forked = snapshot(4, frontier=[4, b"f" * 16])
    disk.put_segments({name(1, 4, ".log.zst"): sealed(1, 4)[:-1]}).active(segment(1, first=5, segment=OTHER_SEGMENT))
    assert disk.put(snapshot=forked).look().state.frontier.ordinal == 5


def later(content: bytes, at: int) -> bytes:
    """`content` with the group header at `at` made one of format 2, its CRC right."""
    checked = content[at : at + 4] + struct.pack("<I", 2) + content[at + 8 : at + 56]
    return content[:at] + checked + struct.pack("<I", zlib.crc32(checked)) + content[at + 60 :]


def later_segment(content: bytes) -> bytes:
    checked = b"RLYSEG02" + content[8:40]
    return checked + struct.pack("<I", zlib.crc32(checked)) + content[44:]


@pytest.mark.parametrize(
    "files",
    [
        {"active.log": later(WHOLE, FIRST)},
        {"active.log": later_segment(WHOLE)},
        {name(1, 4): later(WHOLE, FIRST), "active.log": segment(first=5, segment=OTHER_SEGMENT)},
        {name(1, 4): later_segment(WHOLE), "active.log": segment(first=5, segment=OTHER_SEGMENT)},
        {name(1, 4, ".log.zst"): sealed(1, 4, format=2), "active.log": segment(first=5, segment=OTHER_SEGMENT)},
        {"active.log": oracle.segment_of([events(1, 2), [pack([1, "relay.invented", {}])]])},
    ],
    ids=["group", "segment", "rotated group", "rotated segment", "sealed", "reserved kind"],
)
def test_later_format_in_the_journal(disk, files):
    disk.put_segments(files).refused("later_format")


@pytest.mark.parametrize("which", ["snapshot", "snapshot_previous"])
def test_later_format_of_a_snapshot(disk, which):
    disk.active(WHOLE).put(snapshot=snapshot(4)).put(**{which: framed(b"RLYSNAP1", {"format": 2})})
    disk.refused("later_format")


def test_later_format_of_acknowledged(disk):
    disk.active(WHOLE).put(acknowledged=framed(b"RLYACKD1", {"format": 2})).refused("later_format")


@pytest.mark.parametrize(
    "target", ["journal/active.log", f"journal/{name(1, 4)}", "snapshot", "watermark", "acknowledged"]
)
@pytest.mark.parametrize("what", ["link", "fifo", "directory"])
def test_storage_failed_where_a_file_is_none(disk, target, what):
    disk.active(segment(1, first=5, segment=OTHER_SEGMENT), 48).put_segments({name(1, 4): WHOLE})
    disk.put(snapshot=snapshot(4), acknowledged=acknowledged(1))
    path = disk.path / target
    real = path.rename(disk.root / "elsewhere")
    if what == "link":
        path.symlink_to(real)
    elif what == "fifo":
        os.mkfifo(path)
    else:
        path.mkdir()
    before = sorted(disk.path.rglob("*"))
    with pytest.raises(UnavailableError) as caught:
        disk.open()
    assert caught.value.detail.reason == "storage_failed"
    assert caught.value.detail.file == str(path)
    assert sorted(disk.path.rglob("*")) == before


def test_what_a_failed_sync_left_is_carried_on_by_a_refusal(disk):
    synced = SyncedEnd(oracle.SEGMENT, LAST)
    assert disk.active(WHOLE[:SECOND]).refused("journal_corrupt", synced).synced == synced


def test_a_refusal_travels_as_unavailable(disk):
    refused = disk.active(FLIPPED).refused("journal_corrupt")
    back = from_wire(to_wire(refused, 7))
    assert type(back) is UnavailableError
    assert msgspec.structs.asdict(back.detail) == msgspec.structs.asdict(refused.detail)
