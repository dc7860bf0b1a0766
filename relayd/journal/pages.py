"""Reading pages of records from files (docs/reference/journal.md, "Reading").

A page costs what is in it: of a sealed segment the index and the frames needed are read, of a file of groups the
stretch from the nearest known group on. Every frame and group is proven before its records are handed out; the digests
of the records are the client's to check. A reader may be used by many threads at once.
"""

import contextlib
from array import array
from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple, Self

from relayd.journal.cache import RecentlyUsed
from relayd.journal.catalogue import Segment, View
from relayd.journal.groups import (
    INDEX_EVERY_BYTES,
    GroupDamageError,
    GroupIndex,
    Place,
    index_groups,
    next_group,
    read_groups,
)
from relayd.journal.names import SegmentKind, parse_segment_name
from relayd.journal.sealed import SealedError, SealedIndex, read_frame, read_index
from relayd.journal.segment import SEGMENT_HEADER_BYTES, decode_segment_header
from relayd.journal.storage import Directory, File
from relayd.journal.taking import Taking
from relayd.journal.trouble import storage_error
from relayd.protocol.cursor import Span
from relayd.protocol.errors import RelaydError
from relayd.protocol.event import RECORD_HEADER, record_offsets
from relayd.protocol.limits import KIB, MIB

FRAMES_KEPT_BYTES: Final = 8 * MIB
INDEXES_KEPT_BYTES: Final = 2 * MIB
_ENTRY_BYTES: Final = 256
_INDEX_BYTES: Final = 1 * KIB


class Replan(Exception):  # noqa: N818 - nothing is wrong: the files have moved on
    """The file is no longer what the view says: take a new view and the base, and plan again.

    `span`: what would have been read. Where a fresh view still has the very same `segment`, somebody else has taken the
    file away, and `span` is unreadable.
    """

    def __init__(self, segment: Segment | None, span: Span) -> None:
        super().__init__(f"the file of ordinals {span.first} to {span.last} is rotated, sealed or collected")
        self.segment = segment
        self.span = span


class _Frame:
    """The records of one frame; where each begins is found out when first needed."""

    __slots__ = ("_offsets", "plain")

    def __init__(self, plain: bytes) -> None:
        self.plain = plain
        self._offsets: array[int] | None = None

    def offsets(self) -> Sequence[int]:
        # Two threads that meet here work it out twice, to the same end.
        if self._offsets is None:
            self._offsets = array("I", record_offsets(self.plain))
        return self._offsets


class PageCache(NamedTuple):
    """What the readers of all relays share; its bounds hold however many they are."""

    frames: RecentlyUsed[_Frame]
    indexes: RecentlyUsed[SealedIndex | GroupIndex]


def make_page_cache(frames_bytes: int = FRAMES_KEPT_BYTES, indexes_bytes: int = INDEXES_KEPT_BYTES) -> PageCache:
    """A cache that holds up to so many bytes of expanded frames, and of indexes."""
    return PageCache(RecentlyUsed(frames_bytes), RecentlyUsed(indexes_bytes))


