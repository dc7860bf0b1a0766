"""`relayd backup`: a relay in one file, as of one cut (docs/reference/journal.md, "Offline tools").

The records come from the daemon, page by page, and every one is proven on its way in. Making a relay of the file again
is relayd/recovery/restore.py; the file's layout is relayd/recovery/backup_format.py.
"""

import hashlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from relayd.journal.frames import FRAME_PLAIN_BYTES, FRAME_STORED_BYTES_MAX, FrameError, compress_frame, expand_frame
from relayd.journal.storage import File
from relayd.protocol.cursor import Span
from relayd.protocol.errors import InvalidStateError, StateDetail
from relayd.protocol.event import (
    RECORD_HEADER_BYTES,
    Buffer,
    RecordError,
    digest_of,
    iter_records,
    verify_records,
)
from relayd.recovery.backup_format import (
    SKIPPABLE,
    TAIL,
    BackupEnd,
    BackupError,
    BackupFrame,
    BackupHead,
    decode_end,
    decode_head,
    encode_end,
    encode_head,
    end_bytes,
    head_bytes,
)
from relayd.recovery.outfile import write_file
from relayd.recovery.verify_files import Finding, Progress, Tally
from relayd.relay.state import RelayState, decode_state

_HINT = "take a new one; what is damaged here cannot be mended from the file itself"


class BackupReport(msgspec.Struct, frozen=True):
    """What was written to `path`. `missing`: spans that could not be had, for they are given up or unreadable."""

    path: str
    records: int
    bytes: int
    missing: tuple[tuple[int, int], ...]


class Backup(NamedTuple):
    """A backup's two ends, proven; its frames are not. `state`: at the cut; None where it was made without."""

    head: BackupHead
    end: BackupEnd
    state: RelayState | None = None

    def missing(self) -> list[Span]:
        """The ordinals up to the cut that are in no frame."""
        spans: list[Span] = []
        at = self.head.evicted.ordinal + 1
        for frame in self.end.frames:
            if frame.first > at:
                spans.append(Span(at, frame.first - 1))
            at = frame.last + 1
        return [*spans, Span(at, self.head.latest.ordinal)] if at <= self.head.latest.ordinal else spans


def _state_of(head: BackupHead) -> RelayState | None:
    """The state that the head has. Raises ValueError where it is none, or another one's."""
    if not head.state:
        return None
    state = decode_state(head.state)
    if (state.store, state.frontier) != (head.store, head.latest):
        raise ValueError("its state is that of another store or ordinal than it says")
    return state


def write_backup(
    path: str, head: BackupHead, pages: Iterable[Buffer], progress: Progress | None = None
) -> BackupReport:
    """Writes FILE.new, syncs it, and gives it its name: `path` is there whole, or as it was.

    `pages`: whole records in order, everything after `head.evicted` that can be had; what is later than `head.latest`
    is left out. `progress` is told the bytes of records taken since its last call.

    Raises InvalidStateError where the pages are not what they should be, and nothing is written; OSError, and whatever
    `pages` raises.
    """
    try:
        _state_of(head)
    except ValueError as error:
        raise _unproven(str(error)) from error
    writing = _Writing(head)
    tally = Tally(progress)
    size = write_file(path, writing.chunks(pages, tally))
    missing = Backup(head, BackupEnd(writing.frames, b"")).missing()
    return BackupReport(path, writing.records, size, tuple((span.first, span.last) for span in missing))


