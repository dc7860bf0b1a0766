"""The blocking file work on active.log: append and rotate (docs/reference/journal.md, "Segment and group").

One owner calls it, one job at a time; nothing here is thread-safe. A write, a sync or a rotation that fails ends the
writer: nothing is retried and nothing rolled back, the relay opens again from disk.
"""

import contextlib
import errno
import os
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from relayd.journal.active import SyncedEnd, drop_prepared, install_active, open_or_make, prepare_active
from relayd.journal.names import ACTIVE, IDLE, WATERMARK, SegmentKind, SegmentName
from relayd.journal.place import removed
from relayd.journal.segment import GROUP_HEADER_BYTES, SEGMENT_HEADER_BYTES, encode_group_header
from relayd.journal.storage import Directory, File, Identity
from relayd.journal.trouble import lacks_descriptors, lacks_room
from relayd.journal.watermark import Watermark, encode_watermark
from relayd.protocol.event import Buffer

GROWTH_MAX: Final = 4
"""Where it cannot rotate, the active segment grows to this many times its size."""


class Batch(msgspec.Struct, frozen=True, gc=False):
    """What one group carries: `count` records from ordinal `first` on, encoded, whole records across the buffers."""

    first: int
    count: int
    payload: Sequence[Buffer]


class Written(NamedTuple):
    """Where a synced group stands: from `offset` to `end` of the segment that begins with ordinal `file_first`."""

    file_first: int
    offset: int
    end: int


class Rotated(NamedTuple):
    """The segment that was active until now: its name, and its size in bytes."""

    name: SegmentName
    size: int


class WriterError(Exception):
    """The writer is dead; the relay opens again. `error` is the disk's.

    `synced` goes into that opening: set where a sync failed, after which the system may show bytes that are not on
    disk. None where none did: the opening then needs no copy of active.log, for which a full disk has no room.
    """

    def __init__(self, error: OSError, synced: SyncedEnd | None = None) -> None:
        super().__init__(str(error))
        self.error = error
        self.synced = synced


class WriteFailedError(WriterError):
    """A group was not written, and active.log was cut back to where it would have begun, as far as the disk let it."""


class SyncFailedError(WriterError):
    """A sync of active.log failed: past `synced`, bytes may be in memory only. This file is never synced again."""


class RotateFailedError(WriterError):
    """A rotation failed where names may have changed; every byte of the segments is on disk.

    `synced` is set where the fresh segment has its name, and only the directory's sync failed.
    """


