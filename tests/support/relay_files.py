"""A relay's files, made from the layout's tables, and read again by a reader that is not relayd's own."""

import hashlib
import json
import struct
from pathlib import Path

import msgspec
import zstandard
from support import oracle

NAME = "demo"
T0 = 1_700_000_000_000


def body(ordinal: int, text: str | None = None) -> bytes:
    """The body of an event; ordinal 1 is `relay.created`."""
    if ordinal == 1:
        data = {"store": oracle.STORE, "retention": "checkpointed", "max_active": 1}
        return msgspec.msgpack.encode([T0, "relay.created", data])
    data = {"stream": "stdout", "text": text or f"line {ordinal} " * (ordinal % 5 + 1)}
    return msgspec.msgpack.encode([T0 + ordinal, "output", data, None, ["builder", ordinal]])


def bodies(first: int, last: int) -> list[bytes]:
    """Bodies of the ordinals `first` to `last`."""
    return [body(ordinal) for ordinal in range(first, last + 1)]


def digest(ordinal: int) -> bytes:
    """The digest at `ordinal` of these bodies."""
    return oracle.record(ordinal, body(ordinal))[12:28]


def grouped(first: int, last: int, sizes=(1, 3, 2)) -> list[list[bytes]]:
    """Bodies of `first` to `last` in groups of these sizes, over and over."""
    groups, at, number = [], first, 0
    while at <= last:
        size = min(sizes[number % len(sizes)], last + 1 - at)
        groups.append(bodies(at, at + size - 1))
        at, number = at + size, number + 1
    return groups


def segment(first: int, last: int, segment_id: bytes = oracle.SEGMENT, sizes=(1, 3, 2)) -> bytes:
    """A file of groups with these ordinals."""
    return oracle.segment_of(grouped(first, last, sizes), first, segment_id)


def sealed(first: int, last: int, per_frame: int = 3, segment_id: bytes = b"\x33" * 16, store=oracle.STORE) -> bytes:
    """A sealed segment with these ordinals, so many to a frame."""
    frames, content, stream = [], b"", hashlib.blake2b(digest_size=32)
    for begin in range(first, last + 1, per_frame):
        plain = b"".join(oracle.record(at, body(at)) for at in range(begin, min(begin + per_frame, last + 1)))
        stored = zstandard.ZstdCompressor(level=3, write_checksum=True, write_content_size=True).compress(plain)
        frames.append([begin, len(content), len(stored), len(plain)])
        content += stored
        stream.update(plain)
    index = {"format": 1, "store": store, "segment": segment_id, "first": first, "last": last}
    index |= {"count": last - first + 1, "frames": frames, "stream": stream.digest()}
    encoded = msgspec.msgpack.encode(index)
    whole = 8 + len(encoded) + 32 + 4 + 8
    check = hashlib.blake2b(encoded, digest_size=32).digest()
    return (
        content + struct.pack("<II", 0x184D2A5E, whole - 8) + encoded + check + struct.pack("<I", whole) + b"RLYINDX1"
    )


def checked_map(magic: bytes, content: object) -> bytes:
    """The framing of snapshot, acknowledged and seed."""
    encoded = msgspec.msgpack.encode(content)
    return magic + struct.pack("<Q", len(encoded)) + hashlib.blake2b(encoded, digest_size=32).digest() + encoded


def snapshot(frontier: int, base: int = 0) -> bytes:
    """A snapshot that stands at `frontier` of these bodies."""
    zero = [0, bytes(16)]
    cursor = [frontier, digest(frontier)] if frontier else zero
    state = {"store": oracle.STORE, "frontier": cursor}
    state |= {"producers": {"builder": [frontier, cursor]}} if frontier > 1 else {}
    said = {"format": 1, "relay": NAME, "store": oracle.STORE, "frontier": cursor}
    return checked_map(b"RLYSNAP1", said | {"base": [base, digest(base)] if base else zero, "state": state})


def acknowledged(ordinal: int) -> bytes:
    """The file of one consumer that has everything through `ordinal`."""
    cursor = [ordinal, digest(ordinal)]
    said = {"format": 1, "store": oracle.STORE, "acknowledged": cursor, "consumers": {"controller": cursor}}
    return checked_map(b"RLYACKD1", said)


class RelayFiles:
    """The directory of one relay below `state`."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.path = state / "relays" / NAME
        self.journal = self.path / "journal"
        self.quarantine = self.path / "quarantine"
        self.journal.mkdir(parents=True)

    def put(self, name: str, content: bytes) -> Path:
        """Writes a file of the relay, `journal/…` too."""
        path = self.path / name
        path.write_bytes(content)
        return path

    def active(self, content: bytes, synced: int | None = None, segment_id: bytes = oracle.SEGMENT) -> Path:
        """Writes active.log, and the watermark at `synced` (its end where not said; -1: none)."""
        offset = len(content) if synced is None else synced
        if offset >= 0:
            self.put("watermark", oracle.watermark(segment_id, offset))
        return self.put("journal/active.log", content)

    def everything(self) -> dict[str, bytes]:
        """Every file of the relay."""
        return {
            str(path.relative_to(self.path)): path.read_bytes()
            for path in sorted(self.path.rglob("*"))
            if path.is_file()
        }

    def records(self) -> dict[int, bytes]:
        """Bodies by ordinal of everything in journal/; an ordinal in two files fails the test."""
        found: dict[int, bytes] = {}
        for path in sorted(self.journal.iterdir()):
            here: dict[int, bytes] = {}
            if path.name.endswith(".log"):
                here = oracle.read_segment(path.read_bytes())[1]
            elif path.name.endswith(".log.zst"):
                here = read_sealed(path.read_bytes())
            assert not found.keys() & here.keys(), f"{path.name}: ordinals in two files"
            found.update(here)
        return found

    def marks(self) -> list[tuple[int, int]]:
        """The spans that empty files mark as lost."""
        names = sorted(path.name for path in self.journal.glob("*.lost"))
        return [(int(name[:20]), int(name[21:41])) for name in names]


def read_sealed(content: bytes) -> dict[int, bytes]:
    """What `zstd -dc` gives of a sealed segment, cut into records, each digest checked."""
    plain = zstandard.ZstdDecompressor().stream_reader(content, read_across_frames=True).read()
    found: dict[int, bytes] = {}
    at = 0
    while at < len(plain):
        length, ordinal = struct.unpack_from("<IQ", plain, at)
        text = plain[at + 28 : at + 28 + length]
        assert plain[at : at + 28 + length] == oracle.record(ordinal, text)
        found[ordinal] = text
        at += 28 + length
    return found


def read_lines(path: Path) -> dict[int, dict]:
    """JSON lines by ordinal; an ordinal twice fails the test."""
    found: dict[int, dict] = {}
    for line in path.read_bytes().splitlines():
        said = json.loads(line)
        assert said["ordinal"] not in found
        found[said["ordinal"]] = said
    return found
