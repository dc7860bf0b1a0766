"""What `relays`, `open`, `status`, `delete`, `acknowledge` and `forget` print (docs/reference/cli.md, "Documents")."""

import json

import click
import pytest

from relayd.cli import options
from relayd.protocol.cursor import Cursor
from relayd.protocol.kinds import RetentionBytes

ZEROS = "0" * 32


def test_relays_is_an_aligned_table_without_tabs(client, command):
    done = command("relays")
    assert done.out == (
        "RELAY  STATE     LATEST  ON DISK\n"
        "build  idle          12  2.0 KiB\n"
        "x      not open       -        -\n"
    )  # fmt: skip
    assert (done.code, done.err) == (0, "")


def test_no_relays_is_no_data_and_a_hint(client, command):
    client.entries = []
    done = command("relays")
    assert (done.out, done.code) == ("", 0)
    assert "relayd open --create" in done.err
    assert command("relays", "--json").out == "[]\n"


def test_relays_json_is_the_documented_list(client, command):
    assert json.loads(command("relays", "--json").out) == [
        {"relay": "build", "open": True, "latest_ordinal": 12, "execution": "idle", "disk_bytes": 2048},
        {"relay": "x", "open": False, "latest_ordinal": None, "execution": None, "disk_bytes": None},
    ]


@pytest.mark.parametrize(
    ("text", "retention"),
    [
        ("checkpointed", "checkpointed"),
        ("acknowledged", "acknowledged"),
        ("4096", RetentionBytes(4096)),
        ("64MiB", RetentionBytes(64 * 2**20)),
        ("1 GiB", RetentionBytes(2**30)),
    ],
)
def test_open_takes_each_retention(text, retention, client, command):
    assert command("open", "--create", "--retention", text, "--max-active", "2", "build").code == 0
    assert client.calls == [("open", "build", True, retention, 2)]


def test_open_prints_the_cursor_and_tells_the_rest(client, command):
    done = command("open", "build")
    assert (done.out, done.err) == (f"3-{ZEROS}\n", "opened relay build, store 000102030405060708090a0b0c0d0e0f\n")
    assert json.loads(command("open", "build", "--json", "--create").out) == {
        "relay": "build", "store": "000102030405060708090a0b0c0d0e0f", "latest": f"3-{ZEROS}", "created": True,
    }  # fmt: skip


def test_status_json_is_the_documented_map(client, command):
    assert json.loads(command("status", "build", "--json").out) == {
        "relay": "build", "store": "000102030405060708090a0b0c0d0e0f", "execution": "idle",
        "execution_since_ms": 1_700_000_000_000, "last_event_at_ms": 1_700_000_000_123, "latest": f"3-{ZEROS}",
        "acknowledged": f"2-{ZEROS}", "floor": None, "retained": f"0-{ZEROS}", "evicted": f"0-{ZEROS}",
        "retention": "checkpointed", "retention_bytes": None, "max_active": 1, "consumers": {"archive": f"2-{ZEROS}"},
        "readers": 1,
        "disk_bytes": 4096, "journal_bytes": 2048, "trouble": None,
        "active": [], "queued": [], "queued_count": 0, "in_flight": [], "barrier": None, "config": {},
    }  # fmt: skip


def test_status_for_people_names_every_part(client, command):
    lines = command("status", "build").out.splitlines()
    shown = dict(line.split("  ", 1) for line in lines)
    assert {name.strip() for name in shown} == {
        "relay", "store", "execution", "latest", "acknowledged", "floor", "retained", "evicted", "retention",
        "max_active", "commands", "readers", "on disk", "consumer archive", "trouble",
    }  # fmt: skip
    assert any(line.endswith("nothing") and line.startswith("evicted") for line in lines)


def test_delete_without_a_terminal_needs_yes(client, command):
    done = command("delete", "build")
    assert done.code == 64
    assert "--yes says it is meant" in done.err
    assert all(call[0] != "delete_relay" for call in client.calls)


def test_delete_removes_the_relay_that_was_looked_at(client, command):
    done = command("delete", "build", "--yes")
    assert (done.code, done.out, done.err) == (0, "", "removed relay build\n")
    assert json.loads(command("delete", "build", "--yes", "--json").out) == {
        "relay": "build", "store": "000102030405060708090a0b0c0d0e0f",
    }  # fmt: skip
    assert client.calls[-1] == ("delete_relay", "build", client.store)


def test_acknowledge_and_forget_say_which_consumer(client, command):
    done = command("acknowledge", "build", f"3-{ZEROS}", "--consumer", "archive")
    assert (done.out, done.code) == (f"3-{ZEROS}\n", 0)
    assert json.loads(command("acknowledge", "build", f"3-{ZEROS}", "--json").out) == {
        "relay": "build", "consumer": "controller", "through": f"3-{ZEROS}", "retained": f"0-{ZEROS}",
    }  # fmt: skip
    done = command("forget", "build", "archive", "--json")
    assert (done.code, json.loads(done.out)) == (0, {"relay": "build", "consumer": "archive"})
    assert done.err == "forgot consumer archive of relay build\n"
    assert client.calls == [
        ("acknowledge", "build", Cursor(3, bytes(16)), "archive"),
        ("acknowledge", "build", Cursor(3, bytes(16)), "controller"),
        ("forget_consumer", "build", "archive"),
    ]


def test_a_consumer_that_is_not_there_is_told_and_nothing_forgotten(client, command):
    done = command("forget", "build", "archve")
    assert (done.code, done.out, client.calls) == (66, "", [])
    assert done.err == "relayd: relay build has no consumer archve, and nothing was forgotten; it has archive\n"


@pytest.mark.parametrize(
    ("size", "code", "said"),
    [
        ("10", 64, "'10' is 10 bytes; events go by whole segments, and the smallest there can be has 4KiB: that is"),
        ("0", 64, "that is the least"),
        ("1MiB", 0, "events go by whole segments: at least one is kept, 8.0 MiB where `segment_bytes` is not set\n"),
        ("8MiB", 0, "made relay build"),
    ],
)
def test_a_retention_under_one_segment_is_told_what_the_least_is(size, code, said, client, command):
    done = command("open", "--create", "--retention", size, "build")
    assert done.code == code
    assert said.strip() in " ".join(done.err.split())
    assert ("whole segments" in done.err) == (size != "8MiB")


def test_consumers_and_relays_of_a_state_directory_complete(client, tmp_path):
    for name in ("build", "deploy", ".hidden"):
        (tmp_path / "relays" / name).mkdir(parents=True)
    context = click.Context(click.Command("x"))
    option = click.Option(["--x"])
    assert options.complete_consumer(context, option, "") == []
    context.params.update(relay="build", state=str(tmp_path))
    assert [item.value for item in options.complete_consumer(context, option, "a")] == ["archive"]
    assert [item.value for item in options.complete_relay_of_state(context, option, "")] == ["build", "deploy"]
    assert [item.value for item in options.complete_retention(context, option, "ack")] == ["acknowledged"]
    context.params.update(state=str(tmp_path / "no"))
    assert options.complete_relay_of_state(context, option, "") == []


def test_relay_names_complete_from_the_daemons_list(client):
    context = click.Context(click.Command("x"))
    found = options._complete_relay(context, click.Option(["--x"]), "b")
    assert [item.value for item in found] == ["build"]
