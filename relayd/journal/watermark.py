"""The watermark: how far active.log is known synced (docs/reference/journal.md, "Segment and group").

    offset  size  field
    0       8     magic `RLYMARK1`
    8       16    segment id
    24      8     offset: every byte before it is synced
    32      4     CRC-32 of bytes 0 to 31
    36      4     zero

It is written after each sync and not synced then, so it may be behind, or gone; it is never ahead.
"""

import struct
from typing import Final, NamedTuple
from zlib import crc32

from relayd.protocol.event import Buffer

MAGIC: Final = b"RLYMARK1"
WATERMARK_BYTES: Final = 40

_LAYOUT: Final = struct.Struct("<8s16sQI4s")
_CHECKED: Final = struct.Struct("<8s16sQ")
_ZERO: Final = bytes(4)


class Watermark(NamedTuple):
    """The bytes of segment `segment` before `offset` are synced."""

    segment: bytes
    offset: int


def encode_watermark(watermark: Watermark) -> bytes:
    """The file's 40 bytes."""
    checked = _CHECKED.pack(MAGIC, *watermark)
    return _LAYOUT.pack(MAGIC, *watermark, crc32(checked), _ZERO)


def decode_watermark(buffer: Buffer) -> Watermark | None:
    """Reads the file's bytes; None where they do not check, which counts as no watermark at all."""
    if len(buffer) != WATERMARK_BYTES:
        return None
    magic, segment, offset, crc, padding = _LAYOUT.unpack(buffer)
    if magic != MAGIC or padding != _ZERO or crc32(memoryview(buffer)[: _CHECKED.size]) != crc:
        return None
    return Watermark(segment, offset)
