"""`relayd follow`: lines, gaps, and the cursor file after what it stands for."""

import json

import pytest

from relayd.cli import follow
from relayd.client.events import Gap
from relayd.protocol.cursor import Cursor, Span, format_cursor
from relayd.protocol.errors import DesynchronizedError

GAP = Gap("evicted", Span(1, 5), Cursor(5, bytes(16)))


@pytest.fixture
def three(make_event):
    return [
        make_event(1, data={"stream": "stdout", "text": "Compiling \x1b[2J"}),
        make_event(2, kind="tick"),
        make_event(3, kind="row", data={"a": [b"\x00", 1.5]}, producer=("p", 9), command_id="command-1"),
    ]


def test_lines_for_people_show_the_text_and_cannot_steer_the_terminal(three, make_page, client, command, monkeypatch):
    monkeypatch.setattr("relayd.cli.printers.format_time", lambda at: f"<{at}>")
    client.pages_given = [make_page(*three)]
    assert command("follow", "build", "--no-wait").out == (
        "1  <1700000000123>  output  Compiling \\x1b[2J\n"
        "2  <1700000000123>  tick\n"
        '3  <1700000000123>  row  {"a":[{"$base64":"AA=="},1.5]}\n'
    )
    assert client.calls == [("pages", "build", "earliest", False)]


def test_json_lines_are_the_documented_ones(three, make_page, client, command):
    client.pages_given = [make_page(*three)]
    lines = [json.loads(line) for line in command("follow", "build", "--json").out.splitlines()]
    assert lines[1] == {
        "ordinal": 2, "cursor": format_cursor(three[1].cursor), "at_ms": 1_700_000_000_123, "kind": "tick",
    }  # fmt: skip
    assert lines[2]["data"] == {"a": [{"$base64": "AA=="}, 1.5]}
    assert (lines[2]["producer"], lines[2]["command_id"]) == ({"name": "p", "sequence": 9}, "command-1")


def test_a_gap_is_told_on_standard_error_and_as_a_json_line(make_event, make_page, client, command):
    client.pages_given = [make_page(make_event(6), gap=GAP)]
    done = command("follow", "build", "--json")
    first, second = map(json.loads, done.out.splitlines())
    assert first == {
        "gap": {"reason": "evicted", "first_ordinal": 1, "last_ordinal": 5, "cursor": "5-" + "0" * 32}
    }  # fmt: skip
    assert second["ordinal"] == 6
    assert done.err == "gap: events 1 to 5 are no longer kept; going on after 5\n"
    text = command("follow", "build")
    assert len(text.out.splitlines()) == 1
    assert text.err == done.err


def test_count_ends_in_the_middle_of_a_page(three, make_page, client, command, tmp_path):
    client.pages_given = [make_page(*three[:1]), make_page(*three[1:])]
    file = tmp_path / "cursor"
    done = command("follow", "build", "-n", "2", "--json", "--cursor-file", str(file))
    assert [json.loads(line)["ordinal"] for line in done.out.splitlines()] == [1, 2]
    assert file.read_text() == format_cursor(three[1].cursor) + "\n"


@pytest.mark.parametrize(
    ("arguments", "after"),
    [
        ([], "earliest"),
        (["--from", "latest"], "latest"),
        (["--after", "7"], Cursor(7)),
        (["--after", "7-" + "0" * 32], Cursor(7, bytes(16))),
    ],
)
def test_where_it_begins(arguments, after, client, command):
    command("follow", "build", *arguments)
    assert client.calls == [("pages", "build", after, True)]


def test_a_cursor_files_directory_is_looked_at_first_and_named_as_given(client, command, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    done = command("follow", "build", "--cursor-file", "no/cursor")
    assert (done.code, done.out, client.calls) == (66, "", [])
    assert done.err == "relayd: no/cursor: there is no directory no to keep it in\n"


def test_a_cursor_file_without_a_cursor_is_bad_data(client, command, tmp_path):
    (tmp_path / "cursor").write_text("x")
    done = command("follow", "build", "--cursor-file", str(tmp_path / "cursor"))
    assert (done.code, client.calls) == (65, [])


@pytest.mark.parametrize("kept", [False, True])
def test_a_cursor_of_another_history_says_what_to_run(kept, client, command, monkeypatch, tmp_path):
    file = tmp_path / "cursor"
    file.write_text("7\n")

    def refuse(*_arguments, **_more):
        raise DesynchronizedError("the cursor is ahead")

    monkeypatch.setattr(client, "pages", refuse)
    done = command("follow", "build", *(["--cursor-file", str(file)] if kept else ["--after", "7"]))
    remove = f"remove {file} and " if kept else ""
    assert done.code == 65
    assert done.err.splitlines()[-1] == f"  to read from the beginning, {remove}run it with --from earliest"


def test_a_cursor_file_says_where_to_go_on(client, command, tmp_path):
    file = tmp_path / "cursor"
    command("follow", "build", "--cursor-file", str(file))
    file.write_text("7\n")
    command("follow", "build", "--from", "latest", "--cursor-file", str(file))
    assert [call[2] for call in client.calls] == ["earliest", Cursor(7)]


def test_following_from_latest_keeps_the_cursor_before_the_first_event(client, command, tmp_path):
    """Two followings that follow each other miss nothing, though the first saw no event."""
    file = tmp_path / "cursor"
    command("follow", "build", "--from", "latest", "--cursor-file", str(file))
    assert file.read_text() == format_cursor(client.latest) + "\n"
    assert client.calls == [("attach", "build", "latest"), ("pages", "build", client.latest, True)]


def test_the_cursor_is_kept_only_after_its_events_were_flushed(three, make_page, client, command, monkeypatch):
    order = []

    class Stream:
        def writelines(self, lines):
            order.append(("write", len(list(lines))))

        def write(self, line):
            order.append(("write", line))

        def flush(self):
            order.append("flush")

    monkeypatch.setattr(follow, "data_stream", Stream)
    monkeypatch.setattr(follow, "write_cursor_file", lambda _path, cursor: order.append(cursor.ordinal))
    client.pages_given = [make_page(gap=GAP), make_page(*three)]
    command("follow", "build", "--cursor-file", "cursor")
    assert order == [("write", b""), ("write", 0), "flush", 5, ("write", 3), "flush", 3]
