"""`relayd record`: which events lines become, and that a named producer goes on where it stood."""

import json

import pytest

from relayd.cli import record
from relayd.cli.record import JSON_LINE_BYTES_MAX
from relayd.client.backoff import Backoff
from relayd.protocol.cursor import GENESIS
from relayd.protocol.errors import OverloadedError, StorageFullError


def recorded(client):
    return client.producer_given.recorded


def test_a_line_is_an_output_event(client, command):
    done = command("record", "build", stdin=b"one\ntwo\xff\n\nlast")
    assert recorded(client) == [
        ("output", {"stream": "stdout", "text": "one"}, None),
        ("output", {"stream": "stdout", "bytes": b"two\xff"}, None),
        ("output", {"stream": "stdout", "text": ""}, None),
        ("output", {"stream": "stdout", "text": "last"}, None),
    ]
    assert (done.code, done.out, done.err) == (0, "", "recorded 4 events in build, through 5\n")


def test_kind_stream_and_command_are_as_given(client, command):
    arguments = ("--kind", "log", "--stream", "stderr", "--command-id", "command-1")
    command("record", "build", *arguments, stdin=b"one\n")
    assert recorded(client) == [("log", {"stream": "stderr", "text": "one"}, "command-1")]


def test_a_name_is_made_that_differs_each_time(client, command):
    command("record", "build")
    command("record", "build")
    names = [call[2] for call in client.calls]
    assert len(set(names)) == 2
    assert all(name.startswith("record@") and len(name) <= 128 for name in names)


def test_create_makes_the_relay_first(client, command):
    command("record", "--create", "build")
    assert [call[0] for call in client.calls] == ["open", "producer"]


@pytest.mark.parametrize(("position", "sent", "skipped"), [(0, 3, 0), (1, 2, 1), (3, 0, 3), (9, 0, 3)])
def test_a_named_producer_skips_the_lines_that_are_there(position, sent, skipped, client, command):
    client.producer_given.position = position
    done = command("record", "build", "--producer", "import-7", "--json", "--quiet", stdin=b"1\n2\n3\n")
    assert [data["text"] for _, data, _ in recorded(client)] == ["1", "2", "3"][skipped:]
    document = json.loads(done.out)
    assert (document["recorded"], document["skipped"]) == (sent, skipped)
    assert (document["relay"], document["producer"]) == ("build", "import-7")
    assert done.err == ""


def test_nothing_recorded_has_no_cursor(client, command):
    assert json.loads(command("record", "build", "--json").out)["through"] is None
    assert GENESIS.ordinal == 0


def test_json_lines_are_events_and_what_follow_prints_is_taken(client, command):
    line = {
        "ordinal": 4,
        "cursor": "4",
        "at_ms": 1,
        "kind": "row",
        "data": {"$base64": "AA=="},
        "producer": {"name": "x"},
    }
    stdin = json.dumps(line).encode() + b'\n{"kind": "tick"}\n{"kind": "tick", "data": 1, "command_id": "command-2"}\n'
    command("record", "build", "--json-lines", "--command-id", "command-1", stdin=stdin)
    assert recorded(client) == [
        ("row", b"\x00", "command-1"),
        ("tick", None, "command-1"),
        ("tick", 1, "command-2"),
    ]


def test_blank_json_lines_are_passed_over_and_have_no_number(client, command):
    client.producer_given.position = 1
    done = command("record", "build", "--json-lines", "--json", stdin=b'\n{"kind": "a"}\n \r\n{"kind": "b"}\n\n')
    assert recorded(client) == [("b", None, None)]
    document = json.loads(done.out)
    assert (done.code, document["recorded"], document["skipped"]) == (0, 1, 1)


def test_a_json_line_has_room_for_the_largest_event(client, command):
    text = "x" * (2 * 2**20)
    done = command("record", "build", "--json-lines", "--kind", "a", stdin=json.dumps(text).encode() + b"\n1\n")
    assert (done.code, recorded(client)) == (0, [("a", text, None), ("a", 1, None)])


