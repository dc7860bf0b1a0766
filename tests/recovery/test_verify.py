"""`relayd verify` reads every byte: no bit flips unnoticed, no damage is told where there is none."""

import contextlib
import json
import struct
import zlib

import msgspec
import pytest
from support import oracle, relay_files
from support.relay_files import RelayFiles, acknowledged, bodies, body, sealed, segment, snapshot

from relayd.journal.real_storage import open_state_directory
from relayd.protocol.errors import NotFoundError
from relayd.recovery.verify import measure_path, verify_path, verify_state

SEALED = "journal/00000000000000000001-00000000000000000006.log.zst"
ROTATED = "journal/00000000000000000007-00000000000000000012.log"
ACTIVE = "journal/active.log"
SMALL = ("snapshot", "snapshot.previous", "acknowledged", "watermark")


@pytest.fixture
def files(tmp_path):
    made = RelayFiles(tmp_path / "state")
    made.put(SEALED, sealed(1, 6))
    made.put(ROTATED, segment(7, 12, b"\x77" * 16))
    made.active(segment(13, 18))
    made.put("snapshot", snapshot(15))
    made.put("snapshot.previous", snapshot(12))
    made.put("acknowledged", acknowledged(14))
    return made


def flip(path, at, bit=0x10):
    data = bytearray(path.read_bytes())
    data[at] ^= bit
    path.write_bytes(data)


def test_a_whole_relay(files):
    told = []
    before = files.everything()
    report = verify_path(str(files.path), progress=told.append)
    assert report.findings == ()
    assert not report.damaged
    assert (report.files, report.records, report.live) == (7, 18, False)
    assert sum(told) == report.bytes == measure_path(str(files.path))
    assert files.everything() == before


