"""How a file comes to stand under the name active.log (docs/reference/journal.md, "Segment and group")."""

import contextlib
from typing import Final, NamedTuple

from relayd.journal.names import ACTIVE, NEW
from relayd.journal.segment import SegmentHeader, encode_segment_header
from relayd.journal.storage import Directory, File

ACTIVE_NEW: Final = ACTIVE + NEW


class SyncedEnd(NamedTuple):
    """Bytes 0 to `offset` of the segment with id `segment` are on disk: this process saw their sync return."""

    segment: bytes
    offset: int


def prepare_active(journal: Directory, store: bytes, segment: bytes) -> File:
    """A fresh segment under the name active.log.new: its header, synced. A file of that name is removed first.

    Raises OSError; then no such file is left, as far as the disk lets it be removed.
    """
    file = open_fresh(journal, ACTIVE_NEW)
    try:
        file.write((encode_segment_header(SegmentHeader(store, segment)),), 0)
        file.sync()
    except OSError:
        drop_prepared(journal, file)
        raise
    return file


def install_active(journal: Directory) -> None:
    """Gives active.log.new, which is synced, its name, over whatever has it. Raises OSError."""
    journal.replace(ACTIVE_NEW, ACTIVE)
    journal.sync()


def make_active(journal: Directory, store: bytes, segment: bytes) -> File:
    """A fresh, synced active.log without groups, over whatever stands there.

    Raises OSError; what stood there is then still there, or replaced whole.
    """
    file = prepare_active(journal, store, segment)
    try:
        install_active(journal)
    except OSError:
        file.close()
        raise
    return file


def open_fresh(directory: Directory, name: str) -> File:
    """Creates `name` empty; what an earlier attempt left there is removed first. Raises OSError."""
    try:
        return directory.open(name, "create")
    except FileExistsError:
        directory.unlink(name)
        return directory.open(name, "create")


def open_or_make(directory: Directory, name: str) -> File:
    """Opens `name` to update it; makes it where it is missing. Raises OSError."""
    try:
        return directory.open(name, "update")
    except FileNotFoundError:
        return directory.open(name, "create")


def drop_prepared(journal: Directory, file: File) -> None:
    """Closes and removes active.log.new; what cannot be removed now, opening removes."""
    with contextlib.suppress(OSError):
        file.close()
    with contextlib.suppress(OSError):
        journal.unlink(ACTIVE_NEW)