def test_a_json_line_over_the_bound_is_told_and_what_stands_before_is_recorded(client, command):
    line = b'"' + b"x" * JSON_LINE_BYTES_MAX + b'"'
    done = command("record", "build", "--json-lines", "--kind", "a", stdin=b"1\n" + line + b"\n2\n")
    assert (done.code, recorded(client), client.producer_given.flushes) == (65, [("a", 1, None)], 1)
    assert done.err == (
        "relayd: line 2 has more than 4259840 bytes; a line of --json-lines cannot be cut;"
        " everything before it is recorded\n"
    )


def test_a_disk_without_room_is_waited_for_before_the_relay_is_made(client, command, monkeypatch):
    refusals = [StorageFullError("x"), OverloadedError("x")]
    monkeypatch.setattr(Backoff, "next_seconds", lambda _self: 0)
    opened = client.open

    def full(*arguments, **more):
        if refusals:
            raise refusals.pop()
        return opened(*arguments, **more)

    monkeypatch.setattr(client, "open", full)
    assert command("record", "--create", "build", stdin=b"1\n").code == 0
    assert len(recorded(client)) == 1


@pytest.mark.parametrize(
    ("terminal", "arguments", "said"),
    [
        (True, (), "interrupted: recorded 2 events in build, through 3\n"),
        (True, ("--producer", "p"), "interrupted: recorded 2 events in build, through 3; run it again with the same"),
        (True, ("--quiet",), ""),
        (False, (), ""),
    ],
)
def test_an_interrupt_tells_a_person_how_far_it_is(terminal, arguments, said, client, command, monkeypatch):  # noqa: PLR0917
    def lines(*_arguments, **_more):
        yield b"1"
        yield b"2"
        client.producer_given.position = 2
        raise KeyboardInterrupt

    told = []
    monkeypatch.setattr(record, "read_lines", lines)
    monkeypatch.setattr(record, "on_terminal", lambda: terminal)
    monkeypatch.setattr(record, "say", told.append)
    with pytest.raises(KeyboardInterrupt):
        command("record", "build", *arguments)
    assert bool(told) == bool(said)
    assert "".join(told).startswith(said.strip())


def test_json_lines_with_a_kind_are_data(client, command):
    command("record", "build", "--json-lines", "--kind", "row", stdin=b'{"kind": "x"}\n[1, null]\n')
    assert recorded(client) == [("row", {"kind": "x"}, None), ("row", [1, None], None)]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{", "line 2 is no event: "),
        (b"[]", "line 2 is no event: Expected `object`"),
        (b'{"data": 1}', "missing required field `kind`"),
        (b'{"kind": "relay.created"}', "'relay.created' cannot be an event's kind"),
        (b'{"kind": "No"}', "'No' cannot be an event's kind"),
        (b'{"kind": "a", "data": {"$base64": "*"}}', "holds no base64"),
        (b'{"kind": "a", "data": 18446744073709551616}', "numbers within 64 bits"),
        (b'{"kind": "a", "command_id": "short"}', "'short' cannot be a command's id"),
        (b'{"kind": "a", "data": ' + b"[" * 62 + b"]" * 62 + b"}", "nested more than 64 deep"),
        (b'{"kind": "a", "data": ' + b"[" * 9999 + b"]" * 9999 + b"}", "nested far too deep"),
        (b'{"kind": "a", "data": "\xff"}', "line 2 is no event: "),
    ],
)
def test_a_line_that_is_no_event_ends_it_and_what_stands_before_is_recorded(line, said, client, command):
    done = command("record", "build", "--json-lines", stdin=b'{"kind": "a"}\n' + line + b'\n{"kind": "b"}\n')
    assert done.code == 65
    assert said in done.err
    assert "everything before it is recorded" in done.err
    assert recorded(client) == [("a", None, None)]
    assert client.producer_given.flushes == 1