@pytest.mark.parametrize(
    "name", [SEALED, ROTATED, ACTIVE, "snapshot", "snapshot.previous", "acknowledged", "watermark"]
)
def test_no_bit_flips_unnoticed(files, name):
    path = files.path / name
    whole = path.read_bytes()
    unnoticed = []
    for at in range(0, len(whole), max(1, len(whole) // 150)):
        flip(path, at, 1 << at % 8)
        if not verify_path(str(files.path)).findings:
            unnoticed.append(at)
        path.write_bytes(whole)
    assert unnoticed == []


@pytest.mark.parametrize("name", [SEALED, ROTATED, ACTIVE])
def test_no_shortening_or_lengthening_is_unnoticed(files, name):
    path = files.path / name
    whole = path.read_bytes()
    for size in range(0, len(whole), 37):
        path.write_bytes(whole[:size])
        assert verify_path(str(files.path)).damaged, size
    for more in (b"\x01", b"x" * 600):
        path.write_bytes(whole + more)
        assert verify_path(str(files.path)).findings


def test_the_lost_ordinals_are_named(files):
    flip(files.path / ROTATED, (files.path / ROTATED).read_bytes().index(body(9)) + 20)
    report = verify_path(str(files.path))
    assert [(one.file, one.first, one.last, one.reason) for one in report.findings] == [(ROTATED, 9, 9, "damaged")]
    assert "journal_corrupt" in report.refusal
    assert "salvage" in report.findings[0].hint


def test_a_sealed_frame_costs_its_readers_the_frame_and_no_opening(files):
    flip(files.path / SEALED, 40)
    report = verify_path(str(files.path))
    assert [(one.first, one.last) for one in report.findings] == [(1, 3)]
    assert report.damaged
    assert report.refusal is None


def test_a_torn_end_is_harmless(files):
    content = segment(13, 18)
    files.active(content + oracle.group(len(content), 19, bodies(19, 21))[:-3], synced=len(content))
    report = verify_path(str(files.path))
    assert [one.reason for one in report.findings] == ["torn"]
    assert not report.damaged


def test_an_undecided_end_names_the_flag(files):
    (files.path / "acknowledged").unlink()
    content = segment(13, 18, sizes=(1,))
    path = files.active(content, synced=-1)
    flip(path, content.index(body(18)) + 20)
    report = verify_path(str(files.path))
    assert [one.reason for one in report.findings] == ["undecided"]
    assert "--tail" in report.findings[0].hint


def test_another_relays_segment_and_a_missing_one(files):
    path = files.path / SEALED
    path.write_bytes(sealed(1, 6, store=b"\x99" * 16))
    report = verify_path(str(files.path))
    assert [one.reason for one in report.findings] == ["foreign"]
    path.write_bytes(sealed(1, 6))
    (files.path / ROTATED).unlink()
    assert "journal_gap" in verify_path(str(files.path)).refusal


def test_a_later_format_is_no_damage(files):
    content = bytearray(segment(13, 18))
    content[5:8] = b"G02"
    content[40:44] = struct.pack("<I", zlib.crc32(bytes(content[:40])))
    files.active(bytes(content))
    assert "later_format" in {one.reason for one in verify_path(str(files.path)).findings}


def test_a_live_relay_is_checked_to_its_watermark(files):
    content = segment(13, 18, sizes=(1,))
    stop = content.index(oracle.record(16, body(16))) - 64
    path = files.active(content, synced=stop)
    flip(path, len(content) - 5)
    with contextlib.closing(open_state_directory(str(files.path))) as daemon:
        assert daemon.lock()
        report = verify_path(str(files.path))
        assert (report.live, report.in_flight_bytes, report.findings) == (True, len(content) - stop, ())
        flip(path, stop - 5)
        assert verify_path(str(files.path)).damaged


@pytest.mark.parametrize("name", [SEALED, ROTATED, ACTIVE, "snapshot", "acknowledged"])
def test_one_file(files, name):
    assert not verify_path(str(files.path / name)).findings
    flip(files.path / name, 60)
    assert verify_path(str(files.path / name)).damaged


def test_all_relays_of_a_state_directory(files):
    other = RelayFiles(files.state / "x")
    (files.state / "relays" / ".demo.new").mkdir()
    reports = list(verify_state(str(files.state)))
    assert [report.path for report in reports] == [str(files.path)]
    assert other.path.exists()
    assert relay_files.NAME in reports[0].path


def test_what_the_disk_does_not_give_is_told_and_the_rest_is_read(files):
    path = files.path / ROTATED
    path.unlink()
    path.mkdir()
    (files.path / ACTIVE).unlink()
    (files.path / ACTIVE).symlink_to(files.path / SEALED)
    report = verify_path(str(files.path))
    assert [(one.file, one.reason) for one in report.findings] == [(ACTIVE, "damaged")]
    assert "reading it failed" in report.findings[0].what
    assert report.refusal is not None
    assert report.records == 6


def test_a_marked_span_is_told_and_harmless(files):
    (files.path / SEALED).unlink()
    files.put("journal/00000000000000000001-00000000000000000006.lost", b"")
    report = verify_path(str(files.path))
    assert [(one.reason, one.first, one.last) for one in report.findings] == [("lost", 1, 6)]
    assert not report.damaged


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "no file of relayd's: empty"),
        (b"abc", "no segment, snapshot, acknowledged, seed or backup"),
        (bytes(500), "no segment, snapshot, acknowledged, seed or backup"),
    ],
)
def test_a_file_that_is_none_of_relayds_is_a_finding(tmp_path, content, what):
    path = tmp_path / "x.backup"
    path.write_bytes(content)
    report = verify_path(str(path))
    assert [(one.reason, one.what) for one in report.findings] == [("damaged", what)]
    assert "salvage" not in report.findings[0].hint
    assert report.damaged
    assert report.files == 1


def test_an_empty_active_segment_of_a_relay_is_fine(files):
    (files.path / "watermark").unlink()
    (files.path / "snapshot").unlink()
    (files.path / "acknowledged").unlink()
    (files.path / ACTIVE).write_bytes(b"")
    report = verify_path(str(files.path))
    assert (report.findings, report.refusal) == ((), None)


def test_a_seed_and_a_watermark_by_themselves(files, tmp_path):
    path = tmp_path / "seed.json"
    path.write_text(
        json.dumps({"frontier": [40, "ab" * 16], "commands": [], "config": {}, "terminal_ids": [], "producers": {}})
    )
    assert not verify_path(str(path)).findings
    assert not verify_path(str(files.path / "watermark")).findings


