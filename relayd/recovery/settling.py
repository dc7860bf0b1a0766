"""The writing half of an opening (docs/reference/journal.md, "Opening", 6 to 8).

Killed or cut off anywhere, the relay opens again to the same state: bytes are copied before they are cut, and whatever
is made gets its name when it is whole. Nothing of what was only found in the page cache is shown before it is written
again and synced.
"""

import contextlib
from collections.abc import Callable
from typing import Final, NamedTuple

from relayd.journal.active import SyncedEnd, drop_prepared, install_active, make_active, open_fresh, open_or_make
from relayd.journal.names import (
    ACKNOWLEDGED,
    ACTIVE,
    NEW,
    QUARANTINE,
    SNAPSHOT,
    SNAPSHOT_PREVIOUS,
    WATERMARK,
    SegmentKind,
    segment_name,
)
from relayd.journal.storage import Directory, File
from relayd.journal.trouble import lacks_descriptors, lacks_room
from relayd.journal.watermark import WATERMARK_BYTES, Watermark, encode_watermark
from relayd.protocol.cursor import Cursor
from relayd.recovery import acknowledged, snapshot
from relayd.recovery.checked_map import CheckedMapError
from relayd.recovery.quarantine import keep_bytes, set_aside
from relayd.recovery.reading import ACTIVE_FILE, Reading
from relayd.recovery.refusal import storage_refusal
from relayd.relay.retention import base as base_of
from relayd.relay.retention import retained

_ACTIVE_NEW: Final = ACTIVE + NEW


Bases = tuple[Cursor | None, Cursor | None]


class ActiveFile(NamedTuple):
    """active.log, open to be written: groups go in at `end`, and everything before it is synced."""

    file: File
    segment: bytes
    end: int


class Settled(NamedTuple):
    """What the writing half did. `active` is None where it lacked room (`full`): reads are served, nothing else.

    `quarantined`: names in quarantine/. `generations`: the bases of snapshot and snapshot.previous as they are on disk.
    `snapshot_trouble`: why no new snapshot was written, though one was due.
    """

    active: ActiveFile | None
    full: OSError | None
    base: Cursor
    generations: Bases
    snapshot_written: bool
    snapshot_trouble: Exception | None
    quarantined: tuple[str, ...]
    torn_bytes: int
    rewritten_bytes: int


def settle(reading: Reading, name: str, new_id: Callable[[], bytes]) -> Settled:
    """Does it. Raises OpeningError (`storage_failed`), with what the next opening has to know of a failed sync.

    Raises OSError where the process is out of descriptors, and the next opening has to know nothing new.
    """
    return _Settling(reading, name, new_id).run()


