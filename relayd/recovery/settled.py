"""Reading the segments that no longer change: rotated ones group by group, sealed ones only where they are needed.

docs/reference/journal.md, "Opening", 2 to 5. One segment, or one frame of a sealed one, is in memory at once.
"""

import contextlib
import hashlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from relayd.journal.catalogue import Segment
from relayd.journal.groups import GroupIndex
from relayd.journal.names import JOURNAL, SegmentKind, SegmentName
from relayd.journal.sealed import (
    LaterSealedFormatError,
    SealedError,
    SealedIndex,
    read_frame,
    read_index,
    verify_sealed,
)
from relayd.journal.segment import (
    SEGMENT_HEADER_BYTES,
    Group,
    decode_segment_header,
    is_later_group,
    is_later_segment,
    walk_groups,
)
from relayd.journal.storage import Directory, File
from relayd.protocol.cursor import Span
from relayd.protocol.event import RecordError, iter_records, verify_records
from relayd.recovery.folding import Folder, Place, gap
from relayd.recovery.refusal import OpeningError, refusal
from relayd.recovery.survey import Survey, refusing


class SettledReader(NamedTuple):
    """Reads settled segments of one journal into `folder`. `state_ordinal`: where the state stood before any fold."""

    found: Survey
    folder: Folder
    state_ordinal: int

    @property
    def _relay(self) -> Directory:
        return self.found.relay

    def read(self, name: SegmentName, hole: Span | None, copy: SegmentName | None) -> tuple[Segment, bool]:
        """Proves and folds one segment behind `hole`; `copy` is the sealed copy of a rotated one.

        Gives what the catalogue keeps of it, and whether the copy holds the same. Raises OpeningError.
        """
        if name.kind is SegmentKind.ROTATED:
            return self._read_rotated(name, hole, copy)
        if name.kind is SegmentKind.LOST:
            self._accept_lost(name, hole)
        elif hole is not None or self.folder.wants_fold(name.last):
            self._read_sealed(name, hole)
        return Segment(name.kind, name.first, name.last), False

    def _accept_lost(self, name: SegmentName, hole: Span | None) -> None:
        if hole is not None:
            raise gap(self._relay, hole, _path(name))
        if self.state_ordinal < name.last:
            raise gap(self._relay, Span(max(name.first, self.state_ordinal + 1), name.last), _path(name))

    def _read_rotated(self, name: SegmentName, hole: Span | None, copy: SegmentName | None) -> tuple[Segment, bool]:
        with refusing(self._relay, _path(name)), contextlib.closing(self._open(name)) as file:
            content = file.read(file.size(), 0)
        index = GroupIndex()
        stream = hashlib.blake2b(digest_size=32)
        for group in self._prove_rotated(name, content):
            place = Place(_path(name), group.offset)
            self.folder.take(group.payload, group.first, group.last, place, hole)
            hole = None
            index.add(group.first, group.offset, group.end)
            if copy is not None:
                stream.update(group.payload)
        segment = content[24:40]
        found = Segment(SegmentKind.ROTATED, name.first, name.last, len(content), segment, index)
        return found, copy is not None and self._is_same(copy, segment, stream.digest())

    def _prove_rotated(self, name: SegmentName, content: bytes) -> Iterator[Group]:
        """The groups of a file whose every byte was synced before it got its name. Raises OpeningError."""
        self._prove_header(name, content)
        x, last = SEGMENT_HEADER_BYTES, name.first - 1
        for group in walk_groups(content, content[24:40], expected_first=name.first):
            if group.last > name.last:
                break
            yield group
            x, last = group.end, group.last
        if last == name.last and x == len(content):
            return
        if is_later_group(content, x):
            raise refusal(self._relay, "later_format", "a group of a later format", file=_path(name), offset=x)
        lost = f"ordinals {last + 1} to {name.last} cannot be read from here on"
        message = lost if last < name.last else f"{len(content) - x} bytes stand behind its last ordinal, {last}"
        raise refusal(self._relay, "journal_corrupt", message, file=_path(name), offset=x)

    def _prove_header(self, name: SegmentName, content: bytes) -> None:
        header = decode_segment_header(content)
        if header is None:
            if is_later_segment(content):
                raise refusal(self._relay, "later_format", "a segment of a later format", file=_path(name), offset=0)
            message = f"its header does not check; it holds the ordinals {name.first} to {name.last}"
            raise refusal(self._relay, "journal_corrupt", message, file=_path(name), offset=0)
        self._prove_store(name, header.store)

    def _prove_store(self, name: SegmentName, store: bytes) -> None:
        if store != self.found.store:
            expected = "" if self.found.store is None else f", this relay's is {self.found.store.hex()}"
            message = f"it is another relay's: its store id is {store.hex()}{expected}"
            raise refusal(self._relay, "journal_conflict", message, file=_path(name))

    def _read_sealed(self, name: SegmentName, hole: Span | None) -> None:
        """Folds the frames that lie after the state; the first one is read for a hole's sake too."""
        with refusing(self._relay, _path(name)), contextlib.closing(self._open(name)) as file:
            try:
                index = self._index(file, name)
                for number, frame in enumerate(index.frames):
                    last = index.last_of(number)
                    if hole is None and not self.folder.wants_fold(last):
                        continue
                    plain = read_frame(file, index, number)
                    verify_records(plain, frame.first - 1)
                    self.folder.take(plain, frame.first, last, Place(_path(name), frame.offset), hole)
                    hole = None
            except SealedError as error:
                raise self._damaged(name, error, hole) from error
            except RecordError as error:
                message = f"a frame expands to records that are not right: {error}"
                raise refusal(self._relay, "journal_corrupt", message, file=_path(name)) from error

    def _index(self, file: File, name: SegmentName) -> SealedIndex:
        index = read_index(file, name)
        self._prove_store(name, index.store)
        return index

    def _damaged(self, name: SegmentName, error: SealedError, hole: Span | None) -> OpeningError:
        file = _path(name)
        if isinstance(error, LaterSealedFormatError):
            return refusal(self._relay, "later_format", str(error), file=file)
        if hole is not None:
            return gap(self._relay, hole, file)
        first, last = error.first or name.first, error.last or name.last
        message = f"{error}; the state needs the ordinals {first} to {last} of it"
        return refusal(self._relay, "journal_corrupt", message, file=file, offset=error.offset)

    def _is_same(self, copy: SegmentName, segment: bytes, stream: bytes) -> bool:
        """Whether the sealed copy is whole and holds the rotated file's records, and nothing else."""
        with refusing(self._relay, _path(copy)), contextlib.closing(self._open(copy)) as file:
            if verify_sealed(file, copy, self.found.store):
                return False
            index = read_index(file, copy, self.found.store)
        return (index.segment, index.stream) == (segment, stream)

    def digest_in(self, name: SegmentName, ordinal: int) -> bytes | None:
        """The digest at `ordinal`, which is in the range of `name`; None where it cannot be read.

        Raises OpeningError where a sealed segment is another relay's.
        """
        with contextlib.suppress(OSError, SealedError, RecordError):
            for payload in self._payloads(name, ordinal, ordinal):
                return next((record.digest for record in iter_records(payload) if record.ordinal == ordinal), None)
        return None

    def holds(self, names: Iterable[SegmentName], digests: dict[int, bytes]) -> bool:
        """Whether records with these `digests`, by ordinal, can all be read in the files `names`.

        Raises OpeningError where the disk fails a read, or a sealed segment is another relay's.
        """
        missing = dict(digests)
        first, last = min(digests, default=0), max(digests, default=0)
        for name in names:
            with refusing(self._relay, _path(name)), contextlib.suppress(SealedError, RecordError):
                for payload in self._payloads(name, first, last):
                    for record in iter_records(payload):
                        if missing.get(record.ordinal) == record.digest:
                            del missing[record.ordinal]
        return not missing

    def _payloads(self, name: SegmentName, first: int, last: int) -> Iterator[memoryview]:
        """The frames or groups with any of the records `first` to `last`, each proven. Raises OSError, SealedError."""
        if name.kind is SegmentKind.LOST or name.last < first or last < name.first:
            return
        with contextlib.closing(self._open(name)) as file:
            if name.kind is SegmentKind.SEALED:
                index = self._index(file, name)
                for number in range(index.frame_of(max(first, name.first)), index.frame_of(min(last, name.last)) + 1):
                    yield memoryview(read_frame(file, index, number))
                return
            content = file.read(file.size(), 0)
        header = decode_segment_header(content)
        groups = () if header is None else walk_groups(content, header.segment, expected_first=name.first)
        yield from (group.payload for group in groups if group.first <= last and first <= group.last)

    def _open(self, name: SegmentName) -> File:
        return self.found.journal.open(name.text, "read")


def _path(name: SegmentName) -> str:
    return f"{JOURNAL}/{name.text}"
