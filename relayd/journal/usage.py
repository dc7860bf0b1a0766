"""What a relay takes of the disk."""

from typing import NamedTuple

from relayd.journal.names import JOURNAL
from relayd.journal.storage import Directory


class Usage(NamedTuple):
    """Bytes of all files of a relay, and of its journal alone."""

    disk_bytes: int
    journal_bytes: int


def measure(relay: Directory) -> Usage:
    """The sizes of all files below a relay's directory, as they are now. Raises OSError."""
    whole = _sum(relay)
    journal_bytes = 0
    for entry in relay.entries():
        if entry.kind == "directory":
            below = relay.directory(entry.name)
            try:
                size = _sum(below)
            finally:
                below.close()
            whole += size
            if entry.name == JOURNAL:
                journal_bytes = size
    return Usage(whole, journal_bytes)


def _sum(directory: Directory) -> int:
    found = (directory.stat(entry.name) for entry in directory.entries() if entry.kind == "file")
    return sum(known[1] for known in found if known is not None)