class PageReader:
    """Reads one relay's files. Made anew whenever the relay opens: what is kept of files is kept per reader.

    `store`: the relay's store id; a file of another relay in a file's place is then damage.
    """

    def __init__(self, journal: Directory, cache: PageCache, store: bytes | None = None) -> None:
        self._journal = journal
        self._cache = cache
        self._store = store
        self._token = object()

    def read(self, view: View, after: int, through: int, max_bytes: int) -> bytes | Span:
        """The whole records `after` + 1 to `through`, at least one, else at most `max_bytes`.

        A page may end before either bound. A Span, which begins with `after` + 1, is what cannot be read: damaged,
        given up by salvage, or a hole between files. `through` is synced, and `after` is not below the base that was
        taken together with `view`.

        Raises Replan; StorageFailedError, where the disk fails this read.
        """
        page = Taking(after, through, max_bytes)
        while page.open:
            at = page.at
            try:
                lost = self._take(view, page)
            except (Replan, RelaydError):
                # What is in hand goes out; the next read meets the same again, if it is still so.
                if page:
                    break
                raise
            if lost is not None and not page:
                return lost
            if lost is not None or page.at == at:
                break
        return page.page()

    def digest_at(self, view: View, ordinal: int) -> bytes | None:
        """The digest of the event at `ordinal`; None where no file holds it, or it cannot be read. Raises as `read`."""
        segment = view.find(ordinal)
        if segment is None or segment.kind is SegmentKind.LOST:
            return None
        page = self.read(view, ordinal - 1, ordinal, 1)
        if isinstance(page, Span):
            return None
        digest: bytes = RECORD_HEADER.unpack_from(page)[2]
        return digest

    def _take(self, view: View, page: Taking) -> Span | None:
        """Takes what the next file has; a Span where the record behind `page.at` cannot be read."""
        wanted = page.at + 1
        segment = view.find(wanted)
        if segment is None:
            following = view.after(page.at)
            if following is None:
                raise Replan(None, Span(wanted, page.through))
            return Span(wanted, following.first - 1)
        if segment.kind is SegmentKind.LOST:
            return Span(wanted, segment.last)
        try:
            return self._take_from(segment, page)
        except OSError as error:
            doing = f"reading {self._journal.path}/{segment.name}"
            raise storage_error(error, doing) from error

    def _take_from(self, segment: Segment, page: Taking) -> Span | None:
        try:
            if segment.kind is SegmentKind.SEALED:
                return self._take_frames(segment, page)
            with contextlib.closing(self._journal.open(segment.name, "read")) as file:
                return self._take_groups(file, segment, page)
        except FileNotFoundError:
            moved = self._moved(segment)
            if moved is None:
                raise Replan(segment, Span(page.at + 1, segment.last)) from None
        return self._take_from(moved, page)

    def _moved(self, segment: Segment) -> Segment | None:
        """The same records under the name that comes next: between a renaming and the next view, or None."""
        if segment.kind is SegmentKind.SEALED:
            return None
        for entry in self._journal.entries():
            name = parse_segment_name(entry.name)
            if name is None or name.first != segment.first or name.last < segment.last:
                continue
            if name.kind is SegmentKind.ROTATED and segment.kind is SegmentKind.ACTIVE:
                return segment._replace(kind=name.kind, last=name.last)
            if name.kind is SegmentKind.SEALED:
                return Segment(name.kind, name.first, name.last)
        return None

    def _take_frames(self, segment: Segment, page: Taking) -> Span | None:
        with _Opening(self._journal, segment.name) as opening:
            try:
                index = self._sealed_index(segment, opening)
                number = index.frame_of(page.at + 1)
                while number < len(index.frames) and index.frames[number].first <= page.through:
                    entry = index.frames[number]
                    if page.declines(entry.plain_size):
                        break
                    frame = self._frame(segment, index, number, opening)
                    if not page.take(entry.first, index.last_of(number), frame.plain, frame.offsets):
                        break
                    number += 1
            except SealedError as error:
                self._prove_unchanged(segment, opening.file())
                return Span(page.at + 1, error.last or segment.last)
        return None

    def _sealed_index(self, segment: Segment, opening: "_Opening") -> SealedIndex:
        key = (self._token, segment.span)
        known = self._cache.indexes.get(key)
        if isinstance(known, SealedIndex):
            return known
        index = read_index(opening.file(), segment.span, self._store)
        self._cache.indexes.put(key, index, _INDEX_BYTES + _ENTRY_BYTES * len(index.frames))
        return index

    def _frame(self, segment: Segment, index: SealedIndex, number: int, opening: "_Opening") -> _Frame:
        key = (self._token, segment.span, number)
        known = self._cache.frames.get(key)
        if known is not None:
            return known
        frame = _Frame(read_frame(opening.file(), index, number))
        self._cache.frames.put(key, frame, len(frame.plain) + len(frame.plain) // 16)
        return frame

    def _take_groups(self, file: File, segment: Segment, page: Taking) -> Span | None:
        id_ = segment.segment or self._segment_id(file)
        if id_ is None:
            self._prove_unchanged(segment, file)
            return Span(page.at + 1, segment.last)
        index = segment.groups or self._group_index(file, segment, id_)
        end = file.size() if segment.groups is None else index.end
        place = index.place(page.at + 1) or Place(SEGMENT_HEADER_BYTES, segment.first)
        bound = index.bound(page.through)
        bound = end if bound == index.end else bound
        while True:
            try:
                for group in read_groups(file, id_, place, bound, page.room + INDEX_EVERY_BYTES):
                    if group.last <= page.at:
                        continue
                    if not page.take(group.first, group.last, group.payload, partial(record_offsets, group.payload)):
                        break
            except GroupDamageError as damage:
                self._prove_unchanged(segment, file)
                following = next_group(file, id_, damage, end)
            else:
                following = None
            if page:
                return None
            if following is None or following.first > page.at + 1:
                self._prove_unchanged(segment, file)
                return Span(page.at + 1, segment.last if following is None else following.first - 1)
            place, bound = following, end

    def _segment_id(self, file: File) -> bytes | None:
        header = decode_segment_header(file.read(SEGMENT_HEADER_BYTES, 0))
        if header is None or self._store not in (None, header.store):
            return None
        return header.segment

    def _group_index(self, file: File, segment: Segment, id_: bytes) -> GroupIndex:
        key = (self._token, segment.span)
        known = self._cache.indexes.get(key)
        if isinstance(known, GroupIndex):
            return known
        index = index_groups(file, id_, segment.first, file.size())
        self._cache.indexes.put(key, index, _INDEX_BYTES + _ENTRY_BYTES * len(index))
        return index

    def _prove_unchanged(self, segment: Segment, file: File) -> None:
        """Damage is said only of the file that the view means: raises FileNotFoundError where another has its name."""
        found = self._journal.stat(segment.name)
        same = found is not None and found[0] == file.identity
        if same and segment.kind is SegmentKind.ACTIVE:
            header = decode_segment_header(file.read(SEGMENT_HEADER_BYTES, 0))
            same = header is None or segment.segment in (None, header.segment)
        if not same:
            raise FileNotFoundError(segment.name)


class _Opening:
    """A file that is opened when first needed: what the cache has costs no call."""

    def __init__(self, journal: Directory, name: str) -> None:
        self._journal = journal
        self._name = name
        self._file: File | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        if self._file is not None:
            self._file.close()

    def file(self) -> File:
        """The open file. Raises as Directory.open."""
        if self._file is None:
            self._file = self._journal.open(self._name, "read")
        return self._file
