"""Sealed segments: the format, and reading them (docs/reference/journal.md, "Sealed segments").

    zstd frames     whole records each, content checksum on, one after the other from offset 0
    one skippable frame:
      0      4      magic 0x184D2A5E
      4      4      u32: bytes after this field
      8      n      the index, a MessagePack map: format, store, segment, first, last, count,
                    frames [[first, offset, size, plain_size]…], stream (32-byte digest of all records)
      n+8    32     digest of the index
      n+40   4      u32: bytes of the whole skippable frame
      n+44   8      `RLYINDX1`

It is read from its last 12 bytes. Numbers are little-endian, digests BLAKE2b of 32 bytes. `zstd -dc` gives the records.
Nothing in a file is believed before it checks: no size makes anything larger than its bound be read or allocated.
"""

import hashlib
import struct
from bisect import bisect_right
from collections.abc import Callable
from typing import Annotated, Final, NamedTuple

import msgspec

from relayd.journal.frames import FRAME_PLAIN_BYTES_MAX, FRAME_STORED_BYTES_MAX, FrameError, expand_frame
from relayd.journal.frames import harmlessly_damaged as _harmlessly_damaged
from relayd.journal.names import SegmentName
from relayd.journal.storage import File
from relayd.protocol.event import RECORD_HEADER, RECORD_HEADER_BYTES, RecordError, verify_records
from relayd.protocol.limits import KIB, MIB, ORDINAL_MAX

SEALED_FORMAT: Final = 1
INDEX_BYTES_MAX: Final = 16 * MIB
"""Bound of the skippable frame; a segment of 8 MiB has an index of about 1 KiB."""

_SKIPPABLE: Final = struct.Struct("<II")
_SKIPPABLE_MAGIC: Final = 0x184D2A5E
_TAIL: Final = struct.Struct("<32sI8s")
_TAIL_MAGIC: Final = b"RLYINDX1"
_AROUND_INDEX_BYTES: Final = _SKIPPABLE.size + _TAIL.size
_FIRST_READ_BYTES: Final = 4 * KIB

_Id = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
_Digest = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
_Ordinal = Annotated[int, msgspec.Meta(ge=1)]
_Bytes = Annotated[int, msgspec.Meta(ge=0)]


class SealedError(ValueError):
    """A sealed segment, or one frame of it, is not what it should be.

    `offset`: where in the file. `first`, `last`: the ordinals of the damaged frame; None where the damage is to the
    index, which loses the whole file's.
    """

    def __init__(self, message: str, offset: int, first: int | None = None, last: int | None = None) -> None:
        super().__init__(message)
        self.offset = offset
        self.first = first
        self.last = last


class LaterSealedFormatError(SealedError):
    """The index is whole, and of a later format than this version reads."""


class FrameEntry(NamedTuple):
    """One frame: its first ordinal, where it stands in the file, its bytes there, and the bytes of its records."""

    first: _Ordinal
    offset: _Bytes
    size: _Bytes
    plain_size: _Bytes


class SealedIndex(msgspec.Struct, frozen=True):
    """What a sealed segment holds and where. Fields are in the order they are written in."""

    format: int
    store: _Id
    segment: _Id
    first: _Ordinal
    last: _Ordinal
    count: _Ordinal
    frames: Annotated[tuple[FrameEntry, ...], msgspec.Meta(min_length=1)]
    stream: _Digest

    def frame_of(self, ordinal: int) -> int:
        """Which frame holds `ordinal`, which is one of this segment's."""
        return bisect_right(self.frames, ordinal, key=_first_of) - 1

    def last_of(self, number: int) -> int:
        """The last ordinal in a frame."""
        return self.frames[number + 1].first - 1 if number + 1 < len(self.frames) else self.last


class _FormatOnly(msgspec.Struct, frozen=True):
    format: int


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(SealedIndex).decode
_decode_format: Final = msgspec.msgpack.Decoder(_FormatOnly).decode


def _first_of(frame: FrameEntry) -> int:
    return frame.first


def new_digest() -> "hashlib.blake2b":
    """The hash that `stream` and the index's own digest are made with."""
    return hashlib.blake2b(digest_size=32)


def encode_index(index: SealedIndex) -> bytes:
    """The skippable frame that ends a sealed segment."""
    encoded = _encode(index)
    whole = len(encoded) + _AROUND_INDEX_BYTES
    head = _SKIPPABLE.pack(_SKIPPABLE_MAGIC, whole - _SKIPPABLE.size)
    return head + encoded + _TAIL.pack(_digest(encoded), whole, _TAIL_MAGIC)


def _digest(encoded: bytes | memoryview) -> bytes:
    return hashlib.blake2b(encoded, digest_size=32).digest()


