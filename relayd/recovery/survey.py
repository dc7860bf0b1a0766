"""What an opening starts from: names, headers, the small files, active.log (docs/reference/journal.md, "Opening", 1-3).

Reads and changes nothing. Every call that the disk fails refuses the open as `storage_failed`: a read error is never
the end of a file, nor the absence of one. A process that is out of descriptors learns nothing of the disk: that OSError
passes as it is.
"""

import contextlib
from collections.abc import Generator, Iterator
from typing import NamedTuple

from relayd.journal.active import SyncedEnd
from relayd.journal.names import ACKNOWLEDGED, ACTIVE, JOURNAL, WATERMARK, SegmentKind, SegmentName, parse_segment_name
from relayd.journal.sealed import SealedError, SealedIndex, read_index
from relayd.journal.segment import SEGMENT_HEADER_BYTES, SegmentHeader, decode_segment_header, is_later_segment
from relayd.journal.storage import Directory
from relayd.journal.trouble import lacks_descriptors
from relayd.journal.watermark import WATERMARK_BYTES, Watermark, decode_watermark
from relayd.recovery.acknowledged import AcknowledgedFile, decode_acknowledged
from relayd.recovery.checked_map import CheckedMapError, LaterFormatError, read_bounded
from relayd.recovery.refusal import OpeningError, refusal, storage_refusal
from relayd.recovery.snapshot import Generation, Generations, read_generations


class ActiveContent(NamedTuple):
    """active.log, whole. `size` is that of the file, 0 where it is `missing`.

    `content` is what counts of it: all, or its first `synced` bytes where this process saw a later sync fail.
    """

    content: bytes = b""
    size: int = 0
    missing: bool = False
    synced: int = 0
    header: SegmentHeader | None = None


class AcknowledgedContent(NamedTuple):
    """The file `acknowledged`: its bytes, and what they say; `said` is None where that is not to be believed."""

    content: bytes
    said: AcknowledgedFile | None


class Survey(NamedTuple):
    """Everything that is read before a state is chosen.

    `store` is None only where nothing that can be read tells it. `usable`: the snapshots of this store, newest first.
    `passed_over`: the names of those that are not.
    """

    relay: Directory
    journal: Directory
    names: tuple[SegmentName, ...]
    active: ActiveContent
    rotated_headers: dict[SegmentName, SegmentHeader]
    watermark: Watermark | None
    acknowledged: AcknowledgedContent | None
    store: bytes | None
    usable: tuple[Generation, ...]
    passed_over: tuple[str, ...]

    @property
    def acknowledged_cursors(self) -> list[tuple[int, bytes]]:
        """Ordinal and digest of every event that a consumer of this store said it has; genesis left out."""
        said = None if self.acknowledged is None else self.acknowledged.said
        cursors = [] if said is None else said.cursors
        return [(cursor.ordinal, cursor.digest) for cursor in cursors if cursor.ordinal and cursor.digest is not None]


@contextlib.contextmanager
def refusing(relay: Directory, file: str, doing: str = "reading it") -> Generator[None]:
    """Turns what a call on `file` raises into the refusal it means. Raises OSError where descriptors are lacking."""
    try:
        yield
    except LaterFormatError as error:
        raise refusal(relay, "later_format", str(error), file=file) from error
    except OSError as error:
        if lacks_descriptors(error):
            raise
        raise storage_refusal(relay, error, doing, file=file) from error


def survey(relay: Directory, synced: SyncedEnd | None) -> Survey:
    """Reads it. The caller holds the relay's lock, and closes `journal` in the end.

    Raises OpeningError; OSError where the process is out of descriptors, as `refusing` does everywhere.
    """
    generations = read_generations(relay, lambda name: refusing(relay, name))
    watermark = _read_watermark(relay)
    acknowledged = _read_acknowledged(relay)
    journal = _open_journal(relay, generations)
    try:
        names = _segment_names(relay, journal)
        active = _read_active(relay, journal, synced)
        headers, trouble = _read_rotated_headers(relay, journal, names)
        vote = _StoreVote(relay, journal, names, active, headers, generations, acknowledged)
        store = vote.decide(trouble)
    except BaseException:
        journal.close()
        raise
    usable = tuple(one for one in generations.usable if store in (None, one.snapshot.store))
    foreign = tuple(one.name for one in generations.usable if one not in usable)
    if acknowledged is not None and acknowledged.said is not None and store not in (None, acknowledged.said.store):
        acknowledged = acknowledged._replace(said=None)
    passed_over = (*foreign, *(name for name, _ in generations.damaged))
    return Survey(relay, journal, names, active, headers, watermark, acknowledged, store, usable, passed_over)


def _open_journal(relay: Directory, generations: Generations) -> Directory:
    try:
        with refusing(relay, JOURNAL, "opening the directory"):
            return relay.directory(JOURNAL)
    except Exception as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        reason = "snapshot_ahead" if generations.usable else "snapshot_lost"
        raise refusal(relay, reason, "the directory of the relay's events is missing", file=JOURNAL) from error


def _segment_names(relay: Directory, journal: Directory) -> tuple[SegmentName, ...]:
    """The segments but active.log, in order of ordinals. Names that are none are nobody's business."""
    with refusing(relay, JOURNAL, "listing it"):
        entries = journal.entries()
    names: list[SegmentName] = []
    for entry in entries:
        name = parse_segment_name(entry.name)
        if name is None:
            continue
        if entry.kind != "file":
            message = f"a segment's name, on what is no regular file ({entry.kind})"
            raise refusal(relay, "storage_failed", message, file=f"{JOURNAL}/{entry.name}")
        if name.kind is not SegmentKind.ACTIVE:
            names.append(name)
    return tuple(sorted(names, key=lambda name: (name.first, name.last, name.kind)))


