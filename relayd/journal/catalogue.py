"""The files of one relay's journal, in the order of their ordinals (docs/internals/architecture.md, "The rooms").

`Catalogue` has one owner, who changes it; readers in any thread take a `View`, which never changes, and find a file by
ordinal in it. A reader whose file has been rotated, sealed or collected meanwhile takes a new view and plans again.
"""

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from relayd.journal.groups import GroupIndex
from relayd.journal.names import ACTIVE, SegmentKind, SegmentName
from relayd.journal.segment import SEGMENT_HEADER_BYTES
from relayd.journal.writer import Written


class Segment(NamedTuple):
    """One file: the ordinals `first` to `last` (`first` - 1 where it holds none), and what is known of it.

    `size`: its bytes on disk. `segment`: the segment id of a file of groups, None where it must be read from it.
    `groups`: where its groups stand; None where a reader has to look first.
    """

    kind: SegmentKind
    first: int
    last: int
    size: int = 0
    segment: bytes | None = None
    groups: GroupIndex | None = None

    @property
    def span(self) -> SegmentName:
        """Kind and range, as names.py has them."""
        return SegmentName(self.kind, self.first, self.last)

    @property
    def name(self) -> str:
        """The file's name."""
        return ACTIVE if self.kind is SegmentKind.ACTIVE else self.span.text


class View(NamedTuple):
    """The files at one moment: `settled` in the order of their ordinals, then the active segment."""

    settled: tuple[Segment, ...]
    active: Segment | None

    def find(self, ordinal: int) -> Segment | None:
        """The file that holds `ordinal`, or the span that lost it; None where no file does."""
        active = self.active
        if active is not None and active.first <= ordinal:
            return active if ordinal <= active.last else None
        number = bisect_right(self.settled, ordinal, key=_first_of) - 1
        if number < 0 or self.settled[number].last < ordinal:
            return None
        return self.settled[number]

    def after(self, ordinal: int) -> Segment | None:
        """The first file that holds, or lost, anything behind `ordinal`."""
        number = bisect_left(self.settled, ordinal + 1, key=_last_of)
        if number < len(self.settled):
            return self.settled[number]
        return self.active if self.active is not None and self.active.last > ordinal else None

    def segments(self) -> tuple[Segment, ...]:
        """All files, oldest first, the active one too."""
        return self.settled if self.active is None else (*self.settled, self.active)


class Catalogue:
    """Which files there are. Changed by one owner; `view` may be called from any thread."""

    def __init__(self, settled: Iterable[Segment] = (), active: Segment | None = None) -> None:
        """`settled`: the files that no longer change, in any order. `active`: with all its groups in `groups`."""
        self._settled = tuple(sorted(settled, key=_first_of))
        self._active = active
        self._lock = threading.Lock()
        if active is not None and active.groups is None:
            self._active = active._replace(groups=GroupIndex())

    def view(self) -> View:
        """The files as they are now."""
        with self._lock:
            return View(self._settled, self._active)

    def find(self, ordinal: int) -> Segment | None:
        """The file that holds `ordinal` now."""
        return self.view().find(ordinal)

    def append_group(self, written: Written, first: int, last: int) -> None:
        """The active segment has one more group, with the ordinals `first` to `last`."""
        active = self._active
        assert active is not None, "a group is appended to an active segment"
        assert active.groups is not None, "an active segment's groups are known"
        active.groups.add(first, written.offset, written.end)
        begins = first if active.last < active.first else active.first
        with self._lock:
            self._active = active._replace(first=begins, last=last, size=written.end)

    def rotated(self, name: SegmentName, fresh: bytes | None = None) -> None:
        """The active segment has got `name`; a new one stands in its place, with the segment id `fresh`."""
        active = self._active
        assert active is not None, "only an active segment is rotated"
        assert (active.first, active.last) == (name.first, name.last), "a segment is named by what it holds"
        settled = active._replace(kind=SegmentKind.ROTATED)
        following = name.last + 1
        with self._lock:
            self._settled = (*self._settled, settled)
            self._active = Segment(SegmentKind.ACTIVE, following, name.last, SEGMENT_HEADER_BYTES, fresh, GroupIndex())

    def sealed(self, name: SegmentName, sealed_bytes: int) -> None:
        """The rotated segment of this range is a sealed one now; nothing changes where it has been dropped."""
        self._settle(
            Segment(SegmentKind.SEALED, segment.first, segment.last, sealed_bytes)
            if (segment.first, segment.last) == (name.first, name.last)
            else segment
            for segment in self._settled
        )

    def dropped(self, names: Iterable[str]) -> None:
        """These files are to be unlinked; readers find them no longer. Said before they are."""
        gone = frozenset(names)
        self._settle(segment for segment in self._settled if segment.name not in gone)

    def _settle(self, settled: Iterable[Segment]) -> None:
        made = tuple(settled)
        with self._lock:
            self._settled = made


def _first_of(segment: Segment) -> int:
    return segment.first


def _last_of(segment: Segment) -> int:
    return segment.last