class Writer:
    """Appends groups to active.log, which it owns from now on, and rotates it.

    `first` is the ordinal of the first record in active.log, or of the next one where it holds none; `end` is where the
    next group goes, and everything before it is synced. `new_id` gives 16 random bytes. `watermark_failed` hears of a
    watermark that could not be written, which has no other consequence.
    """

    def __init__(
        self,
        relay: Directory,
        journal: Directory,
        store: bytes,
        *,
        active: File,
        segment: bytes,
        first: int,
        next_ordinal: int,
        end: int,
        new_id: Callable[[], bytes],
        segment_bytes: int,
        watermark_failed: Callable[[OSError], None] | None = None,
    ) -> None:
        self._relay = relay
        self._journal = journal
        self._store = store
        self._active = active
        self._segment = segment
        self._first = first
        self._next = next_ordinal
        self._end = end
        self._new_id = new_id
        self._segment_bytes = segment_bytes
        self._watermark_failed = watermark_failed
        self._watermark: File | None = None
        self._may_be_idle = True
        self._alive = True

    @property
    def synced_end(self) -> SyncedEnd:
        """What this process knows synced of the active segment."""
        return SyncedEnd(self._segment, self._end)

    @property
    def active_first(self) -> int:
        """The ordinal of the first record in active.log, or of the next one where it holds none."""
        return self._first

    @property
    def last_ordinal(self) -> int:
        """The last synced ordinal."""
        return self._next - 1

    @property
    def active_bytes(self) -> int:
        """The size of active.log."""
        return self._end

    @property
    def needs_rotation(self) -> bool:
        """Whether active.log has reached its size; then `rotate` is called before the next group is answered."""
        return self._end >= self._segment_bytes and self._next > self._first

    def commit(self, batch: Batch) -> Written:
        """Writes one group and syncs it; when this returns, it may be answered and shown.

        Raises WriteFailedError, SyncFailedError, or RelayRemovedError where the relay's directory or active.log is no
        longer what its path names: writes into a removed file succeed and say nothing.
        """
        self._begin()
        assert batch.first == self._next, "ordinals follow each other"
        self._leave_idle()
        offset = self._end
        # Joined, many small buffers cost half of what a CRC and a vectored write of each cost; large ones the same.
        payload = batch.payload[0] if len(batch.payload) == 1 else b"".join(batch.payload)
        header = encode_group_header(self._segment, offset, batch.first, batch.count, (payload,))
        try:
            self._active.write((header, payload), offset)
        except OSError as error:
            with contextlib.suppress(OSError):
                self._active.truncate(offset)
            raise WriteFailedError(error) from error
        try:
            self._active.sync()
        except OSError as error:
            raise SyncFailedError(error, self.synced_end) from error
        self._end = offset + GROUP_HEADER_BYTES + len(payload)
        self._next = batch.first + batch.count
        # The watermark comes last: it may say nothing that the file now under its path does not hold.
        self._prove_place(WriteFailedError)
        self._mark()
        self._alive = True
        return Written(self._first, offset, self._end)

    def rotate(self) -> Rotated | None:
        """Gives active.log its lasting name and goes on in a fresh one.

        None where there was no room or no descriptor for that: the active segment grows on. Raises WriteFailedError
        (ENOSPC) where it has grown to 4 times its size, RotateFailedError, RelayRemovedError.
        """
        self._begin()
        assert self._next > self._first, "a segment is named by its records"
        self._prove_place(RotateFailedError)
        name = SegmentName(SegmentKind.ROTATED, self._first, self._next - 1)
        segment = self._new_id()
        fresh = self._prepare(segment)
        if fresh is None or not self._move_away(name, fresh):
            self._alive = True
            return None
        try:
            install_active(self._journal)
        except OSError as error:
            fresh.close()
            raise RotateFailedError(error, self._named(segment, fresh.identity)) from error
        rotated = Rotated(name, self._end)
        with contextlib.suppress(OSError):
            self._active.close()
        self._active, self._segment, self._first, self._end = fresh, segment, self._next, SEGMENT_HEADER_BYTES
        self._mark()
        self._alive = True
        return rotated

    def close(self) -> None:
        """Gives the descriptors of active.log and the watermark back; the directories are the caller's."""
        self._alive = False
        for file in (self._active, self._watermark):
            if file is not None:
                file.close()

    def _begin(self) -> None:
        """Refuses work for a dead writer; it is alive again when its job succeeds."""
        if not self._alive:
            raise ValueError("this writer met an error or was closed; the relay opens again from disk")
        self._alive = False

    def _leave_idle(self) -> None:
        """Removes `idle` before the first write: a relay with something pending must not look closed."""
        if not self._may_be_idle:
            return
        try:
            with contextlib.suppress(FileNotFoundError):
                self._relay.unlink(IDLE)
                self._relay.sync()
        except OSError as error:
            raise WriteFailedError(error) from error
        self._may_be_idle = False

    def _mark(self) -> None:
        """Writes the watermark, never synced."""
        try:
            if self._watermark is None:
                self._watermark = open_or_make(self._relay, WATERMARK)
            self._watermark.write((encode_watermark(Watermark(self._segment, self._end)),), 0)
        except OSError as error:
            if self._watermark_failed is not None:
                self._watermark_failed(error)

    def _in_place(self) -> bool:
        """Whether the relay's directory, its journal and active.log are still what their paths name."""
        if not self._relay.still_there() or not self._journal.still_there():
            return False
        named = self._journal.stat(ACTIVE)
        return named is not None and named[0] == self._active.identity

    def _prove_place(self, unproven: type[WriterError]) -> None:
        try:
            in_place = self._in_place()
        except OSError as error:
            raise unproven(error) from error
        if not in_place:
            raise removed(self._relay)

    def _prepare(self, segment: bytes) -> File | None:
        """The fresh segment, still under its unfinished name; None where there is no room or no descriptor."""
        try:
            return prepare_active(self._journal, self._store, segment)
        except OSError as error:
            self._prove_place(RotateFailedError)
            if not (lacks_room(error) or lacks_descriptors(error)):
                raise RotateFailedError(error) from error
            self._grow_on(error)
            return None

    def _move_away(self, name: SegmentName, fresh: File) -> bool:
        """Renames active.log to `name`; False where the directory has no room for the name."""
        try:
            if self._journal.stat(name.text) is not None:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name.text)
            self._journal.replace(ACTIVE, name.text)
        except OSError as error:
            drop_prepared(self._journal, fresh)
            if not lacks_room(error):
                raise RotateFailedError(error) from error
            self._prove_place(RotateFailedError)
            self._grow_on(error)
            return False
        return True

    def _grow_on(self, error: OSError) -> None:
        if self._end >= GROWTH_MAX * self._segment_bytes:
            full = OSError(errno.ENOSPC, f"active.log has {self._end} bytes and cannot be rotated: {error}")
            raise WriteFailedError(full) from error

    def _named(self, segment: bytes, fresh: Identity) -> SyncedEnd | None:
        """What is known synced under active.log where the fresh segment has that name already."""
        with contextlib.suppress(OSError):
            named = self._journal.stat(ACTIVE)
            if named is not None and named[0] == fresh:
                return SyncedEnd(segment, SEGMENT_HEADER_BYTES)
        return None
