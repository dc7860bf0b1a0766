"""Requests of every operation that protocol.md has, allowed ones, drawn at random: what a mutation begins from."""

from collections.abc import Callable
from random import Random
from typing import Protocol

RELAYS = ("a", "b-2", "c.3", "d_4")
"""Those that requests are about; the last is made and deleted all the time."""
GONE = RELAYS[-1]
PRODUCERS = ("p", "worker 1", "Ünïcode ✓", "x" * 128)
CONSUMERS = ("controller", "archive", "k" * 128)
KINDS = ("output", "x", "a.b-c_9", "k" * 64)
WAITS = (0, 0, 0, 1, 50, 60_000)


class Known(Protocol):
    """What a client could know of the relays."""

    def cursor(self, relay: str, random: Random) -> list:
        """A cursor of that relay's history."""
        ...

    def store(self, relay: str) -> bytes:
        """The relay's store id."""
        ...

    def next_sequence(self, relay: str, producer: str) -> int:
        """What follows the producer's last."""
        ...


def make_request(random: Random, known: Known, op: str | None = None) -> dict:
    """One request; ids are so many that two are alike only where somebody wants it."""
    op = op or random.choice(_OFTEN)
    relay = random.choice(RELAYS)
    return {"op": op, "id": random.randrange(1, 2**32), **_FIELDS[op](random, known, relay)}


def _hello(random: Random, known: Known, relay: str) -> dict:
    fields = {"versions": random.choice(([1], [1, 2], [7, 1])), "client": "mutated"}
    return fields | ({random.choice(("asker", "author", "worker")): "somebody"} if random.random() < 0.3 else {})


def _nothing(random: Random, known: Known, relay: str) -> dict:
    return {}


def _open(random: Random, known: Known, relay: str) -> dict:
    fields = {"relay": relay, "create": random.random() < 0.8}
    if random.random() < 0.2:
        fields["retention"] = random.choice(("checkpointed", "acknowledged", {"bytes": 1 << 40}))
    if random.random() < 0.2:
        fields["max_active"] = random.choice((1, 7, 10_000))
    return fields


def _delete(random: Random, known: Known, relay: str) -> dict:
    if random.random() < 0.5:
        return {"relay": GONE, "store": known.store(GONE)}
    return {"relay": relay, "store": random.randbytes(16)}


def _status(random: Random, known: Known, relay: str) -> dict:
    return {"relay": relay}


def _record(random: Random, known: Known, relay: str) -> dict:
    fields: dict = {"relay": relay, "events": [_event(random) for _ in range(random.choice((1, 1, 1, 2, 5)))]}
    chance = random.random()
    if chance < 0.5:
        producer = random.choice(PRODUCERS)
        fields["producer"] = producer
        fields["sequence"] = max(1, known.next_sequence(relay, producer) + random.choice((0, 0, 0, 0, -1, -3, 1, 2)))
        if chance < 0.05:
            del fields["events"], fields["sequence"]
    if random.random() < 0.1:
        fields["oversize"] = random.choice(("refuse", "clamp"))
    return fields


def _event(random: Random) -> list:
    data = random.choice(_DATA)
    event = [random.choice(KINDS), data, f"command-{random.randrange(10**6)}"]
    return event[: random.choice((1, 2, 2, 2, 3))]


_DATA = (
    None, True, 7, -1, 2**64 - 1, -(2**63), 1.5, float("nan"), float("inf"), "text", "Ünïcode ✓ \U0001f600", b"bytes",
    "x" * 40, "y" * 300, bytes(70_000), [], {}, [1, [2, [3, [4]]]], {"stream": "stdout", "text": "line\n"},
    {"": {"a": [None, {"b": b"\x00"}]}}, [{}] * 20,
)  # fmt: skip


def _position(random: Random, known: Known, relay: str) -> object:
    return random.choice((known.cursor(relay, random), "earliest", "latest", {"consumer": random.choice(CONSUMERS)}))


def _attach(random: Random, known: Known, relay: str) -> dict:
    fields = {"relay": relay, "after": _position(random, known, relay)}
    if random.random() < 0.4:
        fields["wait_ms"] = random.choice(WAITS)
    # Small pages: most of the work is to be the daemon's, not the comparing of long ones.
    fields["max_bytes"] = random.choice((1, 200, 1000))
    if random.random() < 0.2:
        fields["status"] = random.random() < 0.5
    return fields


def _acknowledge(random: Random, known: Known, relay: str) -> dict:
    fields = {"relay": relay, "through": known.cursor(relay, random)}
    return fields | ({"consumer": random.choice(CONSUMERS)} if random.random() < 0.6 else {})


def _await(random: Random, known: Known, relay: str) -> dict:
    through = known.cursor(relay, random)
    return {
        "relay": relay,
        "consumer": random.choice(CONSUMERS),
        "through": through,
        "wait_ms": random.choice(WAITS),
    }


def _forget(random: Random, known: Known, relay: str) -> dict:
    return {"relay": relay, "consumer": random.choice(CONSUMERS)}


def _cancel(random: Random, known: Known, relay: str) -> dict:
    return {"request": random.randrange(1, 2**32)}


_FIELDS: dict[str, Callable[[Random, Known, str], dict]] = {
    "hello": _hello, "relays": _nothing, "open": _open, "delete_relay": _delete, "status": _status, "record": _record,
    "attach": _attach, "acknowledge": _acknowledge, "await_acknowledged": _await, "forget_consumer": _forget,
    "cancel_request": _cancel, "leave": _nothing,
}  # fmt: skip
OPERATIONS = tuple(_FIELDS)
_OFTEN = (*OPERATIONS, *["record"] * 6, *["attach"] * 3, "open", "acknowledge")
