"""Segments and groups, as bytes (docs/reference/journal.md, "Segment and group").

A segment begins with a header, then groups follow, each carried by one write and one sync.

    offset  size  field of the segment header
    0       8     magic `RLYSEG01`
    8       16    store id
    24      16    segment id: fresh for every file made under the name active.log
    40      4     CRC-32 of bytes 0 to 39
    44      4     zero

    offset  size  field of a group header
    0       4     magic `RLYG`
    4       4     format, 1
    8       16    segment id
    24      8     this header's own offset in the file; everything before it was synced when it was written
    32      8     first ordinal
    40      4     count of records
    44      4     payload length
    48      4     CRC-32 of the payload
    52      4     zero
    56      4     CRC-32 of bytes 0 to 55
    60      4     zero
    64      n     the records

Integers are little-endian. Segment id and own offset keep a client from planting a false group inside a payload.
Nothing here does I/O, and no length is believed before the CRC over it holds and its bytes are there.
"""

import re
import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple
from zlib import crc32

import msgspec

from relayd.protocol.event import RECORD_HEADER_BYTES, Buffer
from relayd.protocol.limits import EVENT_BODY_BYTES_MAX, MIB, ORDINAL_MAX

SEGMENT_MAGIC: Final = b"RLYSEG01"
SEGMENT_HEADER_BYTES: Final = 48
GROUP_MAGIC: Final = b"RLYG"
GROUP_FORMAT: Final = 1
GROUP_HEADER_BYTES: Final = 64
GROUP_BYTES_MAX: Final = 4 * MIB
"""A group takes no further request past this; one request alone may be larger."""

_SEGMENT: Final = struct.Struct("<8s16s16sII")
_SEGMENT_CHECKED: Final = struct.Struct("<8s16s16s")
_GROUP: Final = struct.Struct("<4sI16sQQIIIIII")
_GROUP_CHECKED: Final = struct.Struct("<4sI16sQQIIII")
_CRC_AND_ZERO: Final = struct.Struct("<II")
_RECORD: Final = struct.Struct("<IQ")
_LATER_SEGMENT: Final = re.compile(rb"RLYSEG[0-9]{2}")
_MAGIC: Final = re.compile(re.escape(GROUP_MAGIC))


class SegmentHeader(NamedTuple):
    """Whose segment it is: two 16-byte ids."""

    store: bytes
    segment: bytes


class GroupHeader(msgspec.Struct, frozen=True, gc=False):
    """What a group says of itself; `offset` is where it says that it stands."""

    segment: bytes
    offset: int
    first: int
    count: int
    length: int
    payload_crc: int

    @property
    def end(self) -> int:
        """The offset behind the group's last record."""
        return self.offset + GROUP_HEADER_BYTES + self.length


class Group(msgspec.Struct, frozen=True, gc=False):
    """A whole group from `offset` to `end`: `count` records from ordinal `first` on; `payload` is a view."""

    offset: int
    end: int
    first: int
    count: int
    payload: memoryview

    @property
    def last(self) -> int:
        """The last ordinal in it."""
        return self.first + self.count - 1


def encode_segment_header(header: SegmentHeader) -> bytes:
    """A segment's first 48 bytes."""
    return _SEGMENT.pack(SEGMENT_MAGIC, *header, crc32(_SEGMENT_CHECKED.pack(SEGMENT_MAGIC, *header)), 0)


def decode_segment_header(buffer: Buffer) -> SegmentHeader | None:
    """Reads the header at the beginning of `buffer`; None where it does not check."""
    if len(buffer) < SEGMENT_HEADER_BYTES:
        return None
    magic, store, segment, crc, zero = _SEGMENT.unpack_from(buffer)
    if magic != SEGMENT_MAGIC or zero or crc32(memoryview(buffer)[: _SEGMENT_CHECKED.size]) != crc:
        return None
    return SegmentHeader(store, segment)


def is_later_segment(buffer: Buffer) -> bool:
    """Whether `buffer` begins as a segment of another format than this version's, its CRC good."""
    if len(buffer) < SEGMENT_HEADER_BYTES or buffer[:8] == SEGMENT_MAGIC:
        return False
    view = memoryview(buffer)
    crc = _CRC_AND_ZERO.unpack_from(view, _SEGMENT_CHECKED.size)[0]
    return _LATER_SEGMENT.match(view) is not None and crc32(view[: _SEGMENT_CHECKED.size]) == crc