class _Writing:
    """The file, chunk by chunk."""

    def __init__(self, head: BackupHead) -> None:
        self._head = head
        self._stream = hashlib.blake2b(digest_size=32)
        self._held = bytearray()
        self._first = self._last = head.evicted.ordinal
        self._offset = 0
        self.frames: list[BackupFrame] = []
        self.records = 0

    def chunks(self, pages: Iterable[Buffer], tally: Tally) -> Iterator[bytes]:
        begin = encode_head(self._head)
        self._offset = len(begin)
        yield begin
        for page in pages:
            try:
                yield from self._take(page)
            except RecordError as error:
                raise _unproven(str(error)) from error
            tally.read(len(page))
        yield from self._close_frame()
        yield encode_end(BackupEnd(self.frames, self._stream.digest()))

    def _take(self, page: Buffer) -> Iterator[bytes]:
        latest = self._head.latest
        view = memoryview(page)
        at = 0
        for ordinal, digest, body in iter_records(view):
            record = view[at : at + RECORD_HEADER_BYTES + len(body)]
            at += len(record)
            if ordinal > latest.ordinal:
                return
            if ordinal <= self._last or digest_of(ordinal, body) != digest:
                raise _unproven(f"ordinal {ordinal} is out of order, or its digest is not that of its bytes")
            if ordinal == latest.ordinal and latest.digest not in (None, digest):
                raise _unproven(f"ordinal {ordinal} has another digest than the cut that was asked for")
            if ordinal != self._last + 1 or len(self._held) + len(record) > FRAME_PLAIN_BYTES:
                yield from self._close_frame()
                self._first = ordinal
            if not self._held:
                self._first = ordinal
            self._held += record
            self._last = ordinal
            self.records += 1

    def _close_frame(self) -> Iterator[bytes]:
        if not self._held:
            return
        plain = bytes(self._held)
        self._held.clear()
        stored = compress_frame(plain)
        self._stream.update(plain)
        count = self._last - self._first + 1
        self.frames.append(BackupFrame(self._first, count, self._offset, len(stored), len(plain)))
        self._offset += len(stored)
        yield stored


def _unproven(what: str) -> InvalidStateError:
    return InvalidStateError(
        f"what the daemon sent does not verify: {what}; nothing was written", StateDetail("unverified")
    )


def read_backup(file: File) -> Backup:
    """Reads both ends of a backup. Raises BackupError, OSError."""
    size = file.size()
    begin = head_bytes(file.read(SKIPPABLE.size, 0))
    tail = file.read(TAIL.size, max(0, size - TAIL.size))
    if len(tail) < TAIL.size:
        raise BackupError("the file is too short for a backup", size)
    last = end_bytes(tail)
    if begin + last > size:
        raise BackupError("the file is shorter than its two ends", size)
    head, end = decode_head(file.read(begin, 0)), decode_end(file.read(last, size - last), size - last)
    try:
        backup = Backup(head, end, _state_of(head))
    except ValueError as error:
        raise BackupError(str(error), 0) from None
    _check_frames(backup, begin, size - last)
    return backup


def _check_frames(backup: Backup, begin: int, end: int) -> None:
    """The frames stand one after the other between the two ends, and their ordinals rise."""
    at, last = begin, backup.head.evicted.ordinal
    for frame in backup.end.frames:
        if frame.offset != at or frame.first <= last or frame.size > FRAME_STORED_BYTES_MAX:
            raise BackupError("its index contradicts itself", end)
        at, last = at + frame.size, frame.last
    if at != end or last > backup.head.latest.ordinal:
        raise BackupError("its index contradicts its head, or the size of the file", end)


def read_backup_frame(file: File, frame: BackupFrame) -> bytes:
    """The records of one frame, each proven. Raises BackupError, OSError."""
    try:
        plain = expand_frame(file.read(frame.size, frame.offset), frame.plain_size)
        records = verify_records(plain, frame.first - 1)
    except (FrameError, RecordError) as error:
        raise BackupError(str(error), frame.offset) from None
    if len(records) != frame.records:
        raise BackupError(f"a frame holds {len(records)} records where {frame.records} belong", frame.offset)
    return plain


def verify_backup(file: File, label: str, tally: Tally) -> Iterator[Finding]:
    """Every byte of a backup. Raises OSError."""
    tally.files += 1
    try:
        backup = read_backup(file)
    except BackupError as error:
        yield Finding(label, "damaged", str(error), _HINT, error.offset)
        return
    stream = hashlib.blake2b(digest_size=32)
    whole = True
    for frame in backup.end.frames:
        try:
            stream.update(read_backup_frame(file, frame))
            tally.records += frame.records
        except BackupError as error:
            whole = False
            yield Finding(label, "damaged", str(error), _HINT, error.offset, frame.first, frame.last)
        tally.read(frame.size)
    if whole and stream.digest() != backup.end.stream:
        yield Finding(label, "damaged", "the records are not those its digest was made of", _HINT, 0)
    for span in backup.missing():
        yield Finding(label, "lost", "the relay no longer had these", "nothing", None, span.first, span.last)
