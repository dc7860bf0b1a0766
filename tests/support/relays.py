"""A relay's directory made byte by byte from the layout's tables, opened, and read back without relayd's own reader."""

import hashlib
import itertools
import shutil
import struct
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from support import oracle, sealed_oracle
from support.faults import Faults

from relayd.journal.active import SyncedEnd
from relayd.journal.real_storage import open_state_directory
from relayd.journal.writer import Batch
from relayd.recovery.opening import Opened, open_relay
from relayd.recovery.refusal import OpeningError

pack = msgspec.msgpack.encode
ZERO = bytes(16)
OTHER_STORE = b"S" * 16
OTHER_SEGMENT = b"G" * 16
CREATED = pack([1000, "relay.created", {"store": oracle.STORE, "retention": "checkpointed", "max_active": 1}])


def event(ordinal: int, size: int = 20) -> bytes:
    """The body of the application event that these tests put at `ordinal`; ordinal 1 is `relay.created`."""
    if ordinal == 1:
        return CREATED
    return pack([1000 + ordinal, "output", {"text": "é" * size}, None, ["p", ordinal]])


def events(first: int, last: int) -> list[bytes]:
    """The bodies of `first` to `last`."""
    return [event(ordinal) for ordinal in range(first, last + 1)]


def digest(ordinal: int, body: bytes | None = None) -> bytes:
    """The digest of the event at `ordinal`."""
    if ordinal == 0:
        return ZERO
    return oracle.record(ordinal, event(ordinal) if body is None else body)[12:28]


def cursor(ordinal: int) -> list:
    """The cursor of a holder whose last event is the one at `ordinal`."""
    return [ordinal, digest(ordinal)]


def framed(magic: bytes, content: object) -> bytes:
    """A file of magic, length, digest, map."""
    encoded = content if isinstance(content, bytes) else pack(content)
    return magic + struct.pack("<Q", len(encoded)) + hashlib.blake2b(encoded, digest_size=32).digest() + encoded


def state(frontier: int, /, **changes: object) -> dict:
    """What the events up to `frontier` add up to, worked out by hand."""
    producers = {} if frontier < 2 else {"p": [frontier, cursor(frontier)]}
    return {
        "store": oracle.STORE,
        "retention": "checkpointed",
        "max_active": 1,
        "frontier": cursor(frontier),
        "evicted": cursor(0),
        "floor": None,
        "seed": None,
        "execution_since": 1000,
        "last_event_at": 1000 if frontier == 1 else 1000 + frontier,
        "producers": producers,
        "lane": {},
    } | changes


def snapshot(frontier: int, /, base: int = 0, store: bytes = oracle.STORE, **changes: object) -> bytes:
    """A snapshot file at `frontier`; `changes` overrides what its state says."""
    said = state(frontier, store=store, **changes)
    whole = {"format": 1, "relay": "demo", "store": store, "frontier": said["frontier"], "base": cursor(base)}
    return framed(b"RLYSNAP1", whole | {"state": said})


def acknowledged(ordinal: int, store: bytes = oracle.STORE, **consumers: list) -> bytes:
    """The file `acknowledged` of one consumer at `ordinal`, or of `consumers`."""
    said = {
        "format": 1,
        "store": store,
        "acknowledged": cursor(ordinal),
        "consumers": consumers or {"c": cursor(ordinal)},
    }
    return framed(b"RLYACKD1", said)


def name(first: int, last: int, suffix: str = ".log") -> str:
    """A segment's name."""
    return f"{first:020}-{last:020}{suffix}"


class Ended(NamedTuple):
    """A group in the segment that `segment` made: where it ends, and its last ordinal."""

    end: int
    last: int


def segment(*counts: int, first: int = 1, segment: bytes = oracle.SEGMENT, store: bytes = oracle.STORE) -> bytes:
    """A segment with one group for each count of events, their ordinals from `first` on."""
    made = oracle.segment_header(store, segment)
    for count in counts:
        made += oracle.group(len(made), first, events(first, first + count - 1), segment)
        first += count
    return made


def ends(*counts: int, first: int = 1) -> list[Ended]:
    """Where the groups of such a segment end; the first is the header's end."""
    return [
        Ended(len(segment(*counts[:at], first=first)), first + sum(counts[:at]) - 1) for at in range(len(counts) + 1)
    ]


