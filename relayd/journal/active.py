"""How a file comes to stand under the name active.log (docs/reference/journal.md, "Segment and group")."""

import contextlib
import errno
from typing import Final, NamedTuple

from relayd.journal.names import ACTIVE, NEW, WATERMARK
from relayd.journal.segment import SEGMENT_HEADER_BYTES, SegmentHeader, decode_segment_header, encode_segment_header
from relayd.journal.storage import Directory, File
from relayd.journal.watermark import Watermark, encode_watermark
from relayd.protocol.limits import MIB

ACTIVE_NEW: Final = ACTIVE + NEW
_COPY_BYTES: Final = MIB


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
    """A fresh, empty, synced active.log, over whatever stands there. Raises OSError; the file that stood there is then kept or replaced whole."""
    file = prepare_active(journal, store, segment)
    try:
        install_active(journal)
    except OSError:
        file.close()
        raise
    return file


def rescue_active(relay: Directory, journal: Directory, synced: SyncedEnd) -> File:
    """Replaces active.log, whose sync failed, by a new file with its bytes 0 to `synced.offset`; gives that file.

    A sync that failed is never tried again on its file: the system has marked the pages clean, and the next sync would
    succeed without them (docs/reference/journal.md, "When a write or a sync fails"). The new file keeps the segment id,
    because the groups' headers carry it: the one exception to a fresh id for every file.

    Raises OSError: EIO where active.log does not begin with segment `synced.segment`, or ends before `synced.offset`.
    """
    fresh = open_fresh(journal, ACTIVE_NEW)
    try:
        _copy(journal, fresh, synced)
        fresh.sync()
    except OSError:
        drop_prepared(journal, fresh)
        raise
    try:
        install_active(journal)
    except OSError:
        fresh.close()
        raise
    with contextlib.suppress(OSError), contextlib.closing(open_or_make(relay, WATERMARK)) as watermark:
        watermark.write((encode_watermark(Watermark(*synced)),), 0)
    return fresh


def _copy(journal: Directory, fresh: File, synced: SyncedEnd) -> None:
    with contextlib.closing(journal.open(ACTIVE, "read")) as old:
        header = decode_segment_header(old.read(SEGMENT_HEADER_BYTES, 0))
        if header is None or header.segment != synced.segment:
            raise OSError(errno.EIO, f"active.log does not begin with the header of segment {synced.segment.hex()}")
        at = 0
        while at < synced.offset:
            part = old.read(min(_COPY_BYTES, synced.offset - at), at)
            if not part:
                raise OSError(errno.EIO, f"active.log ends at {at}; {synced.offset} bytes of it were synced")
            fresh.write((part,), at)
            at += len(part)


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
