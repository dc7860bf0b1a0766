"""The file that `relayd backup` writes: a relay's records, and what else is needed to make it again. Pure.

    skippable frame   magic 0x184D2A5D, u32 size, then framed as a snapshot is: `RLYBACK1`, the head
    zstd frames       whole records each, content checksum on, a frame's ordinals without a hole
    skippable frame   magic 0x184D2A5C, u32 size, then framed as a snapshot is: `RLYBEND1`, the end; then, inside of
                      it still, u32 bytes of this whole frame and `RLYBTAIL`

`zstd -dc` gives the records. Numbers are little-endian. A file without its end is no backup: it was cut off.
"""

import struct
from typing import Annotated, Final, NamedTuple, TypeVar

import msgspec

from relayd.protocol.cursor import Cursor
from relayd.protocol.kinds import RETENTION_DEFAULT, Retention, StoreId
from relayd.recovery.checked_map import FORMAT, HEADER_BYTES, MAP_BYTES_MAX, CheckedMapError, frame_map, unframe_map

HEAD_MAGIC: Final = b"RLYBACK1"
END_MAGIC: Final = b"RLYBEND1"
TAIL: Final = struct.Struct("<I8s")
SKIPPABLE: Final = struct.Struct("<II")
HEAD_FRAME: Final = 0x184D2A5D
END_FRAME: Final = 0x184D2A5C
_TAIL_MAGIC: Final = b"RLYBTAIL"


class BackupHead(msgspec.Struct, frozen=True):
    """What a backup is of. All of it as of one cut, `latest`: the last event in it, or that should be.

    `evicted`: the last event that was gone already. `consumers`: how far each had acknowledged. `state`: what the
    events up to `latest` add up to, encoded as in a snapshot. Earlier versions made backups without it; then the
    records are folded, from `retention`, `max_active` and `floor` on where the relay's beginning is gone.
    """

    relay: str
    store: StoreId
    evicted: Cursor
    latest: Cursor
    made_at_ms: int
    retention: Retention = RETENTION_DEFAULT
    max_active: int = 1
    floor: Cursor | None = None
    consumers: dict[str, Cursor] = {}
    state: bytes = b""
    format: int = FORMAT


class BackupFrame(NamedTuple):
    """A zstd frame: so many `records` from ordinal `first` on, its place in the file, and the bytes of its records."""

    first: Annotated[int, msgspec.Meta(ge=1)]
    records: Annotated[int, msgspec.Meta(ge=1)]
    offset: Annotated[int, msgspec.Meta(ge=0)]
    size: Annotated[int, msgspec.Meta(ge=1)]
    plain_size: Annotated[int, msgspec.Meta(ge=1)]

    @property
    def last(self) -> int:
        """The last ordinal in it."""
        return self.first + self.records - 1


class BackupEnd(msgspec.Struct, frozen=True):
    """Where everything is. `stream`: BLAKE2b, 32 bytes, of all records."""

    frames: list[BackupFrame]
    stream: Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
    format: int = FORMAT


_Map = TypeVar("_Map", BackupHead, BackupEnd)


class _FormatOnly(msgspec.Struct, frozen=True):
    format: int


class BackupError(ValueError):
    """A file that is no whole backup; `offset` is where."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


def encode_head(head: BackupHead) -> bytes:
    """What the file begins with."""
    content = frame_map(HEAD_MAGIC, msgspec.msgpack.encode(head))
    return SKIPPABLE.pack(HEAD_FRAME, len(content)) + content


def encode_end(end: BackupEnd) -> bytes:
    """What the file ends with. Raises BackupError where it would be too large to be read again."""
    encoded = msgspec.msgpack.encode(end)
    if len(encoded) > MAP_BYTES_MAX:
        raise BackupError("the relay is too large for one file", 0)
    content = frame_map(END_MAGIC, encoded)
    whole = SKIPPABLE.size + len(content) + TAIL.size
    return SKIPPABLE.pack(END_FRAME, whole - SKIPPABLE.size) + content + TAIL.pack(whole, _TAIL_MAGIC)


def is_backup(begin: bytes) -> bool:
    """Whether a file that begins so is, or was, a backup."""
    return begin[SKIPPABLE.size : SKIPPABLE.size + len(HEAD_MAGIC)] == HEAD_MAGIC


def head_bytes(begin: bytes) -> int:
    """The bytes of the head's frame, from the first eight bytes of the file. Raises BackupError."""
    if len(begin) < SKIPPABLE.size:
        raise BackupError("the file is too short for a backup", len(begin))
    magic, size = SKIPPABLE.unpack_from(begin)
    if magic != HEAD_FRAME or not HEADER_BYTES <= size <= HEADER_BYTES + MAP_BYTES_MAX:
        raise BackupError("the file does not begin as a backup does", 0)
    return SKIPPABLE.size + size


def end_bytes(tail: bytes) -> int:
    """The bytes of the last frame, from the last twelve bytes of the file. Raises BackupError."""
    whole, magic = TAIL.unpack(tail)
    if magic != _TAIL_MAGIC or not SKIPPABLE.size + HEADER_BYTES + TAIL.size <= whole <= MAP_BYTES_MAX + 1024:
        raise BackupError("the file does not end as a backup does: it was cut off", 0)
    return whole


def decode_head(frame: bytes) -> BackupHead:
    """Reads the first frame. Raises BackupError."""
    return _decode(HEAD_MAGIC, frame[SKIPPABLE.size :], BackupHead, 0)


def decode_end(frame: bytes, offset: int) -> BackupEnd:
    """Reads the last frame, which begins at `offset`. Raises BackupError."""
    if SKIPPABLE.unpack_from(frame) != (END_FRAME, len(frame) - SKIPPABLE.size):
        raise BackupError("no index stands where the end of the file says it begins", offset)
    return _decode(END_MAGIC, frame[SKIPPABLE.size : -TAIL.size], BackupEnd, offset)


def _decode(magic: bytes, content: bytes, kind: type[_Map], offset: int) -> _Map:
    try:
        encoded = unframe_map(magic, content)
        said = msgspec.msgpack.decode(encoded, type=_FormatOnly).format
        if said != FORMAT:
            raise BackupError(f"its format is {said}; this version of relayd reads {FORMAT}", offset)
        return msgspec.msgpack.decode(encoded, type=kind)
    except (CheckedMapError, msgspec.DecodeError) as error:
        raise BackupError(str(error), offset) from None
