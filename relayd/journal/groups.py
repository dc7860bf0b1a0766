"""Reading files of groups (active, rotated) piece by piece (docs/reference/journal.md, "Segment and group").

Memory is bounded by a window and one group, never by the file. `GroupIndex` says near which offset an ordinal stands,
so that a page starts there.
"""

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final, NamedTuple
from zlib import crc32

from relayd.journal.segment import (
    GROUP_HEADER_BYTES,
    GROUP_MAGIC,
    SEGMENT_HEADER_BYTES,
    Group,
    GroupHeader,
    decode_group_header,
)
from relayd.journal.storage import File
from relayd.protocol.limits import KIB, MIB

WINDOW_BYTES: Final = 256 * KIB
INDEX_EVERY_BYTES: Final = 64 * KIB
_STEP_BYTES: Final = 16 * KIB
_SCAN_BYTES: Final = 1 * MIB


class GroupDamageError(ValueError):
    """No whole group stands at `offset`, where one with ordinal `first` belongs; `header`, where that much is good."""

    def __init__(self, message: str, offset: int, first: int, header: GroupHeader | None = None) -> None:
        super().__init__(message)
        self.offset = offset
        self.first = first
        self.header = header


class Place(NamedTuple):
    """A group with first ordinal `first` stands at `offset`."""

    offset: int
    first: int


class GroupIndex:
    """Where in a file of groups an ordinal stands, to within INDEX_EVERY_BYTES.

    One owner adds, at the end; any thread may look up meanwhile, because what is there never changes.
    """

    __slots__ = ("_firsts", "_offsets", "end")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._offsets: list[int] = []
        self.end = SEGMENT_HEADER_BYTES

    def __len__(self) -> int:
        return len(self._firsts)

    def add(self, first: int, offset: int, end: int) -> None:
        """A group with first ordinal `first` stands from `offset` to `end`, right behind those added before."""
        if not self._offsets or offset - self._offsets[-1] >= INDEX_EVERY_BYTES:
            # The offset goes in first: a reader that finds the ordinal finds its offset too.
            self._offsets.append(offset)
            self._firsts.append(first)
        self.end = end

    def place(self, ordinal: int) -> Place | None:
        """The nearest known group that begins at or before `ordinal`."""
        number = bisect_right(self._firsts, ordinal) - 1
        return None if number < 0 else Place(self._offsets[number], self._firsts[number])

    def bound(self, ordinal: int) -> int:
        """An offset by which the group of `ordinal` has ended."""
        end = self.end
        number = bisect_right(self._firsts, ordinal)
        return self._offsets[number] if number < len(self._firsts) else end


class _Window:
    """A stretch of a file held in memory, read on where something outside of it is asked for.

    First `window_bytes` are read, later `later_bytes` at a time, or as many.
    """

    def __init__(self, file: File, end: int, window_bytes: int, later_bytes: int | None = None) -> None:
        self._file = file
        self._end = end
        self._window_bytes = window_bytes
        self._later_bytes = window_bytes if later_bytes is None else later_bytes
        self._base = 0
        self._held = memoryview(b"")

    def view(self, offset: int, size: int) -> memoryview:
        """`size` bytes at `offset`; fewer only where the file ends."""
        at = offset - self._base
        if at < 0 or at + size > len(self._held):
            wanted = max(size, min(self._window_bytes, self._end - offset))
            self._window_bytes = self._later_bytes
            self._base, at = offset, 0
            self._held = memoryview(self._file.read(wanted, offset))
        return self._held[at : at + size]


def read_groups(
    file: File, segment: bytes, start: Place, end: int, window_bytes: int = WINDOW_BYTES
) -> Iterator[Group]:
    """The groups from `start` on, up to the offset `end`, each proven by its CRCs, offset, segment id and ordinal.

    `window_bytes`: how much the caller means to take; it is read at once, and what is taken beyond that in small steps.

    Raises GroupDamageError at the first place where none stands; OSError. Records inside are not walked: the CRC
    covers them.
    """
    window = _Window(file, end, window_bytes, _STEP_BYTES)
    offset, first = start
    while offset < end:
        header = _header(window, segment, Place(offset, first), end)
        payload = window.view(offset + GROUP_HEADER_BYTES, header.length)
        if len(payload) != header.length or crc32(payload) != header.payload_crc:
            raise GroupDamageError("a group's records are not those its CRC was made of", offset, first, header)
        yield Group(offset, header.end, first, header.count, payload)
        offset, first = header.end, first + header.count


def read_payloads(file: File, segment: bytes, start: Place, end: int) -> Iterator[memoryview]:
    """The records of the groups from `start` to `end`, in pieces of at most WINDOW_BYTES that may cut a record.

    For reading a whole file in bounded memory, however large its groups. A group's last piece is not handed out
    before its CRC holds. Raises as `read_groups`.
    """
    window = _Window(file, end, WINDOW_BYTES)
    offset, first = start
    while offset < end:
        header = _header(window, segment, Place(offset, first), end)
        at, crc = offset + GROUP_HEADER_BYTES, 0
        while at < header.end:
            piece = window.view(at, min(WINDOW_BYTES, header.end - at))
            crc = crc32(piece, crc)
            at += len(piece)
            if not piece or (at == header.end and crc != header.payload_crc):
                raise GroupDamageError("a group's records are not those its CRC was made of", offset, first, header)
            yield piece
        offset, first = header.end, first + header.count


def index_groups(file: File, segment: bytes, first: int, end: int) -> GroupIndex:
    """Builds the index of a file from its group headers, up to the first place where none stands. Raises OSError."""
    index = GroupIndex()
    window = _Window(file, end, INDEX_EVERY_BYTES)
    place = Place(SEGMENT_HEADER_BYTES, first)
    while place.offset < end:
        try:
            header = _header(window, segment, place, end)
        except GroupDamageError:
            break
        index.add(place.first, place.offset, header.end)
        place = Place(header.end, place.first + header.count)
    return index


def next_group(file: File, segment: bytes, damage: GroupDamageError, end: int) -> Place | None:
    """Where the groups go on behind `damage`; None where nothing more can be found up to the offset `end`."""
    if damage.header is not None:
        place = Place(damage.header.end, damage.header.first + damage.header.count)
        return place if place.offset < end else None
    base = damage.offset + 1
    while base < end:
        held = file.read(min(_SCAN_BYTES, end - base), base)
        at = held.find(GROUP_MAGIC)
        while at >= 0:
            header = decode_group_header(held, at)
            if header is not None and (header.segment, header.offset) == (segment, base + at):
                # An ordinal that is not later than the lost one would be a group shown twice.
                if header.first > damage.first:
                    return Place(header.offset, header.first)
                at += GROUP_HEADER_BYTES - 1
            at = held.find(GROUP_MAGIC, at + 1)
        if len(held) < GROUP_HEADER_BYTES:
            break
        base += max(1, len(held) - GROUP_HEADER_BYTES + 1)
    return None


def _header(window: _Window, segment: bytes, place: Place, end: int) -> GroupHeader:
    header = decode_group_header(window.view(place.offset, GROUP_HEADER_BYTES))
    if header is None or header.segment != segment or header.offset != place.offset:
        raise GroupDamageError("no group begins here", place.offset, place.first)
    if header.first != place.first or header.count < 1:
        raise GroupDamageError(
            f"a group begins with ordinal {header.first} where {place.first} belongs", place.offset, place.first
        )
    if header.end > end:
        raise GroupDamageError("a group's records end behind the file", place.offset, place.first)
    return header
