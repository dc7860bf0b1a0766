"""`relayd backup`: events that cannot be had, and what stands in the file's place before (docs/reference/cli.md)."""

import json

import pytest

from relayd.client.events import Gap
from relayd.protocol.cursor import Cursor, Span

GAP = Gap("unreadable", Span(2, 2), Cursor(2))


@pytest.fixture
def damaged(make_event, make_page, client):
    """A relay of three events; the second cannot be read."""
    first, third = make_event(1), make_event(3)
    client.latest = third.cursor
    client.pages_given = [make_page(first), make_page(gap=GAP), make_page(third)]


@pytest.mark.parametrize(("flags", "code"), [((), 65), (("--allow-missing",), 0)])
def test_a_backup_with_missing_events_is_written_where_there_is_none(flags, code, damaged, command, tmp_path):
    file = tmp_path / "b"
    done = command("backup", "build", "-o", str(file), "--json", *flags)
    document = json.loads(done.out)
    assert (done.code, document["records"]) == (code, 2)
    assert document["missing"] == [{"first_ordinal": 2, "last_ordinal": 2}]
    assert file.exists()
    assert "missing: events 2 to 2" in done.err


def test_a_file_that_is_there_is_not_replaced_by_one_with_missing_events(damaged, command, tmp_path):
    file = tmp_path / "b"
    file.write_bytes(b"a better one")
    done = command("backup", "build", "-o", str(file))
    assert (done.code, file.read_bytes()) == (65, b"a better one")
    assert "events 2 to 2 of build cannot be had (unreadable)" in done.err
    assert [entry.name for entry in tmp_path.iterdir()] == ["b"]
    assert command("backup", "build", "-o", str(file), "--allow-missing").code == 0
    assert file.read_bytes() != b"a better one"


def test_what_cannot_be_written_is_named_as_the_user_did(damaged, command, tmp_path):
    done = command("backup", "build", "-o", str(tmp_path / "no" / "b"))
    assert (done.code, done.err) == (
        66,
        f"relayd: {tmp_path / 'no' / 'b'}: No such file or directory; nothing was replaced\n",
    )