def sealed(first: int, last: int, segment: bytes = oracle.SEGMENT, frame: int = 3, **changes: object) -> bytes:
    """A sealed segment, `frame` events to a frame."""
    bodies = [events(at, min(last, at + frame - 1)) for at in range(first, last + 1, frame)]
    return sealed_oracle.sealed_of(bodies, first, segment=segment, **changes)


class RelayDisk:
    """One relay's directory on the real disk, `<root>/relays/demo`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.path = root / "relays" / "demo"
        self.journal = self.path / "journal"
        self.journal.mkdir(parents=True)
        self._ids = itertools.count(1)

    def put(self, **files: bytes) -> "RelayDisk":
        """Files of the relay's directory by name, `_` for `.`."""
        for key, content in files.items():
            (self.path / key.replace("_", ".")).write_bytes(content)
        return self

    def put_segments(self, files: dict[str, bytes]) -> "RelayDisk":
        """Files of the journal by name."""
        for key, content in files.items():
            (self.journal / key).write_bytes(content)
        return self

    def active(self, content: bytes, marked: int | None = None, segment: bytes = oracle.SEGMENT) -> "RelayDisk":
        """active.log, and a watermark at `marked`."""
        self.put_segments({"active.log": content})
        return self if marked is None else self.put(watermark=oracle.watermark(segment, marked))

    def new_id(self) -> bytes:
        """Ids that no file has."""
        return bytes([0xEE]) * 8 + next(self._ids).to_bytes(8, "big")

    def open(
        self, faults: Faults | None = None, synced: SyncedEnd | None = None, segment_bytes: int = 1 << 20
    ) -> Opened:
        """Opens the relay, under faults that begin with the opening."""
        top = open_state_directory(str(self.root))
        relays = top.directory("relays")
        relay = relays.directory("demo")
        top.close()
        relays.close()
        wrapped = relay if faults is None else faults.wrap(relay)
        try:
            return open_relay(wrapped, "demo", segment_bytes=segment_bytes, new_id=self.new_id, synced=synced)
        except BaseException:
            relay.close()
            raise

    def look(self) -> Opened:
        """Opens the relay and closes it again."""
        opened = self.open()
        close(opened)
        return opened

    def refused(self, reason: str, synced: SyncedEnd | None = None) -> OpeningError:
        """Proves that the relay does not open for this reason, and that no byte and no name changed."""
        before = self.tree()
        with pytest.raises(OpeningError) as caught:
            self.open(synced=synced)
        assert caught.value.reason == reason, str(caught.value)
        assert self.tree() == before
        assert caught.value.detail.hint
        return caught.value

    def tree(self) -> dict[str, bytes]:
        """Every file and its bytes."""
        return {
            str(path.relative_to(self.path)): path.read_bytes() if path.is_file() else b""
            for path in sorted(self.path.rglob("*"))
        }

    def restore(self, tree: dict[str, bytes]) -> None:
        """Puts back what `tree` told."""
        shutil.rmtree(self.path)
        self.journal.mkdir(parents=True)
        for relative, content in tree.items():
            path = self.path / relative
            if relative in ("journal", "quarantine"):
                path.mkdir(exist_ok=True)
            else:
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(content)

    def bodies(self) -> dict[int, bytes]:
        """Bodies by ordinal, as the files of groups hold them."""
        return oracle.read_journal(self.journal)

    def quarantine(self) -> dict[str, bytes]:
        """What was set aside."""
        folder = self.path / "quarantine"
        return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}

    def snapshots(self) -> tuple[dict | None, dict | None]:
        """What both generations say, read without relayd."""
        return tuple(
            msgspec.msgpack.decode((self.path / each).read_bytes()[48:]) if (self.path / each).exists() else None
            for each in ("snapshot", "snapshot.previous")
        )


def close(opened: Opened) -> None:
    """Gives back what an open relay holds."""
    if opened.writer is not None:
        opened.writer.close()
    opened.journal.close()
    opened.relay.close()


def append(opened: Opened, *bodies: bytes) -> None:
    """Commits one group behind the last."""
    first = opened.writer.last_ordinal + 1
    records = [oracle.record(first + at, body) for at, body in enumerate(bodies)]
    opened.writer.commit(Batch(first, len(records), records))


def seen(opened: Opened) -> dict:
    """The state as a map, to be compared with `state`."""
    return msgspec.msgpack.decode(pack(opened.state))
