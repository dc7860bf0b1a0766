"""The file in which `relayd follow` keeps how far it has printed."""

import os
from pathlib import Path

import click

from relayd.protocol.cursor import Cursor, format_cursor, parse_cursor


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
        raise click.UsageError(f"{path} holds no cursor; put one there, or remove it to begin anew")
    return cursor


def write_cursor_file(path: Path, cursor: Cursor) -> None:
    """Replaces the file whole: whoever reads it, after a power cut too, finds an old cursor or this one."""
    fresh = path.with_name(f".{path.name}.new")
    with fresh.open("w", encoding="ascii") as file:
        file.write(format_cursor(cursor) + "\n")
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