class _Settling:
    def __init__(self, reading: Reading, name: str, new_id: Callable[[], bytes]) -> None:
        self._reading = reading
        self._name = name
        self._new_id = new_id
        self._relay = reading.found.relay
        self._journal = reading.found.journal
        self._content = reading.found.active.content
        self._x = reading.verdict.x
        self._active: ActiveFile | None = None
        self._full: OSError | None = None
        self._synced = _known_synced(reading)
        """What is to be remembered of a failed sync, until active.log has a successor."""
        self._cut_is_synced = False
        self._quarantined: list[str] = []
        self._torn_bytes = 0
        self._rewritten_bytes = 0

    def run(self) -> Settled:
        try:
            for directory in (self._relay, self._journal):
                _remove_unfinished(directory)
            _remove_unfinished_copies(self._relay)
            self._mend()
            self._rewrite()
            self._rewrite_acknowledged()
            # Names that an earlier process gave may be in memory only; nothing is answered by way of them before this.
            self._journal.sync()
            self._relay.sync()
        except OSError as error:
            self._close()
            if lacks_descriptors(error) and self._synced in (None, _known_synced(self._reading)):
                # Nothing is wrong with the disk, and nothing is to be remembered that the caller does not know.
                raise
            refused = storage_refusal(
                self._relay, error, "making the journal ready to be appended to", file=ACTIVE_FILE
            )
            refused.synced = self._synced
            raise refused from error
        except BaseException:
            self._close()
            raise
        self._mark()
        return self._finish()

    def _close(self) -> None:
        if self._active is not None:
            self._active.file.close()

    # Step 6

    def _mend(self) -> None:
        """Everything that may need room; where it lacks, the rest waits, and reads are served meanwhile."""
        reading = self._reading
        if reading.found.active.synced and not reading.stale:
            self._rescue(self._content[: self._x])
        try:
            self._set_aside()
            if self._active is None:
                self._mend_active()
        except OSError as error:
            if self._synced is not None or not lacks_room(error):
                raise
            self._full = error

    def _set_aside(self) -> None:
        """What cannot be used and is not active.log; sealed copies of what a rotated file still holds."""
        reading = self._reading
        for name in reading.start.passed_over:
            self._quarantined.append(set_aside(self._relay, self._relay, name))
        if reading.found.acknowledged is not None and not reading.acknowledged_believed:
            self._quarantined.append(set_aside(self._relay, self._relay, ACKNOWLEDGED))
        for copy in reading.different:
            self._quarantined.append(set_aside(self._relay, self._journal, copy.text))
        if reading.same:
            # The sealed copies' own names have to be on disk before the names of what they copy go.
            self._journal.sync()
            for copy in reading.same:
                self._journal.unlink(segment_name(SegmentKind.ROTATED, copy.first, copy.last))
            self._journal.sync()

    def _mend_active(self) -> None:
        reading, found = self._reading, self._reading.found.active
        if reading.stale:
            self._keep(f"{ACTIVE}.stale", self._content)
        elif reading.verdict.word == "torn":
            self._keep(f"{ACTIVE}.{reading.end + 1:020}.torn", self._content[self._x : reading.verdict.used])
            self._torn_bytes = reading.verdict.used - self._x
        if reading.stale or reading.verdict.header is None:
            self._make_anew()
            return
        file = self._journal.open(ACTIVE, "update")
        self._active = ActiveFile(file, reading.verdict.header.segment, self._x)
        if found.size > self._x:
            file.truncate(self._x)
            self._sync_active()
            self._cut_is_synced = True

    def _keep(self, name: str, content: bytes) -> None:
        self._quarantined.append(keep_bytes(self._relay, name, content))

    def _make_anew(self) -> None:
        store = self._reading.state.store
        segment = self._new_id()
        file = make_active(self._journal, store, segment)
        self._active = ActiveFile(file, segment, file.size())

    # Step 7

    def _rewrite(self) -> None:
        """Writes what is not known synced over itself: a sync that failed leaves pages that only look written.

        Synced also where nothing is written: what was cut back behind a write that failed has to be gone from the disk
        before the next group is written in its place.
        """
        reading = self._reading
        watermark = reading.found.watermark
        header = reading.verdict.header
        if header is None or reading.stale or self._x == 0 or reading.found.active.synced:
            return
        start = watermark.offset if watermark is not None and watermark.segment == header.segment else 0
        if start == self._x and self._cut_is_synced:
            return
        if self._active is None:
            self._active = ActiveFile(self._journal.open(ACTIVE, "update"), header.segment, self._x)
        if start < self._x:
            self._active.file.write((memoryview(self._content)[start : self._x],), start)
            self._rewritten_bytes = self._x - start
        self._sync_active()

    def _sync_active(self) -> None:
        """One sync, never a second one on the same file: where it fails, a new file takes its place, nothing cut."""
        assert self._active is not None, "it is open"
        try:
            self._active.file.sync()
        except OSError:
            self._synced = SyncedEnd(self._active.segment, self._x)
            self._active.file.close()
            self._active = None
            self._rescue(self._content[: self._x])

    def _rescue(self, content: bytes) -> None:
        """A new file with these bytes, and the same segment id, replaces active.log."""
        header = self._reading.verdict.header
        assert header is not None, "bytes that were synced begin with a header"
        file = open_fresh(self._journal, _ACTIVE_NEW)
        try:
            file.write((content,), 0)
            file.sync()
        except OSError:
            drop_prepared(self._journal, file)
            raise
        try:
            install_active(self._journal)
        except OSError:
            file.close()
            raise
        self._active = ActiveFile(file, header.segment, len(content))
        self._synced = None

    def _rewrite_acknowledged(self) -> None:
        found = self._reading.found.acknowledged
        if found is None or not self._reading.acknowledged_believed:
            return
        with contextlib.closing(self._relay.open(ACKNOWLEDGED, "update")) as file:
            file.write((found.content,), 0)
            try:
                file.sync()
            except OSError:
                # As with active.log: not that file again.
                acknowledged.replace_content(self._relay, found.content)

    def _mark(self) -> None:
        """The watermark, never synced; failing to write it costs the next opening a rewrite, nothing else."""
        if self._active is None:
            return
        content = encode_watermark(Watermark(self._active.segment, self._active.end))
        with contextlib.suppress(OSError), contextlib.closing(open_or_make(self._relay, WATERMARK)) as file:
            if file.read(WATERMARK_BYTES + 1, 0) != content:
                file.write((content,), 0)
                file.truncate(WATERMARK_BYTES)

    # Step 8

    def _finish(self) -> Settled:
        reading = self._reading
        state = reading.state
        needed = retained(state.retention, state.floor, reading.acknowledgements)
        base = max(reading.start.base, base_of(needed, state.evicted), key=lambda one: one.ordinal)
        generations = _generations(reading)
        trouble: Exception | None = None
        due = self._full is None and (reading.folded_events > 0 or None in generations)
        if due:
            generations, trouble = self._write_snapshot(base, generations)
        if self._full is not None:
            self._close()
        return Settled(
            active=None if self._full is not None else self._active,
            full=self._full,
            base=base,
            generations=generations,
            snapshot_written=due and trouble is None,
            snapshot_trouble=trouble,
            quarantined=tuple(self._quarantined),
            torn_bytes=self._torn_bytes,
            rewritten_bytes=self._rewritten_bytes,
        )

    def _write_snapshot(self, base: Cursor, before: Bases) -> tuple[Bases, Exception | None]:
        """One that fails answers nobody: its owner tries again."""
        try:
            snapshot.write_new(self._relay, snapshot.encode_snapshot(self._name, self._reading.state, base))
        except (OSError, CheckedMapError) as error:
            with contextlib.suppress(OSError):
                self._relay.unlink(snapshot.SNAPSHOT_NEW)
            return before, error
        try:
            snapshot.install(self._relay)
        except OSError as error:
            # Between two renames: what stands under which name is not known, and nothing may be collected by it.
            return (None, None), error
        return (base, before[0] or before[1]), None


def _known_synced(reading: Reading) -> SyncedEnd | None:
    active = reading.found.active
    return SyncedEnd(active.header.segment, active.synced) if active.synced and active.header is not None else None


def _generations(reading: Reading) -> Bases:
    """The bases of the generations that stay."""
    stay = {one.name: one.snapshot.base for one in reading.found.usable if one.name not in reading.start.passed_over}
    return stay.get(SNAPSHOT), stay.get(SNAPSHOT_PREVIOUS)


def _remove_unfinished(directory: Directory) -> None:
    for entry in directory.entries():
        if entry.kind == "file" and entry.name.endswith(NEW):
            directory.unlink(entry.name)


def _remove_unfinished_copies(relay: Directory) -> None:
    try:
        quarantine = relay.directory(QUARANTINE)
    except FileNotFoundError:
        return
    with contextlib.closing(quarantine):
        _remove_unfinished(quarantine)