@pytest.mark.parametrize(("gone", "span"), [(SEALED, (1, 6)), (ROTATED, (7, 12))])
def test_a_missing_segment_is_a_finding_with_its_ordinals(files, gone, span):
    (files.path / gone).unlink()
    report = verify_path(str(files.path))
    assert [(one.file, one.reason, one.first, one.last) for one in report.findings] == [("journal", "missing", *span)]
    assert report.damaged
    assert report.reason == "journal_gap"


def test_a_missing_active_segment_is_a_finding_with_what_may_have_been_used(files):
    (files.path / ACTIVE).unlink()
    (one,) = verify_path(str(files.path)).findings
    assert (one.file, one.reason, one.first, one.at_most) == (ACTIVE, "missing", 13, True)
    (files.path / "watermark").unlink()
    (one,) = verify_path(str(files.path)).findings
    assert (one.file, one.reason, one.first, one.last, one.at_most) == ("journal", "missing", 13, 15, False)


def test_an_active_segment_that_is_shorter_than_it_was_synced_is_a_finding(files):
    content = segment(13, 18, sizes=(2,))
    stop = content.index(oracle.record(17, body(17))) - 64
    files.active(content[:stop], synced=len(content))
    (one,) = verify_path(str(files.path)).findings
    assert (one.file, one.reason, one.first, one.at_most) == (ACTIVE, "damaged", 17, True)
    assert one.last >= 18


def test_what_was_collected_or_given_up_is_not_missing(files):
    (files.path / SEALED).unlink()
    for name in ("snapshot", "snapshot.previous"):
        files.put(name, snapshot(12, 6))
    assert verify_path(str(files.path)).findings == ()
    lost = msgspec.msgpack.encode([1, "relay.lost", {"first": 13, "last": 20, "reason": "missing"}])
    files.active(oracle.segment_of([[lost]], 21))
    (files.path / "acknowledged").unlink()
    report = verify_path(str(files.path))
    assert (report.findings, report.refusal) == ((), None)
    (files.path / ROTATED).rename(files.path / "journal/left")
    assert [(one.first, one.last) for one in verify_path(str(files.path)).findings] == [(7, 20)]


def test_a_live_relay_that_misses_a_segment_is_damaged(files):
    (files.path / ROTATED).unlink()
    with contextlib.closing(open_state_directory(str(files.path))) as daemon:
        assert daemon.lock()
        report = verify_path(str(files.path))
    assert [(one.reason, one.first, one.last) for one in report.findings] == [("missing", 7, 12)]
    assert "with the daemon stopped, `relayd salvage" in report.findings[0].hint


def test_hints_name_the_state_directory_and_the_relay_and_what_salvage_would_do(files):
    command = f"`relayd salvage {files.state} {relay_files.NAME}`"
    content = (files.path / ACTIVE).read_bytes()
    path = files.path / ACTIVE
    hints = []
    for ordinal in (14, 17):
        path.write_bytes(content)
        flip(path, content.index(body(ordinal)) + 20)
        (one,) = verify_path(str(files.path)).findings
        hints.append(one.hint)
    assert hints[0] == f"{command} gives up what of these is damaged, and nothing else; a backup may have them"
    assert hints[1].startswith(f"{command} keeps what is before these")
    (one,) = verify_path(str(path)).findings
    assert one.hint == f"`relayd salvage --tail {files.state} {relay_files.NAME}` accepts the loss"


def test_below_the_base_nothing_is_to_be_done(files):
    for name in ("snapshot", "snapshot.previous"):
        files.put(name, snapshot(12, 6))
    flip(files.path / SEALED, 40)
    (one,) = verify_path(str(files.path)).findings
    assert one.hint.startswith("nothing: no reader is owed these any more")


def test_a_directory_that_is_no_state_directory_and_one_that_is(files, tmp_path):
    (tmp_path / "adir").mkdir()
    with pytest.raises(NotFoundError, match="adir is no state directory: it has no `relays`"):
        list(verify_state(str(tmp_path / "adir")))
    with pytest.raises(NotFoundError, match=f"`relayd verify --all {files.state}`"):
        verify_path(str(files.state))