def _read_watermark(relay: Directory) -> Watermark | None:
    with refusing(relay, WATERMARK):
        try:
            file = relay.open(WATERMARK, "read")
        except FileNotFoundError:
            return None
        with contextlib.closing(file):
            return decode_watermark(file.read(WATERMARK_BYTES, 0))


def _read_acknowledged(relay: Directory) -> AcknowledgedContent | None:
    with refusing(relay, ACKNOWLEDGED):
        content = read_bounded(relay, ACKNOWLEDGED)
        if content is None:
            return None
        try:
            return AcknowledgedContent(content, decode_acknowledged(content))
        except CheckedMapError:
            return AcknowledgedContent(content, None)


def _read_active(relay: Directory, journal: Directory, synced: SyncedEnd | None) -> ActiveContent:
    where = f"{JOURNAL}/{ACTIVE}"
    with refusing(relay, where):
        try:
            file = journal.open(ACTIVE, "read")
        except FileNotFoundError:
            return ActiveContent(missing=True)
        with contextlib.closing(file):
            size = file.size()
            content = file.read(size, 0)
    if is_later_segment(content):
        raise refusal(relay, "later_format", "a segment of a later format", file=where, offset=0)
    header = decode_segment_header(content)
    if header is None or synced is None or header.segment != synced.segment:
        return ActiveContent(content, size, header=header)
    # What follows was written before a sync that failed: it may be in memory only, whatever a read shows.
    return ActiveContent(content[: synced.offset], size, synced=synced.offset, header=header)


def _read_rotated_headers(
    relay: Directory, journal: Directory, names: tuple[SegmentName, ...]
) -> tuple[dict[SegmentName, SegmentHeader], OpeningError | None]:
    """The headers that can be read, and the refusal for one that the disk fails.

    Such a file may lie below the base, where nothing fails an open; above it, it fails again where it is read whole.
    """
    headers: dict[SegmentName, SegmentHeader] = {}
    trouble: OpeningError | None = None
    for name in names:
        if name.kind is not SegmentKind.ROTATED:
            continue
        where = f"{JOURNAL}/{name.text}"
        try:
            with refusing(relay, where), contextlib.closing(journal.open(name.text, "read")) as file:
                header = decode_segment_header(file.read(SEGMENT_HEADER_BYTES, 0))
        except OpeningError as error:
            trouble = trouble or error
            continue
        if header is not None:
            headers[name] = header
    return headers, trouble


def peek_sealed(journal: Directory, name: SegmentName) -> SealedIndex | None:
    """The index of a sealed segment; None where it cannot be read, which no opening depends on."""
    with contextlib.suppress(OSError, SealedError), contextlib.closing(journal.open(name.text, "read")) as file:
        return read_index(file, name)
    return None


def sealed_newest_first(journal: Directory, names: tuple[SegmentName, ...]) -> Iterator[SealedIndex]:
    """The readable indexes, each read as it is asked for: a start does not pay for its history."""
    for name in reversed(names):
        index = peek_sealed(journal, name) if name.kind is SegmentKind.SEALED else None
        if index is not None:
            yield index


class _StoreVote(NamedTuple):
    """Which store this is. A file of another relay is told by standing alone."""

    relay: Directory
    journal: Directory
    names: tuple[SegmentName, ...]
    active: ActiveContent
    rotated: dict[SegmentName, SegmentHeader]
    generations: Generations
    acknowledged: AcknowledgedContent | None

    def decide(self, trouble: OpeningError | None) -> bytes | None:
        """The store id; None where nothing says one. Raises OpeningError: `journal_conflict`, or `trouble`.

        `trouble`: a header that the disk failed to read; it is nobody's trouble where others tell the store.
        """
        store = self._decide()
        if store is None and trouble is not None:
            raise trouble
        return store

    def _decide(self) -> bytes | None:
        said = {one.snapshot.store for one in self.generations.usable}
        store = self._by_headers()
        if store is None:
            store = said.pop() if len(said) == 1 else self._by_sealed()
            if store is None and said:
                raise self._conflict("the snapshots belong to two relays, and no segment tells which is this one's")
            return store
        if said and store not in said and store not in self._witnesses():
            message = (
                f"its store id is {store.hex()}, every snapshot here has {', '.join(sorted(map(bytes.hex, said)))}"
            )
            raise self._conflict(message)
        return store

    def _by_headers(self) -> bytes | None:
        if self.active.header is not None:
            return self.active.header.store
        return self.rotated[max(self.rotated)].store if self.rotated else None

    def _by_sealed(self) -> bytes | None:
        newest = next(sealed_newest_first(self.journal, self.names), None)
        return None if newest is None else newest.store

    def _witnesses(self) -> set[bytes | None]:
        """The stores of what stands beside active.log."""
        acknowledged = None if self.acknowledged is None else self.acknowledged.said
        others = {header.store for header in self.rotated.values()} if self.active.header is not None else set[bytes]()
        return {*others, self._by_sealed(), None if acknowledged is None else acknowledged.store}

    def _conflict(self, message: str) -> Exception:
        file = f"{JOURNAL}/{ACTIVE}" if self.active.header is not None else JOURNAL
        return refusal(self.relay, "journal_conflict", message, file=file)
