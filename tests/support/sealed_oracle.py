"""A reader and a maker of sealed segments that are not relayd's own, from the layout's table alone."""

import hashlib
import struct

import msgspec
import zstandard
from support import oracle


def frame(plain: bytes, *, level: int = 3, stated: bool = True, checksum: bool = True) -> bytes:
    """One zstd frame."""
    return zstandard.ZstdCompressor(level=level, write_checksum=checksum, write_content_size=stated).compress(plain)


def index_frame(index: dict) -> bytes:
    """The skippable frame that ends a sealed segment, around whatever `index` says."""
    encoded = msgspec.msgpack.encode(index)
    digest = hashlib.blake2b(encoded, digest_size=32).digest()
    rest = encoded + digest + struct.pack("<I", len(encoded) + 52) + b"RLYINDX1"
    return struct.pack("<II", 0x184D2A5E, len(rest)) + rest


def index_of(blocks: list[list[bytes]], frames: list[bytes], first: int) -> dict:
    """The index of these frames, each of one block of records."""
    entries, offset, ordinal = [], 0, first
    for block, stored in zip(blocks, frames, strict=True):
        entries.append([ordinal, offset, len(stored), sum(map(len, block))])
        offset, ordinal = offset + len(stored), ordinal + len(block)
    stream = hashlib.blake2b(b"".join(b"".join(block) for block in blocks), digest_size=32).digest()
    return {
        "format": 1,
        "store": oracle.STORE,
        "segment": oracle.SEGMENT,
        "first": first,
        "last": ordinal - 1,
        "count": ordinal - first,
        "frames": entries,
        "stream": stream,
    }


def records_of(bodies: list[list[bytes]], first: int = 1) -> list[list[bytes]]:
    """Records for lists of bodies, ordinals from `first` upward."""
    blocks, ordinal = [], first
    for block in bodies:
        blocks.append([oracle.record(ordinal + at, body) for at, body in enumerate(block)])
        ordinal += len(block)
    return blocks


def sealed_of(bodies: list[list[bytes]], first: int = 1, **changes: object) -> bytes:
    """A whole sealed segment with one frame for each list of bodies; `changes` overrides what its index says."""
    blocks = records_of(bodies, first)
    frames = [frame(b"".join(block)) for block in blocks]
    return b"".join(frames) + index_frame(index_of(blocks, frames, first) | changes)


def sealed_name(first: int, last: int) -> str:
    return f"{first:020d}-{last:020d}.log.zst"


def read_sealed(data: bytes) -> tuple[dict, dict[int, bytes]]:
    """Index, and bodies by ordinal, all proven; fails the test where anything is not as the table says."""
    assert data[-8:] == b"RLYINDX1"
    whole = struct.unpack("<I", data[-12:-8])[0]
    start = len(data) - whole
    assert struct.unpack("<II", data[start : start + 8]) == (0x184D2A5E, whole - 8)
    encoded, digest = data[start + 8 : -44], data[-44:-12]
    assert hashlib.blake2b(encoded, digest_size=32).digest() == digest
    index = msgspec.msgpack.decode(encoded)
    bodies, plain, offset, expected = {}, b"", 0, index["first"]
    for first, at, size, plain_size in index["frames"]:
        assert (at, first) == (offset, expected)
        stored = data[at : at + size]
        said = zstandard.get_frame_parameters(stored)
        assert (said.content_size, said.has_checksum) == (plain_size, True)
        block = zstandard.ZstdDecompressor().decompress(stored, allow_extra_data=False)
        assert len(block) == plain_size
        place = 0
        while place < len(block):
            length, ordinal = struct.unpack_from("<IQ", block, place)
            body = block[place + 28 : place + 28 + length]
            assert block[place : place + 28 + length] == oracle.record(expected, body)
            assert ordinal == expected
            bodies[ordinal] = body
            place, expected = place + 28 + length, expected + 1
        plain, offset = plain + block, offset + size
    assert offset == start
    assert expected - 1 == index["last"]
    assert index["count"] == len(bodies)
    assert hashlib.blake2b(plain, digest_size=32).digest() == index["stream"]
    return index, bodies
