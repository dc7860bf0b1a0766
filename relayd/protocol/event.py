"""The record: one codec for disk, pages and replication (docs/reference/journal.md, "Record").

    offset  size  field
    0       4     body length, u32 little-endian, 1 to 2 MiB
    4       8     ordinal, u64 little-endian, from 1
    12      16    digest: BLAKE2b, 16 bytes, person `relayd.event.v1`, over ordinal (8 bytes) then body
    28      n     body: MessagePack array [recorded_at_ms, kind, data, command_id, producer], trailing nils dropped

The digest is over stored bytes, never over a re-encoding. Nothing here does I/O.
"""

import hashlib
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from relayd.protocol.cursor import Cursor
from relayd.protocol.limits import EVENT_BODY_BYTES_MAX

RECORD_HEADER: Final = struct.Struct("<IQ16s")
RECORD_HEADER_BYTES: Final = RECORD_HEADER.size
NIL: Final = msgspec.Raw(b"\xc0")

Buffer = bytes | bytearray | memoryview

_ORDINAL: Final = struct.Struct("<Q")
_LENGTH: Final = struct.Struct("<I")
DIGEST_BASE: Final = hashlib.blake2b(digest_size=16, person=b"relayd.event.v1")
"""The digest of nothing yet: a copy of it is updated with ordinal and body."""
_encode: Final = msgspec.msgpack.Encoder().encode


class RecordError(ValueError):
    """Bytes that are no record: `offset` is where in the buffer the first bad record begins."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


class Producer(NamedTuple):
    """Who numbered an event, and with which number."""

    name: str
    sequence: int


class Body(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True, gc=False):
    """A record's body. `data` is kept as the bytes it came as; `recorded_at_ms` is milliseconds since 1970."""

    recorded_at_ms: int
    kind: str
    data: msgspec.Raw = NIL
    command_id: str | None = None
    producer: Producer | None = None


class Record(NamedTuple):
    """One whole record of a buffer; `body` is a view of it."""

    ordinal: int
    digest: bytes
    body: Buffer

    @property
    def cursor(self) -> Cursor:
        """The cursor of a holder whose last event this is."""
        return Cursor(self.ordinal, self.digest)


_decode_body: Final = msgspec.msgpack.Decoder(Body).decode


def encode_body(
    recorded_at_ms: int,
    kind: str,
    data: msgspec.Raw = NIL,
    command_id: str | None = None,
    producer: tuple[str, int] | None = None,
) -> bytes:
    """Encodes a body; trailing nils are dropped. `data` is one whole MessagePack value."""
    if producer is not None:
        return _encode((recorded_at_ms, kind, data, command_id, producer))
    if command_id is not None:
        return _encode((recorded_at_ms, kind, data, command_id))
    if bytes(data) == b"\xc0":
        return _encode((recorded_at_ms, kind))
    return _encode((recorded_at_ms, kind, data))


def decode_body(body: Buffer) -> Body:
    """Reads a body. Raises msgspec.DecodeError where it is none."""
    return _decode_body(body)


def digest_of(ordinal: int, body: Buffer) -> bytes:
    """The digest of the event at `ordinal` with the stored `body`."""
    hashing = DIGEST_BASE.copy()
    hashing.update(_ORDINAL.pack(ordinal))
    hashing.update(body)
    return hashing.digest()


def encode_records(first: int, bodies: list[bytes]) -> tuple[bytes, bytes]:
    """Whole records for `bodies`, at the ordinals from `first` on, and the last one's digest."""
    parts: list[bytes] = []
    digest = b""
    base, pack, pack_ordinal = DIGEST_BASE, RECORD_HEADER.pack, _ORDINAL.pack
    for ordinal, body in enumerate(bodies, first):
        hashing = base.copy()
        hashing.update(pack_ordinal(ordinal) + body)
        digest = hashing.digest()
        parts.append(pack(len(body), ordinal, digest))
        parts.append(body)
    return b"".join(parts), digest


def iter_records(buffer: Buffer, offset: int = 0) -> Iterator[Record]:
    """Cuts `buffer` from `offset` into records, without checking digests.

    Raises RecordError at the first place where no whole record stands. Bodies are views of `buffer`.
    """
    view = memoryview(buffer)
    end = len(view)
    while offset < end:
        body_start = offset + RECORD_HEADER_BYTES
        if body_start > end:
            raise RecordError("a record's header is cut short", offset)
        length, ordinal, digest = RECORD_HEADER.unpack_from(view, offset)
        if not 1 <= length <= EVENT_BODY_BYTES_MAX:
            message = f"a record says its body has {length} bytes; 1 to {EVENT_BODY_BYTES_MAX} are possible"
            raise RecordError(message, offset)
        if body_start + length > end:
            raise RecordError("a record's body is cut short", offset)
        yield Record(ordinal, digest, view[body_start : body_start + length])
        offset = body_start + length


def verify_records(buffer: Buffer, after: int) -> list[Record]:
    """All records of `buffer`, proven: ordinals from `after` + 1 upward without a hole, every digest right.

    Raises RecordError, naming the offset of the first that is not so.
    """
    records: list[Record] = []
    expected = after + 1
    offset = 0
    for record in iter_records(buffer):
        if record.ordinal != expected:
            raise RecordError(f"ordinal {record.ordinal} stands where {expected} belongs", offset)
        if digest_of(record.ordinal, record.body) != record.digest:
            raise RecordError(f"the digest of ordinal {record.ordinal} is not that of its bytes", offset)
        records.append(record)
        expected += 1
        offset += RECORD_HEADER_BYTES + len(record.body)
    return records


def record_offsets(buffer: Buffer) -> list[int]:
    """The offset of each record in `buffer`, which is known to be whole records."""
    offsets: list[int] = []
    offset, end = 0, len(buffer)
    while offset < end:
        offsets.append(offset)
        offset += RECORD_HEADER_BYTES + _LENGTH.unpack_from(buffer, offset)[0]
    return offsets