def encode_group_header(segment: bytes, offset: int, first: int, count: int, payload: Sequence[Buffer]) -> bytes:
    """The header that stands at `offset`, before the `count` records that `payload` holds."""
    length, payload_crc = 0, 0
    for part in payload:
        length += len(part)
        payload_crc = crc32(part, payload_crc)
    checked = _GROUP_CHECKED.pack(GROUP_MAGIC, GROUP_FORMAT, segment, offset, first, count, length, payload_crc, 0)
    return checked + _CRC_AND_ZERO.pack(crc32(checked), 0)


def _read_group_header(buffer: Buffer, at: int) -> tuple[int, GroupHeader] | None:
    """Format and header at `at`, CRC and zeros good; the buffer may end anywhere."""
    if at < 0 or at + GROUP_HEADER_BYTES > len(buffer):
        return None
    magic, fmt, segment, offset, first, count, length, payload_crc, zero, crc, last_zero = _GROUP.unpack_from(
        buffer, at
    )
    if magic != GROUP_MAGIC or zero or last_zero or crc32(memoryview(buffer)[at : at + _GROUP_CHECKED.size]) != crc:
        return None
    return fmt, GroupHeader(segment, offset, first, count, length, payload_crc)


def decode_group_header(buffer: Buffer, at: int = 0) -> GroupHeader | None:
    """Reads the group header at `at`; None where magic, format, zeros or CRC are wrong, or the buffer ends in it.

    Segment id and own offset are the caller's to compare.
    """
    found = _read_group_header(buffer, at)
    return found[1] if found is not None and found[0] == GROUP_FORMAT else None


def is_later_group(buffer: Buffer, at: int) -> bool:
    """Whether a group header of a later format than this version's stands at `at`, its CRC good."""
    found = _read_group_header(buffer, at)
    return found is not None and found[0] > GROUP_FORMAT


def _holds_records(payload: memoryview, first: int, count: int) -> bool:
    """Whether `payload` is exactly `count` records, their ordinals from `first` upward."""
    end = len(payload)
    if count < 1 or first < 1 or first + count - 1 > ORDINAL_MAX or count * (RECORD_HEADER_BYTES + 1) > end:
        return False
    unpack = _RECORD.unpack_from
    at = 0
    for expected in range(first, first + count):
        if at + RECORD_HEADER_BYTES > end:
            return False
        length, ordinal = unpack(payload, at)
        if ordinal != expected or not 1 <= length <= EVENT_BODY_BYTES_MAX:
            return False
        at += RECORD_HEADER_BYTES + length
    return at == end


def walk_groups(
    buffer: Buffer, segment: bytes, start: int = SEGMENT_HEADER_BYTES, expected_first: int | None = None
) -> Iterator[Group]:
    """The whole groups of `segment` that stand one after the other from `start`.

    `buffer` begins at offset 0 of the file. Stops at the first place where no whole group stands: the end of the last
    group yielded, or `start`. `expected_first` is the ordinal that the first group begins with; None: any. Record
    digests are not checked: the payload's CRC covers the same bytes.
    """
    view = memoryview(buffer)
    at, end = start, len(view)
    while True:
        header = decode_group_header(view, at)
        if header is None or header.segment != segment or header.offset != at or header.end > end:
            return
        if expected_first is not None and header.first != expected_first:
            return
        payload = view[at + GROUP_HEADER_BYTES : header.end]
        if crc32(payload) != header.payload_crc or not _holds_records(payload, header.first, header.count):
            return
        yield Group(at, header.end, header.first, header.count, payload)
        at = header.end
        expected_first = header.first + header.count


def find_group_headers(buffer: Buffer, start: int, segment: bytes | None) -> Iterator[GroupHeader]:
    """Every group header from `start` on whose CRC holds and whose own offset is right, found by its magic.

    `segment` None: whatever id it has. Nothing is said of the payloads behind them.
    """
    view = memoryview(buffer)
    for found in _MAGIC.finditer(view, max(start, 0)):
        header = decode_group_header(view, found.start())
        if header is not None and header.offset == found.start() and segment in (None, header.segment):
            yield header
