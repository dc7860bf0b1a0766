"""What the bytes of one relay's files say, from the tables of docs/reference/journal.md alone.

Part of the judge (judge.py). Imports nothing of relayd. What does not check is None; a format that is newer than this
is LaterFormatError.
"""

import hashlib
import re
import struct
import zlib
from typing import NamedTuple

import msgspec
import zstandard

HEADER_BYTES = 48
GROUP_HEADER_BYTES = 64
BODY_BYTES_MAX = 2 << 20
MAP_BYTES_MAX = 16 << 20
MAP_KEYS = {
    b"RLYSNAP1": {"format", "relay", "store", "frontier", "base", "state"},
    b"RLYACKD1": {"format", "store", "acknowledged", "consumers"},
    b"RLYINDX1": {"format", "store", "segment", "first", "last", "count", "frames", "stream"},
}
_SPAN = re.compile(r"([0-9]{20})-([0-9]{20})(\.log|\.log\.zst|\.lost)")


class LaterFormatError(Exception):
    """The bytes check, and are of a format that this reader does not know."""


class Record(NamedTuple):
    """One event as it is stored."""

    digest: bytes
    body: bytes


Records = dict[int, Record]


class Span(NamedTuple):
    """The ordinals that a file's name states, and its suffix: `.log`, `.log.zst` or `.lost`."""

    first: int
    last: int
    suffix: str

    @property
    def name(self) -> str:
        return f"journal/{self.first:020}-{self.last:020}{self.suffix}"


class SegmentHeader(NamedTuple):
    store: bytes
    segment: bytes


class GroupHeader(NamedTuple):
    """A group's header that checks and says its own place."""

    format: int
    segment: bytes
    first: int
    count: int
    length: int
    crc: int


class Group(NamedTuple):
    """A whole group."""

    offset: int
    end: int
    first: int
    records: Records

    @property
    def last(self) -> int:
        return self.first + len(self.records) - 1


class Watermark(NamedTuple):
    segment: bytes
    offset: int


class Frame(NamedTuple):
    """A frame of a sealed segment; `records` is None where it is damaged.

    `doubtful`: it expands to what it should, and is not what compressing that gives: bits of it may have flipped that
    zstd does not mind. A reader may have its records, or lose them.
    """

    first: int
    last: int
    records: Records | None
    doubtful: bool = False


class Sealed(NamedTuple):
    """A sealed segment whose index checks."""

    store: bytes
    segment: bytes
    frames: list[Frame]


def span_of(path: str) -> Span | None:
    """What a file's path in the relay states, where it is a segment's but active.log's."""
    folder, _, name = path.rpartition("/")
    found = _SPAN.fullmatch(name)
    if folder != "journal" or found is None or not 1 <= int(found[1]) <= int(found[2]) < 1 << 64:
        return None
    return Span(int(found[1]), int(found[2]), found[3])


def records_in(payload: bytes, first: int) -> Records | None:
    """The records that fill `payload`, their ordinals from `first` on."""
    found, at, expected = {}, 0, first
    while at < len(payload):
        if at + 28 > len(payload):
            return None
        length, ordinal = struct.unpack_from("<IQ", payload, at)
        end = at + 28 + length
        if not 1 <= length <= BODY_BYTES_MAX or end > len(payload) or ordinal != expected:
            return None
        found[ordinal] = Record(payload[at + 12 : at + 28], payload[at + 28 : end])
        at, expected = end, expected + 1
    return found


def holds(ordinal: int, record: Record) -> bool:
    """Whether the record's digest is that of its bytes."""
    stored = struct.pack("<Q", ordinal) + record.body
    return record.digest == hashlib.blake2b(stored, digest_size=16, person=b"relayd.event.v1").digest()


def segment_header(data: bytes) -> SegmentHeader | None:
    """The first 48 bytes of a file of groups."""
    if len(data) < HEADER_BYTES or data[:6] != b"RLYSEG" or data[40:48] != struct.pack("<II", zlib.crc32(data[:40]), 0):
        return None
    if data[6:8] != b"01":
        raise LaterFormatError
    return SegmentHeader(data[8:24], data[24:40])


def group_header(data: bytes, at: int, segment: bytes | None) -> GroupHeader | None:
    """The group header at `at`, of the segment; of any where that is None."""
    raw = data[at : at + GROUP_HEADER_BYTES]
    if len(raw) < GROUP_HEADER_BYTES or raw[:4] != b"RLYG":
        return None
    said, owner, own, first, count, length, crc, zero, check, end = struct.unpack("<4xI16sQQIIIIII", raw)
    if zero or end or own != at or check != zlib.crc32(raw[:56]) or segment not in (None, owner):
        return None
    return GroupHeader(said, owner, first, count, length, crc)


