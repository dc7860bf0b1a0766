"""The file in which `relayd follow` keeps how far it has printed."""

import errno
import os
from pathlib import Path

from relayd.cli.output import named
from relayd.protocol.cursor import Cursor, format_cursor, parse_cursor
from relayd.protocol.errors import RelaydError


class CursorFileError(RelaydError):
    """The file holds no cursor."""

    code = "invalid_input"


def check_cursor_file(path: Path) -> None:
    """Raises OSError where the file could not be written: told before anything is printed."""
    place = path.parent
    if not place.is_dir():
        raise FileNotFoundError(errno.ENOENT, f"there is no directory {place} to keep it in", str(path))
    if not os.access(place, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, f"this user may not write in {place}, where it would be kept", str(path))


def read_cursor_file(path: Path) -> Cursor | None:
    """The cursor in the file; None where there is no file yet. What is no cursor is never a fresh start."""
    try:
        text = path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        text = ""
    cursor = parse_cursor(text)
    if cursor is None:
        raise CursorFileError(f"{path} holds no cursor; put one there, or remove it to begin anew")
    return cursor


def write_cursor_file(path: Path, cursor: Cursor) -> None:
    """Replaces the file whole: whoever reads it, after a power cut too, finds an old cursor or this one."""
    fresh = path.with_name(f".{path.name}.new")
    with named(str(path), "nothing was replaced"):
        with fresh.open("w", encoding="ascii") as file:
            file.write(format_cursor(cursor) + "\n")
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
