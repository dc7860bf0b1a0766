"""`relayd verify`: what it prints of what it found, and its exit codes (docs/reference/cli.md, "verify --json")."""

import json

import pytest
from support.relays import RelayDisk, ends, name, sealed, segment


@pytest.fixture
def disk(tmp_path):
    """A relay of three sealed and four active events."""
    disk = RelayDisk(tmp_path)
    disk.put_segments({name(1, 3, ".log.zst"): sealed(1, 3, b"A" * 16)})
    content = segment(2, 2, first=4)
    return disk.active(content, marked=len(content))


def damage(disk):
    """Damages event 4."""
    path = disk.journal / "active.log"
    content = bytearray(path.read_bytes())
    content[48 + 64 + 28 + 5] ^= 1
    path.write_bytes(bytes(content))


def test_a_sound_relay_is_one_line_with_sizes_and_a_rate(disk, command):
    done = command("verify", str(disk.path))
    assert (done.code, done.err) == (0, "")
    (line,) = done.out.splitlines()
    assert line.startswith(f"{disk.path}: 3 files, 7 records, ")
    assert "/s): no damage" in line


def test_damage_is_told_with_its_place_its_cost_and_what_to_do(disk, command):
    damage(disk)
    done = command("verify", str(disk.path))
    assert done.code == 65
    assert "damaged: journal/active.log at byte " in done.out
    assert "(events 4 to 4)" in done.out
    assert "relayd salvage" in done.out
    assert done.out.endswith(": damaged\n")


def test_the_json_lines_are_the_documented_ones(disk, command):
    damage(disk)
    (line,) = map(json.loads, command("verify", "--json", str(disk.path)).out.splitlines())
    assert set(line) == {
        "path", "damaged", "files", "records", "size_bytes", "seconds", "live", "in_flight_bytes", "refusal",
        "findings",
    }  # fmt: skip
    assert (line["damaged"], line["live"], line["in_flight_bytes"]) == (True, False, 0)
    assert "journal_corrupt" in line["refusal"]
    finding = line["findings"][0]
    assert set(finding) == {"file", "reason", "what", "hint", "offset_bytes", "first_ordinal", "last_ordinal"}
    assert (finding["file"], finding["first_ordinal"], finding["last_ordinal"]) == ("journal/active.log", 4, 4)


def test_all_relays_of_a_state_directory_are_checked(disk, command, tmp_path):
    lines = [json.loads(line) for line in command("verify", "--all", "--json", str(tmp_path)).out.splitlines()]
    assert [line["path"] for line in lines] == [str(disk.path)]


def test_a_torn_end_is_told_and_is_no_damage(disk, command):
    content = segment(2, 3, first=4)
    disk.active(content[: ends(2, 3, first=4)[2].end - 9], marked=ends(2, first=4)[1].end)
    done = command("verify", str(disk.path))
    assert done.code == 0
    assert done.out.startswith("torn: journal/active.log at byte ")


def test_each_file_by_itself_is_checked(disk, command):
    files = [str(path) for path in sorted(disk.journal.iterdir())]
    assert command("verify", *files).code == 0
    damage(disk)
    assert command("verify", *files).code == 65
