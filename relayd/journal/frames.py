"""One zstd frame of a sealed segment: compressed, and expanded again without trusting what it says of itself.

(docs/reference/journal.md, "Sealed segments".) python-zstandard hands out short data for a cut frame when it streams,
passes over `max_output_size` where the frame states a size, and skips what follows a frame unless told not to. So each
frame is expanded in one call, its header is read first, and nothing larger than the index promised is ever allocated.
"""

import threading
from typing import Final

import zstandard

from relayd.protocol.event import RECORD_HEADER_BYTES, Buffer
from relayd.protocol.limits import EVENT_BODY_BYTES_MAX, KIB, MIB

FRAME_PLAIN_BYTES: Final = 256 * KIB
"""A frame holds whole records of at most this many bytes, or one record that is larger."""
FRAME_PLAIN_BYTES_MAX: Final = FRAME_PLAIN_BYTES + RECORD_HEADER_BYTES + EVENT_BODY_BYTES_MAX
FRAME_STORED_BYTES_MAX: Final = FRAME_PLAIN_BYTES_MAX + FRAME_PLAIN_BYTES_MAX // 128 + 1 * KIB
"""What incompressible data of FRAME_PLAIN_BYTES_MAX can grow to, and some room."""

LEVEL: Final = 3
"""Measured on events of logs and agents: above 3, each percent of size costs much more time than it saves reading."""

_OTHER_LEVELS: Final = tuple(level for level in range(1, 20) if level != LEVEL)
_WINDOW_BYTES_MAX: Final = 4 * MIB
_UNUSED_BIT: Final = 0x10
_DESCRIPTOR: Final = 4
_HARMLESS_BYTES_MAX: Final = 2

_local: Final = threading.local()


class FrameError(ValueError):
    """Bytes that are not the one whole frame they should be."""


def compress_frame(plain: Buffer, level: int = LEVEL) -> bytes:
    """One frame that states its size and carries a checksum of its content. Runs without the interpreter's lock."""
    return zstandard.ZstdCompressor(level=level, write_checksum=True, write_content_size=True).compress(plain)


def expand_frame(stored: bytes, plain_size: int) -> bytes:
    """Exactly the `plain_size` bytes that the frame `stored` holds, its checksum proven.

    Raises FrameError where `stored` is anything but one whole frame with a checksum that expands to that size.
    """
    if not 1 <= plain_size <= FRAME_PLAIN_BYTES_MAX:
        raise FrameError(f"a frame of {plain_size} bytes is promised; 1 to {FRAME_PLAIN_BYTES_MAX} are possible")
    try:
        said = zstandard.get_frame_parameters(stored)
        if said.content_size not in (plain_size, zstandard.CONTENTSIZE_UNKNOWN):
            raise FrameError(f"the frame says it holds {said.content_size} bytes where the index says {plain_size}")
        if not said.has_checksum or said.dict_id or stored[_DESCRIPTOR] & _UNUSED_BIT:
            raise FrameError("the frame's header is none that is written for a sealed segment")
        plain = _decompressor().decompress(
            stored, max_output_size=plain_size, read_across_frames=False, allow_extra_data=False
        )
    except zstandard.ZstdError as error:
        raise FrameError(f"the frame does not expand: {error}") from None
    if len(plain) != plain_size:
        raise FrameError(f"the frame expands to {len(plain)} bytes where the index says {plain_size}")
    return plain


def harmlessly_damaged(stored: bytes, plain: bytes) -> bool:
    """Whether `stored`, which expands to `plain`, is all but a few bytes what zstd makes of it.

    Some bits of a frame can flip and it still expands to the same bytes, checksum and all. Making the frame again finds
    them, where the same zstd wrote it; a frame of another zstd or of other settings differs in more than a few bytes.
    """
    stated = zstandard.get_frame_parameters(stored).content_size != zstandard.CONTENTSIZE_UNKNOWN

    def again(level: int) -> bytes:
        compressor = zstandard.ZstdCompressor(level=level, write_checksum=True, write_content_size=stated)
        return compressor.compress(plain)

    written = again(LEVEL)
    if written == stored or len(written) != len(stored):
        return False
    if sum(one != other for one, other in zip(written, stored, strict=True)) > _HARMLESS_BYTES_MAX:
        return False
    return all(again(level) != stored for level in _OTHER_LEVELS)


def _decompressor() -> zstandard.ZstdDecompressor:
    # A decompressor may not be shared by threads at once, and making one costs more than a small frame does.
    found: zstandard.ZstdDecompressor | None = getattr(_local, "decompressor", None)
    if found is None:
        found = zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES_MAX)
        _local.decompressor = found
    return found
