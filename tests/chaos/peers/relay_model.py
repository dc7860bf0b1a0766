"""One relay as protocol.md and journal.md have it: its events byte for byte, its producers, its consumers."""

import hashlib
import struct
from random import Random

import msgspec

GENESIS = [0, bytes(16)]
PRODUCERS_REMEMBERED = 1024
pack = msgspec.msgpack.encode


def digest_of(ordinal: int, body: bytes) -> bytes:
    """journal.md, "Record"."""
    return hashlib.blake2b(struct.pack("<Q", ordinal) + body, digest_size=16, person=b"relayd.event.v1").digest()


def body_of(now_ms: int, kind: str, data: bytes, command_id: str | None, producer: list | None) -> bytes:
    """journal.md, "Record": an array whose trailing nils are dropped; `data` is the bytes it was sent in."""
    parts = [pack(now_ms), pack(kind), data, pack(command_id), pack(producer)]
    while parts[-1] == b"\xc0":
        parts.pop()
    return bytes([0x90 + len(parts)]) + b"".join(parts)


class RelayModel:
    """`bodies` and `cursors` by ordinal; those of ordinal 0 are of genesis."""

    def __init__(self, store: bytes, now_ms: int, retention: object, max_active: int) -> None:
        self.store, self.retention, self.max_active = store, retention, max_active
        self.bodies = [b""]
        self.cursors: list[list] = [GENESIS]
        self.producers: dict[str, tuple[int, list]] = {}
        self.consumers: dict[str, list] = {}
        self.durable = 0
        """How far it certainly was synced when the batch began."""
        created = {"store": store, "retention": retention, "max_active": max_active}
        self._append(body_of(now_ms, "relay.created", pack(created), None, None))
        self.durable = 1

    @property
    def latest(self) -> list:
        return self.cursors[-1]

    @property
    def keeps_all(self) -> bool:
        """Whether no acknowledgement lets anything go."""
        return self.retention == "checkpointed"

    def _append(self, body: bytes) -> None:
        ordinal = len(self.bodies)
        self.bodies.append(body)
        self.cursors.append([ordinal, digest_of(ordinal, body)])

    def record(self, now_ms: int, fields: dict, data: list[bytes]) -> dict:
        """Records what is new; the answer, or the refusal."""
        events, producer, sequence = fields.get("events") or [], fields.get("producer"), fields.get("sequence")
        first, skipped = len(self.bodies), 0
        if producer is not None:
            last, cursor = self.producers.get(producer, (None, None))
            if sequence is None:
                return {"re": "recorded"} if last is None else {"re": "recorded", "sequence": last, "through": cursor}
            if last is not None and sequence > last + 1:
                return {"re": "error", "code": "invalid_state", "detail": {"expected": last + 1}}
            skipped = 0 if last is None else last + 1 - sequence
            if skipped >= len(events):
                return {"re": "recorded", "duplicate": True, "sequence": last, "through": cursor}
        for at in range(skipped, len(events)):
            kind, _, command_id = [*events[at], None, None][:3]
            numbered = None if producer is None else [producer, sequence + at]
            self._append(body_of(now_ms, kind, data[at], command_id, numbered))
        answer = {"re": "recorded", "first": first, "through": self.latest}
        if producer is None:
            return answer
        last = sequence + len(events) - 1
        self.producers.pop(producer, None)
        self.producers[producer] = (last, self.latest)
        if len(self.producers) > PRODUCERS_REMEMBERED:
            del self.producers[next(iter(self.producers))]
        return answer | {"sequence": last}

    # What a client could know

    def some_cursor(self, random: Random) -> list:
        """A cursor of this history, or one that nearly is."""
        ordinal = random.choice((len(self.bodies) - 1, random.randrange(len(self.bodies)), 0, 1, len(self.bodies) + 2))
        known = self.cursors[ordinal][1] if ordinal < len(self.bodies) else random.randbytes(16)
        return [ordinal, random.choice((known, known, known, None, random.randbytes(16)))]
