"""The cursor file of `relayd follow`: replaced whole, never read as what it is not."""

import pytest

from relayd.cli.cursor_file import CursorFileError, check_cursor_file, read_cursor_file, write_cursor_file
from relayd.protocol.cursor import Cursor


def test_no_file_is_a_fresh_start(tmp_path):
    assert read_cursor_file(tmp_path / "cursor") is None


@pytest.mark.parametrize("cursor", [Cursor(0, bytes(16)), Cursor(42), Cursor(7, bytes(range(16)))])
def test_what_is_written_is_read_again_and_nothing_else_is_left(cursor, tmp_path):
    path = tmp_path / "cursor"
    write_cursor_file(path, Cursor(1))
    write_cursor_file(path, cursor)
    assert read_cursor_file(path) == cursor
    assert [entry.name for entry in tmp_path.iterdir()] == ["cursor"]


@pytest.mark.parametrize("content", [b"", b"\n", b"x", b"-1", b"42-zz", b"\xff\xff"])
def test_a_file_without_a_cursor_is_refused_not_taken_for_a_fresh_start(content, tmp_path):
    path = tmp_path / "cursor"
    path.write_bytes(content)
    with pytest.raises(CursorFileError, match="holds no cursor"):
        read_cursor_file(path)
    assert path.read_bytes() == content


def test_a_directory_that_is_not_there_is_told_with_the_files_own_name(tmp_path):
    path = tmp_path / "no" / "cursor"
    with pytest.raises(FileNotFoundError) as raised:
        check_cursor_file(path)
    assert raised.value.filename == str(path)
    check_cursor_file(tmp_path / "cursor")


def test_what_cannot_be_written_is_named_as_the_user_did_and_stays(tmp_path):
    path = tmp_path / "cursor"
    path.write_text("7\n")
    (tmp_path / ".cursor.new").mkdir()
    with pytest.raises(OSError, match="nothing was replaced") as raised:
        write_cursor_file(path, Cursor(8))
    assert raised.value.filename == str(path)
    assert path.read_text() == "7\n"
