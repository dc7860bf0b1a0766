"""Putting a page together from blocks of whole records: groups and frames."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import NamedTuple

from relayd.protocol.event import Buffer


class Cut(NamedTuple):
    """A run of records inside a block: its bytes `start` to `stop`, and the last ordinal in it."""

    start: int
    stop: int
    last: int


def cut_block(offsets: Sequence[int], size: int, first: int, *, after: int, through: int, max_bytes: int) -> Cut:
    """The records `after` + 1 to `through` of a block, at least one, else at most `max_bytes`.

    The block has `size` bytes; its records begin at `offsets`, the first one with ordinal `first`. `after` + 1 is one
    of its ordinals, or lies before it.
    """
    begin = max(0, after + 1 - first)
    end = min(len(offsets), through + 1 - first)
    start = offsets[begin]
    if (offsets[end] if end < len(offsets) else size) - start > max_bytes:
        end = max(begin + 1, bisect_right(offsets, start + max_bytes, begin + 1, end) - 1)
    return Cut(start, offsets[end] if end < len(offsets) else size, first + end - 1)


class Taking:
    """A page while it grows: the records behind `at`, up to `through`, in at most `max_bytes` unless one is larger."""

    def __init__(self, after: int, through: int, max_bytes: int) -> None:
        self.at = after
        self.through = through
        self.room = max(1, max_bytes)
        self._enough = max_bytes // 2
        self._full = False
        self._blocks: list[Buffer] = []

    def __bool__(self) -> bool:
        return bool(self._blocks)

    @property
    def open(self) -> bool:
        """Whether more is wanted."""
        return not self._full and self.at < self.through and self.room > 0

    def declines(self, size: int) -> bool:
        """Whether a block of `size` bytes need not be read: it does not fit, and the page is worth sending as it is."""
        self._full = self._full or (bool(self._blocks) and self.room <= self._enough and size > self.room)
        return self._full

    def take(self, first: int, last: int, block: Buffer, offsets: Callable[[], Sequence[int]]) -> bool:
        """Takes of a block, `first` to `last`, what is wanted and fits; whether the page can go on behind it.

        `offsets` is asked only where the block is not taken whole: a page that ends where a block does costs no walk
        through its records.
        """
        size = len(block)
        if self.at + 1 == first and last <= self.through and size <= self.room:
            self._add(block, last)
        elif not self.declines(size):
            cut = cut_block(offsets(), size, first, after=self.at, through=self.through, max_bytes=self.room)
            self._full = cut.last < last
            if cut.stop - cut.start > self.room and self._blocks:
                self._full = True
            else:
                self._add(block[cut.start : cut.stop], cut.last)
        return self.open

    def page(self) -> bytes:
        """The page: one block as it is where it is the only one, else all joined."""
        if len(self._blocks) == 1 and isinstance(self._blocks[0], bytes):
            return self._blocks[0]
        return b"".join(self._blocks)

    def _add(self, block: Buffer, last: int) -> None:
        self._blocks.append(block)
        self.room -= len(block)
        self.at = last
