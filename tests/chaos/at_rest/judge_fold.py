"""What events add up to, as far as opening shows it: the frontier, and each producer (docs/reference/events.md).

Part of the judge (judge.py). Imports nothing of relayd.
"""

from dataclasses import dataclass

import msgspec
from chaos.at_rest.judge_files import LaterFormatError, Record, holds

KNOWN = {
    "relay": {"created", "restored", "evicted", "lost", "clamped", "closed"},
    "command": {"queued", "started", "claimed", "requeued", "completed", "rejected", "interrupted"},
    "checkpoint": {"ready"},
    "surface": {"queued", "read", "answered", "abandoned", "attended", "left"},
    "reply": {"kept"},
    "edits": {"queued", "claimed", "judged"},
}
"""Reserved prefixes, and what may follow them."""


class NoEventError(Exception):
    """The record is no event, or has another digest."""


@dataclass
class Fold:
    """Where the fold stands."""

    frontier: tuple[int, bytes]
    producers: dict

    def take(self, ordinal: int, record: Record) -> None:
        """One event further."""
        if not holds(ordinal, record):
            raise NoEventError
        fields = _fields(record)
        prefix, dot, rest = fields[1].partition(".")
        if dot and rest not in KNOWN.get(prefix, {rest}):
            raise LaterFormatError
        self.frontier = (ordinal, record.digest)
        if fields[1] == "relay.lost":
            self.producers.clear()
        if fields[4] is not None:
            name, sequence = fields[4]
            self.producers[name] = [sequence, [ordinal, record.digest]]


def made_by(record: Record) -> bytes | None:
    """The store that `relay.created` names; None for another event."""
    fields = _fields(record)
    return fields[2]["store"] if fields[1] == "relay.created" else None


def lost_span(record: Record) -> tuple[int, int] | None:
    """The ordinals that `relay.lost` names; None for another event."""
    fields = _fields(record)
    return (fields[2]["first"], fields[2]["last"]) if fields[1] == "relay.lost" else None


def _fields(record: Record) -> list:
    """The record's five fields, the trailing nils put back."""
    try:
        fields = msgspec.msgpack.decode(record.body)
    except msgspec.DecodeError as error:
        raise NoEventError from error
    if not isinstance(fields, list) or not 2 <= len(fields) <= 5 or not isinstance(fields[1], str):
        raise NoEventError
    return fields + [None] * (5 - len(fields))
