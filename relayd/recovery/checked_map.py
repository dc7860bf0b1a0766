"""The framing of snapshot, acknowledged and seed (docs/reference/journal.md, "Snapshots"). Pure.

offset  size  field
0       8     magic
8       8     length of the map, u64 little-endian
16      32    BLAKE2b digest of the map
48      n     the map, MessagePack; nothing behind it
"""

import hashlib
import struct
from typing import Final

from relayd.journal.storage import Directory
from relayd.protocol.event import Buffer
from relayd.protocol.limits import MIB

HEADER_BYTES: Final = 48
MAP_BYTES_MAX: Final = 16 * MIB
FORMAT: Final = 1

_HEADER: Final = struct.Struct("<8sQ32s")


class CheckedMapError(ValueError):
    """Bytes that are no whole file of this framing, or hold no map that belongs there."""


class LaterFormatError(Exception):
    """An intact file of a format that a later version of relayd writes."""


def file_digest(content: Buffer) -> bytes:
    """32 bytes of BLAKE2b."""
    return hashlib.blake2b(content, digest_size=32).digest()


def frame_map(magic: bytes, encoded: bytes) -> bytes:
    """The whole file around the MessagePack map `encoded`. Raises CheckedMapError where it is over the bound."""
    if len(encoded) > MAP_BYTES_MAX:
        raise CheckedMapError(f"a map of {len(encoded)} bytes; {MAP_BYTES_MAX} are possible")
    return _HEADER.pack(magic, len(encoded), file_digest(encoded)) + encoded


def unframe_map(magic: bytes, content: Buffer) -> memoryview:
    """The map's bytes, proven by their digest. Raises CheckedMapError."""
    if len(content) < HEADER_BYTES:
        raise CheckedMapError(f"{len(content)} bytes are too few for a header of {HEADER_BYTES}")
    found, length, digest = _HEADER.unpack_from(content)
    if found != magic:
        raise CheckedMapError(f"it begins with {found!r} where {magic!r} belongs")
    if length > MAP_BYTES_MAX or length != len(content) - HEADER_BYTES:
        raise CheckedMapError(f"it says that {length} bytes follow its header; {len(content) - HEADER_BYTES} do")
    encoded = memoryview(content)[HEADER_BYTES:]
    if file_digest(encoded) != digest:
        raise CheckedMapError("its digest is not that of its bytes")
    return encoded


def read_bounded(directory: Directory, name: str) -> bytes | None:
    """All of a file of this framing, up to one byte past the bound; None where it is missing. Raises OSError."""
    try:
        file = directory.open(name, "read")
    except FileNotFoundError:
        return None
    try:
        return file.read(HEADER_BYTES + MAP_BYTES_MAX + 1, 0)
    finally:
        file.close()