def read_index(file: File, expected: SegmentName | None = None, store: bytes | None = None) -> SealedIndex:
    """Reads and proves the index of a sealed segment, from the end of the file; frames are not touched.

    `expected`: the range in its name, which must be the index's own; `store`: the store id that must be in it.
    Raises SealedError; LaterSealedFormatError, where this version is too old for it; OSError.
    """
    size = file.size()
    if size <= _AROUND_INDEX_BYTES:
        raise SealedError(f"the file has {size} bytes, too few for a sealed segment", size)
    at = max(0, size - _FIRST_READ_BYTES)
    end = file.read(size - at, at)
    if len(end) != size - at:
        raise SealedError("the file became shorter while it was read", at + len(end))
    digest, whole, magic = _TAIL.unpack_from(end, len(end) - _TAIL.size)
    if magic != _TAIL_MAGIC:
        raise SealedError("the file does not end as a sealed segment does: it is cut short, or not one", size)
    if not _AROUND_INDEX_BYTES < whole <= min(size, INDEX_BYTES_MAX):
        raise SealedError(f"the index says it has {whole} bytes, which cannot be", size - 12)
    start = size - whole
    if start < at:
        end = file.read(at - start, start) + end
    skippable = memoryview(end)[len(end) - whole :]
    if _SKIPPABLE.unpack_from(skippable) != (_SKIPPABLE_MAGIC, whole - _SKIPPABLE.size):
        raise SealedError("no index stands where the end of the file says it begins", start)
    encoded = skippable[_SKIPPABLE.size : whole - _TAIL.size]
    if _digest(encoded) != digest:
        raise SealedError("the index is not what its digest says", start)
    index = _decode_index(encoded, start)
    _check_index(index, start)
    if expected is not None and (index.first, index.last) != (expected.first, expected.last):
        raise SealedError(f"it holds the ordinals {index.first} to {index.last}, its name says others", start)
    if store is not None and index.store != store:
        raise SealedError("it belongs to another relay: its store id is not this one's", start)
    return index


def _decode_index(encoded: memoryview, start: int) -> SealedIndex:
    try:
        later = _decode_format(encoded).format
        if later > SEALED_FORMAT:
            message = f"its format is {later}; this version of relayd reads up to {SEALED_FORMAT}: use a newer one"
            raise LaterSealedFormatError(message, start)
        return _decode(encoded)
    except msgspec.DecodeError as error:
        raise SealedError(f"the index cannot be understood: {error}", start) from None


def _check_index(index: SealedIndex, start: int) -> None:
    """The frames stand one after the other up to the index, and each holds ordinals."""
    if index.format != SEALED_FORMAT or index.last > ORDINAL_MAX or index.count != index.last - index.first + 1:
        raise SealedError("the index contradicts itself: format, count and ordinals do not fit", start)
    offset, last = 0, index.first - 1
    for number, frame in enumerate(index.frames):
        first_right = frame.first == index.first if number == 0 else last < frame.first <= index.last
        sizes_right = 0 < frame.size <= FRAME_STORED_BYTES_MAX and 0 < frame.plain_size <= FRAME_PLAIN_BYTES_MAX
        if frame.offset != offset or not first_right or not sizes_right:
            raise SealedError(f"the index contradicts itself about frame {number}", start)
        offset, last = offset + frame.size, frame.first
    if offset != start:
        raise SealedError(f"the frames end at {offset}, the index begins at {start}", start)


def read_frame(file: File, index: SealedIndex, number: int) -> bytes:
    """The records of one frame, exactly `plain_size` bytes, their checksum proven.

    Raises SealedError with the frame's range; OSError.
    """
    return _expand(file.read(index.frames[number].size, index.frames[number].offset), index, number)


def _expand(stored: bytes, index: SealedIndex, number: int) -> bytes:
    frame = index.frames[number]
    last = index.last_of(number)
    if len(stored) != frame.size:
        raise SealedError("the file ends in the middle of a frame", frame.offset + len(stored), frame.first, last)
    try:
        plain = expand_frame(stored, frame.plain_size)
    except FrameError as error:
        raise SealedError(str(error), frame.offset, frame.first, last) from None
    if len(plain) < RECORD_HEADER_BYTES or RECORD_HEADER.unpack_from(plain)[1] != frame.first:
        raise SealedError(f"the frame does not begin with ordinal {frame.first}", frame.offset, frame.first, last)
    return plain


def verify_sealed(
    file: File,
    expected: SegmentName | None = None,
    store: bytes | None = None,
    progress: Callable[[int], None] | None = None,
) -> list[SealedError]:
    """Checks every byte of a sealed segment and gives everything that is wrong with it; nothing: it is whole.

    Index and its digest, each frame, each record's ordinal and digest, the digest of the stream, and that nothing
    else is in the file. Reads past damage to find all of it. `progress` is called with the bytes read since its last
    call. Raises OSError.
    """
    tell = progress or _nobody
    try:
        index = read_index(file, expected, store)
    except SealedError as error:
        return [error]
    found: list[SealedError] = []
    stream = new_digest()
    for number, frame in enumerate(index.frames):
        stored = file.read(frame.size, frame.offset)
        tell(len(stored))
        try:
            plain = _expand(stored, index, number)
            stream.update(plain)
            _verify_frame(stored, plain, index, number)
        except SealedError as error:
            found.append(error)
    if not found and stream.digest() != index.stream:
        found.append(SealedError("the records are not those that the index's digest was made of", 0))
    tell(file.size() - index.frames[-1].offset - index.frames[-1].size)
    return found


def _verify_frame(stored: bytes, plain: bytes, index: SealedIndex, number: int) -> None:
    frame, last = index.frames[number], index.last_of(number)
    try:
        records = verify_records(plain, frame.first - 1)
    except RecordError as error:
        message = f"the frame expands, but at byte {error.offset} of its records {error}"
        raise SealedError(message, frame.offset, frame.first, last) from None
    if records[-1].ordinal != last:
        message = f"the frame ends with ordinal {records[-1].ordinal} where {last} belongs"
        raise SealedError(message, frame.offset, frame.first, last)
    if _harmlessly_damaged(stored, plain):
        message = "bits of the frame have changed; what it holds is still right"
        raise SealedError(message, frame.offset, frame.first, last)


def _nobody(_bytes: int) -> None:
    return None
