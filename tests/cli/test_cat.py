"""`relayd cat`: every event of files as a line, and what is missed said (docs/reference/cli.md, "Events")."""

import json

import pytest
from support.relays import RelayDisk, digest, ends, name, sealed, segment


def ordinals(done):
    """The ordinals of the events printed, and the spans of gaps, in the order printed."""
    shown = []
    for line in map(json.loads, done.out.splitlines()):
        gap = line.get("gap")
        shown.append(line["ordinal"] if gap is None else (gap["first_ordinal"], gap["last_ordinal"]))
    return shown


@pytest.fixture
def disk(tmp_path):
    """A relay of three sealed, three rotated and two active events."""
    disk = RelayDisk(tmp_path)
    disk.put_segments(
        {name(1, 3, ".log.zst"): sealed(1, 3, b"A" * 16), name(4, 6): segment(3, first=4, segment=b"B" * 16)}
    )
    content = segment(2, first=7)
    return disk.active(content, marked=len(content))


def test_a_relay_a_journal_and_each_file_are_printed(disk, command):
    for path in (disk.path, disk.journal):
        done = command("cat", str(path))
        assert (done.code, done.err, ordinals(done)) == (0, "", [1, 2, 3, 4, 5, 6, 7, 8])
    files = [str(path) for path in sorted(disk.journal.iterdir())]
    assert ordinals(command("cat", *files)) == [1, 2, 3, 4, 5, 6, 7, 8]


def test_a_line_is_the_one_that_follow_prints(disk, command):
    line = json.loads(command("cat", str(disk.path), "--after", "7").out)
    assert line == {
        "ordinal": 8, "cursor": f"8-{digest(8).hex()}", "at_ms": 1008, "kind": "output", "data": {"text": "é" * 20},
        "producer": {"name": "p", "sequence": 8},
    }  # fmt: skip


def test_what_is_damaged_is_told_and_everything_else_is_printed(disk, command):
    path = disk.journal / name(4, 6)
    content = bytearray(path.read_bytes())
    content[48 + 64 + 28 + 5] ^= 1
    path.write_bytes(bytes(content))
    done = command("cat", str(disk.path))
    assert done.code == 65
    assert ordinals(done) == [1, 2, 3, (4, 4), 5, 6, 7, 8]
    assert "events 4 to 4 are missed" in done.err


def test_a_torn_end_is_told_and_is_no_damage(disk, command):
    content = segment(2, 3, first=7)
    disk.active(content[: ends(2, 3, first=7)[2].end - 9], marked=ends(2, first=7)[1].end)
    done = command("cat", str(disk.path))
    assert (done.code, ordinals(done)) == (0, [1, 2, 3, 4, 5, 6, 7, 8])
    assert "never answered" in done.err


def test_nothing_to_read_is_no_input(command, tmp_path):
    assert command("cat", str(tmp_path)).code == 66
    assert command("cat", str(tmp_path / "nothing")).code == 66
    assert command("cat").code == 64