def group_at(data: bytes, at: int, segment: bytes, follows: int | None) -> Group | None:
    """The whole group at `at`, behind the ordinal `follows`; behind any where that is None."""
    header = group_header(data, at, segment)
    if header is None:
        return None
    if header.format != 1:
        raise LaterFormatError
    begin, end = at + GROUP_HEADER_BYTES, at + GROUP_HEADER_BYTES + header.length
    payload = data[begin:end]
    if end > len(data) or zlib.crc32(payload) != header.crc or follows not in (None, header.first - 1):
        return None
    records = records_in(payload, header.first)
    if records is None or len(records) != header.count:
        return None
    return Group(at, end, header.first, records)


def groups_in(data: bytes, segment: bytes, follows: int | None) -> list[Group]:
    """The whole groups from the segment header's end on."""
    found, at = [], HEADER_BYTES
    while (group := group_at(data, at, segment, follows)) is not None:
        found.append(group)
        at, follows = group.end, group.last
    return found


def watermark(data: bytes) -> Watermark | None:
    """The watermark's 40 bytes, the last four zero."""
    if len(data) < 40 or data[:8] != b"RLYMARK1" or data[32:40] != struct.pack("<II", zlib.crc32(data[:32]), 0):
        return None
    return Watermark(data[8:24], struct.unpack_from("<Q", data, 24)[0])


def checked_map(magic: bytes, data: bytes) -> dict | None:
    """What a snapshot (`RLYSNAP1`) or an `acknowledged` (`RLYACKD1`) says. The digest leaves the magic out."""
    if len(data) < 48 or data[:8] != magic or len(data) - 48 > MAP_BYTES_MAX:
        return None
    encoded = data[48:]
    digest = hashlib.blake2b(encoded, digest_size=32).digest()
    if struct.unpack_from("<Q", data, 8)[0] != len(encoded) or data[16:48] != digest:
        return None
    said = msgspec.msgpack.decode(encoded)
    if said["format"] != 1:
        raise LaterFormatError
    return said if said.keys() == MAP_KEYS[magic] else None


def sealed(data: bytes, span: Span) -> Sealed | None:
    """A sealed segment that is the one its name states."""
    index, size = _sealed_index(data)
    if index is None or [index["first"], index["last"], index["count"]] != [*span[:2], span.last - span.first + 1]:
        return None
    frames, offset = [], 0
    bounds = [*(entry[0] for entry in index["frames"]), span.last + 1]
    for (first, at, stored, plain), following in zip(index["frames"], bounds[1:], strict=True):
        if at != offset or first >= following:
            return None
        frames.append(_frame(data[at : at + stored], plain, first, following - 1))
        offset += stored
    return None if offset != size or bounds[0] != span.first else Sealed(index["store"], index["segment"], frames)


def _sealed_index(data: bytes) -> tuple[dict | None, int]:
    """The index, and how many bytes of frames stand before it."""
    whole = struct.unpack_from("<I", data, len(data) - 12)[0] if data[-8:] == b"RLYINDX1" and len(data) >= 60 else 0
    start = len(data) - whole
    if whole < 60 or start < 0 or data[start : start + 8] != struct.pack("<II", 0x184D2A5E, whole - 8):
        return None, 0
    encoded = data[start + 8 : -44]
    if hashlib.blake2b(encoded, digest_size=32).digest() != data[-44:-12]:
        return None, 0
    index = msgspec.msgpack.decode(encoded)
    if index["format"] != 1:
        raise LaterFormatError
    return (index, start) if index.keys() == MAP_KEYS[b"RLYINDX1"] else (None, 0)


def _frame(stored: bytes, plain: int, first: int, last: int) -> Frame:
    damaged = Frame(first, last, None)
    try:
        said = zstandard.get_frame_parameters(stored)
        if not said.has_checksum or said.content_size not in (plain, zstandard.CONTENTSIZE_UNKNOWN):
            return damaged
        content = zstandard.ZstdDecompressor().decompress(stored, max_output_size=plain, allow_extra_data=False)
    except zstandard.ZstdError:
        return damaged
    records = records_in(content, first) if len(content) == plain else None
    if records is None or len(records) != last - first + 1:
        return damaged
    if not all(holds(ordinal, record) for ordinal, record in records.items()):
        return damaged
    return Frame(
        first, last, records, doubtful=zstandard.ZstdCompressor(write_checksum=True).compress(content) != stored
    )
