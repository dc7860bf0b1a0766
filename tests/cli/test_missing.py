"""`cat`, `verify` and `salvage` on what is missing, held, or none of relayd's: lines and exit codes."""

import contextlib
import json

import pytest
from support import oracle
from support.relays import RelayDisk, name, sealed, segment, snapshot

from relayd.journal.real_storage import open_state_directory


@pytest.fixture
def disk(tmp_path):
    """Three sealed, three rotated and two active events; the middle segment is gone."""
    disk = RelayDisk(tmp_path).put_segments({name(1, 3, ".log.zst"): sealed(1, 3, b"A" * 16)})
    content = segment(2, first=7)
    return disk.active(content, marked=len(content)).put(snapshot=snapshot(6))


def test_a_missing_segment_is_a_gap_and_a_finding(disk, command):
    done = command("cat", str(disk.path))
    lines = [json.loads(line) for line in done.out.splitlines()]
    assert done.code == 65
    assert lines[3] == {"gap": {"reason": "unreadable", "first_ordinal": 4, "last_ordinal": 6, "cursor": "6"}}
    assert [line.get("ordinal") for line in lines] == [1, 2, 3, None, 7, 8]
    assert "journal: events 4 to 6 are missed: they were answered, and are in no file" in done.err
    done = command("verify", str(disk.path))
    assert done.code == 65
    first, hint, refusal, last = done.out.splitlines()
    assert first == "missing: journal: no file holds these (events 4 to 6)"
    assert f"`relayd salvage {disk.root} demo`" in hint
    assert refusal == "the relay does not open (journal_gap)"
    assert last.endswith(": damaged")
    document = json.loads(command("verify", "--json", str(disk.path)).out)
    (finding,) = document["findings"]
    assert (finding["reason"], finding["first_ordinal"], finding["last_ordinal"]) == ("missing", 4, 6)
    assert "journal_gap" in document["refusal"]


def test_collected_events_are_a_gap_and_no_damage(disk, command):
    disk.put_segments({name(4, 6): segment(3, first=4, segment=b"B" * 16)}).put(snapshot=snapshot(6, base=3))
    (disk.journal / name(1, 3, ".log.zst")).unlink()
    done = command("cat", str(disk.path))
    assert (done.code, "events 1 to 3 are no longer kept" in done.err) == (0, True)
    assert json.loads(done.out.splitlines()[0])["gap"]["reason"] == "evicted"
    assert command("verify", str(disk.path)).code == 0


def test_files_that_are_none_of_relayds(command, tmp_path):
    path = tmp_path / "x.backup"
    path.write_bytes(b"")
    done = command("cat", str(path))
    assert (done.code, f"{path}: no segment, empty" in done.err) == (65, True)
    done = command("verify", str(path))
    assert (done.code, "no file of relayd's: empty" in done.out, "salvage" in done.out) == (65, True, False)
    done = command("verify", "--all", str(tmp_path))
    assert (done.code, "is no state directory: it has no `relays`" in done.err) == (66, True)


def test_salvage_of_a_relay_that_is_open_can_be_tried_again(disk, command):
    (disk.root / "holder").write_bytes(b'{"pid":4711,"socket":"/s"}')
    with (
        contextlib.closing(open_state_directory(str(disk.root))) as state,
        contextlib.closing(open_state_directory(str(disk.path))) as relay,
    ):
        assert state.lock()
        assert relay.lock()
        done = command("salvage", str(disk.root), "demo")
    assert done.code == 75
    assert "a daemon (pid 4711) has relay `demo` open; stop it, run this again, and start it." in done.err


def test_salvage_says_where_an_end_is_only_a_bound(command, tmp_path):
    RelayDisk(tmp_path).put(snapshot=snapshot(6), watermark=oracle.watermark(b"W" * 16, 5000))
    done = command("salvage", str(tmp_path), "demo")
    assert done.code == 0
    assert "given up: ordinals 7 to " in done.out
    assert "some of which may never have been used" in done.out
