"""`relayd salvage`: what it prints of what it did, and its exit codes (docs/reference/cli.md, "salvage --json")."""

import json

import pytest
from support.relays import RelayDisk, ends, segment


@pytest.fixture
def damaged(tmp_path):
    """A relay of seven events, the second one's bytes damaged."""
    content = bytearray(segment(1, 3, 3))
    content[ends(1, 3, 3)[1].end + 64 + 28 + 5] ^= 1
    return RelayDisk(tmp_path).active(bytes(content), marked=len(content))


def test_what_was_damaged_given_up_and_rescued_is_printed_and_the_relay_opens(damaged, command, tmp_path):
    rescued = tmp_path / "rescued.jsonl"
    done = command("salvage", str(tmp_path), "demo", "--rescued", str(rescued))
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0].startswith("damaged: journal/active.log at byte ")
    assert lines[0].endswith(": events 2 to 2")
    assert lines[1] == "given up: events 2 to 7"
    assert lines[2] == f"rescued: 5 events in {rescued}"
    assert lines[-1] == "relay demo opens again"
    events = [json.loads(line) for line in rescued.read_text().splitlines()]
    assert [event["ordinal"] for event in events] == [3, 4, 5, 6, 7]
    assert events[0]["producer"] == {"name": "p", "sequence": 3}
    damaged.look()
    assert command("salvage", str(tmp_path), "demo").out == "relay demo opens as it is: nothing was changed\n"


def test_the_json_document_is_the_documented_one(damaged, command, tmp_path):
    document = json.loads(command("salvage", str(tmp_path), "demo", "--json").out)
    assert set(document) == {
        "relay", "changed", "opens", "refusal", "damages", "marked", "lost", "rescued_events", "rescued_file",
        "written", "quarantined",
    }  # fmt: skip
    assert (document["changed"], document["opens"], document["refusal"]) == (True, True, None)
    assert document["lost"] == {"first_ordinal": 2, "last_ordinal": 7}
    (damage,) = document["damages"]
    assert set(damage) == {"file", "offset_bytes", "what", "first_ordinal", "last_ordinal"}
    assert (damage["first_ordinal"], damage["last_ordinal"]) == (2, 2)


def test_an_undecidable_tail_is_left_alone_until_its_loss_is_accepted(command, tmp_path):
    content = bytearray(segment(1, 3))
    content[-1] ^= 1
    disk = RelayDisk(tmp_path).active(bytes(content), marked=ends(1, 3)[1].end)
    before = disk.tree()
    done = command("salvage", str(tmp_path), "demo")
    assert done.code == 69
    assert "--tail" in done.err
    assert disk.tree() == before
    assert command("salvage", str(tmp_path), "demo", "--tail").code == 0
    disk.look()


@pytest.mark.parametrize("name", ["nothing", "../x", "NO"])
def test_a_relay_that_is_not_there_is_no_input(name, command, tmp_path):
    RelayDisk(tmp_path)
    done = command("salvage", str(tmp_path), name)
    assert done.code == 66
    assert f"no relay `{name}`" in done.err
