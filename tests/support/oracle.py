"""A reader of segments that is not relayd's own, and a maker of their bytes, both from the layout's tables alone."""

import hashlib
import struct
import zlib
from pathlib import Path

STORE = bytes(range(16))
SEGMENT = bytes(range(16, 32))


def record(ordinal: int, body: bytes) -> bytes:
    """One record."""
    digest = hashlib.blake2b(struct.pack("<Q", ordinal) + body, digest_size=16, person=b"relayd.event.v1").digest()
    return struct.pack("<IQ", len(body), ordinal) + digest + body


def segment_header(store: bytes = STORE, segment: bytes = SEGMENT) -> bytes:
    """A segment's first 48 bytes."""
    checked = b"RLYSEG01" + store + segment
    return checked + struct.pack("<I", zlib.crc32(checked)) + bytes(4)


def group(offset: int, first: int, bodies: list[bytes], segment: bytes = SEGMENT) -> bytes:
    """A group at `offset` with one record for each body."""
    payload = b"".join(record(first + at, body) for at, body in enumerate(bodies))
    checked = b"RLYG" + struct.pack("<I", 1) + segment + struct.pack("<QQ", offset, first)
    checked += struct.pack("<IIII", len(bodies), len(payload), zlib.crc32(payload), 0)
    return checked + struct.pack("<I", zlib.crc32(checked)) + bytes(4) + payload


def segment_of(groups: list[list[bytes]], first: int = 1, segment: bytes = SEGMENT) -> bytes:
    """A whole segment: one group for each list of bodies."""
    made = segment_header(segment=segment)
    for bodies in groups:
        made += group(len(made), first, bodies, segment)
        first += len(bodies)
    return made


def watermark(segment: bytes, offset: int) -> bytes:
    """The watermark file's 40 bytes."""
    checked = b"RLYMARK1" + segment + struct.pack("<Q", offset)
    return checked + struct.pack("<I", zlib.crc32(checked)) + bytes(4)


def read_segment(data: bytes) -> tuple[bytes, dict[int, bytes], int]:
    """Segment id, bodies by ordinal, and the offset where whole groups end; empty id where the header is not good."""
    if len(data) < 48 or segment_header(data[8:24], data[24:40]) != data[:48]:
        return b"", {}, 0
    segment, bodies, at = data[24:40], {}, 48
    while len(data) >= at + 64 and data[at : at + 4] == b"RLYG":
        first, count, length = struct.unpack_from("<QII", data, at + 32)
        here: list[bytes] = []
        place = at + 64
        while place + 28 <= min(at + 64 + length, len(data)) and len(here) < count:
            size = struct.unpack_from("<I", data, place)[0]
            here.append(data[place + 28 : place + 28 + size])
            place += 28 + size
        if data[at : at + 64 + length] != group(at, first, here, segment):
            break
        bodies.update(enumerate(here, first))
        at += 64 + length
    return segment, bodies, at


def read_journal(journal: Path) -> dict[int, bytes]:
    """Bodies by ordinal of all rotated segments and active.log; an ordinal in two files fails the test."""
    found: dict[int, bytes] = {}
    for file in sorted(journal.iterdir()):
        if file.suffix == ".log":
            bodies = read_segment(file.read_bytes())[1]
            assert not found.keys() & bodies.keys(), f"{file.name}: ordinals in two files"
            found.update(bodies)
    return found
