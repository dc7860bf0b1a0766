"""The newest records of one relay in memory, for readers that follow it live (docs/internals/architecture.md).

It is on the way of every group: `append` costs the same however many records a group has. Records inside of a group
are looked for only where a page begins or ends in the middle of it. One owner; not thread-safe.
"""

from bisect import bisect_right
from typing import Final, NamedTuple

from relayd.journal.taking import cut_block
from relayd.protocol.event import RECORD_HEADER, record_offsets
from relayd.protocol.limits import MIB

TAIL_BYTES: Final = 2 * MIB
_COMPACT_AT: Final = 1024


class _Asked(NamedTuple):
    after: int
    through: int
    max_bytes: int


class Tail:
    """The last groups, up to `bytes_max` in all; a group larger than that leaves it empty."""

    def __init__(self, bytes_max: int = TAIL_BYTES) -> None:
        self._bytes_max = bytes_max
        self._begin = 0
        """Groups before this one are let go; their places in the lists are cleared in one stroke now and then."""
        self._firsts: list[int] = []
        self._payloads: list[bytes] = []
        self._ends: list[int] = []
        """For each group, the bytes of all groups up to its end since the tail was last cleared."""
        self._last = 0
        self._bytes = 0
        self._page: tuple[_Asked, bytes] | None = None
        self._offsets: tuple[int, list[int]] = (0, [])

    @property
    def first_ordinal(self) -> int | None:
        """The oldest ordinal in memory; None where there is none."""
        return self._firsts[self._begin] if self._begin < len(self._firsts) else None

    @property
    def last_ordinal(self) -> int | None:
        """The newest ordinal in memory; None where there is none."""
        return self._last if self._begin < len(self._firsts) else None

    @property
    def held_bytes(self) -> int:
        """The bytes of all records in memory."""
        return self._bytes

    def append(self, first: int, count: int, payload: bytes) -> None:
        """One more group: `count` whole records from ordinal `first` on.

        What is in memory is let go where `first` does not follow it: no page has a hole.
        """
        if first != self._last + 1:
            self.clear()
        self._firsts.append(first)
        self._payloads.append(payload)
        self._ends.append((self._ends[-1] if self._ends else 0) + len(payload))
        self._last = first + count - 1
        self._bytes += len(payload)
        while self._bytes > self._bytes_max:
            self._bytes -= len(self._payloads[self._begin])
            self._payloads[self._begin] = b""
            self._begin += 1
        if self._begin > _COMPACT_AT and self._begin > len(self._firsts) // 2:
            for kept in (self._firsts, self._payloads, self._ends):
                del kept[: self._begin]
            self._begin = 0

    def clear(self) -> None:
        """Lets go of everything."""
        for kept in (self._firsts, self._payloads, self._ends):
            kept.clear()
        self._begin = self._bytes = self._last = 0
        self._page = None
        self._offsets = (0, [])

    def page(self, after: int, through: int, max_bytes: int) -> bytes | None:
        """The whole records `after` + 1 to `through`, at least one, else at most `max_bytes`; None: not in memory.

        It may end before either bound, where a group ends. Readers that ask the same get the same bytes.
        """
        asked = _Asked(after, through, max_bytes)
        if self._page is not None and self._page[0] == asked:
            return self._page[1]
        number = self._number(after + 1)
        if number is None or through <= after:
            return None
        page = self._make(number, asked)
        self._page = (asked, page)
        return page

    def digest_of(self, ordinal: int) -> bytes | None:
        """The digest of the event at `ordinal`; None: not in memory."""
        number = self._number(ordinal)
        if number is None:
            return None
        offset = self._offsets_of(number)[ordinal - self._firsts[number]]
        digest: bytes = RECORD_HEADER.unpack_from(self._payloads[number], offset)[2]
        return digest

    def _make(self, number: int, asked: _Asked) -> bytes:
        first, payload = self._firsts[number], self._payloads[number]
        head, room = payload, asked.max_bytes - len(payload)
        if first <= asked.after or self._last_of(number) > asked.through or room < 0:
            cut = cut_block(self._offsets_of(number), len(payload), first, **asked._asdict())
            head = payload[cut.start : cut.stop]
            if cut.last < self._last_of(number):
                return head
            room = asked.max_bytes - len(head)
        end = bisect_right(self._ends, self._ends[number] + room, number + 1)
        if end > number + 1 and self._last_of(end - 1) > asked.through:
            end = bisect_right(self._firsts, asked.through + 1, number + 1, end) - 1
        return head if end <= number + 1 else b"".join((head, *self._payloads[number + 1 : end]))

    def _number(self, ordinal: int) -> int | None:
        """Which group holds `ordinal`."""
        if self._begin == len(self._firsts) or not self._firsts[self._begin] <= ordinal <= self._last:
            return None
        return bisect_right(self._firsts, ordinal, self._begin) - 1

    def _last_of(self, number: int) -> int:
        return self._firsts[number + 1] - 1 if number + 1 < len(self._firsts) else self._last

    def _offsets_of(self, number: int) -> list[int]:
        """Where each record of a group begins; kept for the group asked last."""
        first = self._firsts[number]
        if self._offsets[0] != first:
            self._offsets = (first, record_offsets(self._payloads[number]))
        return self._offsets[1]
