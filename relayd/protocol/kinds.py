"""Kinds of events and the data of relayd's own (docs/reference/events.md, which is generated from here).

An application's kinds are opaque. Those with a reserved prefix are relayd's: a client cannot record one, and one that
this version does not know refuses the open (`later_format`), because folding past it would guess.
"""

import re
from typing import Annotated, Final

import msgspec

from relayd.protocol.cursor import Cursor
from relayd.protocol.event import NIL

RESERVED_PREFIXES: Final = ("relay.", "command.", "checkpoint.", "surface.", "reply.", "edits.")

_KIND: Final = re.compile(r"[a-z][a-z0-9._-]{0,63}", re.ASCII)

StoreId = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]


class RetentionBytes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bounded retention: whole old segments go past `bytes`, acknowledged or not."""

    bytes: Annotated[int, msgspec.Meta(ge=1)]


RetentionWord = Annotated[str, msgspec.Meta(pattern=r"\A(checkpointed|acknowledged)\Z")]
Retention = RetentionWord | RetentionBytes
RETENTION_DEFAULT: Final[Retention] = "checkpointed"


class EventData(msgspec.Struct, frozen=True, omit_defaults=True, tag_field=None):
    """The data of one of relayd's own kinds; fields that a later version adds are passed over."""


class RelayCreated(EventData, frozen=True, omit_defaults=True):
    """The first event of a relay."""

    store: StoreId
    retention: Retention
    max_active: int


class RelayRestored(EventData, frozen=True, omit_defaults=True):
    """The first event after a seed: `seed` is the 32-byte digest of the seed file it began from."""

    store: StoreId
    seed: Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
    retention: Retention
    max_active: int


class RelayEvicted(EventData, frozen=True, omit_defaults=True):
    """Bounded retention dropped everything up to `through`."""

    through: Cursor


class RelayLost(EventData, frozen=True, omit_defaults=True):
    """Salvage gave up the ordinals `first` to `last`."""

    first: int
    last: int
    reason: str


class RelayClamped(EventData, frozen=True, omit_defaults=True):
    """An event of `kind` with `bytes` bytes stood here that no clamping could fit."""

    kind: str
    bytes: int


class RelayClosed(EventData, frozen=True, omit_defaults=True):
    """The relay is sealed at the cut of `barrier`, for ever."""

    barrier: str
    cut: Cursor


class CommandQueued(EventData, frozen=True, omit_defaults=True):
    """A command was accepted; its id is the record's `command_id`."""

    command: msgspec.Raw


class CommandStarted(EventData, frozen=True, omit_defaults=True):
    """The head of its lane: a worker may have it."""


class CommandClaimed(EventData, frozen=True, omit_defaults=True):
    """Handed to a worker, for the `delivery`-th time."""

    worker: str
    delivery: int


class CommandRequeued(EventData, frozen=True, omit_defaults=True):
    """Back to the head of the queue."""

    reason: str


class CommandEnded(EventData, frozen=True, omit_defaults=True):
    """What a terminal event says: `type` is the command's, `message` is for people."""

    type: str
    reason: str | None = None
    message: str | None = None
    result: msgspec.Raw = NIL


class CommandCompleted(CommandEnded, frozen=True, omit_defaults=True):
    """A command ended as it was meant to."""


class CommandRejected(CommandEnded, frozen=True, omit_defaults=True):
    """A command ended without having been done."""


class CommandInterrupted(CommandEnded, frozen=True, omit_defaults=True):
    """A command ended in the middle; what was done of it is not known."""


class CheckpointReady(EventData, frozen=True, omit_defaults=True):
    """Nothing started runs any more: the cut of `barrier` is this event's own cursor."""

    barrier: str


KINDS: Final[dict[str, type[EventData]]] = {
    "relay.created": RelayCreated,
    "relay.restored": RelayRestored,
    "relay.evicted": RelayEvicted,
    "relay.lost": RelayLost,
    "relay.clamped": RelayClamped,
    "relay.closed": RelayClosed,
    "command.queued": CommandQueued,
    "command.started": CommandStarted,
    "command.claimed": CommandClaimed,
    "command.requeued": CommandRequeued,
    "command.completed": CommandCompleted,
    "command.rejected": CommandRejected,
    "command.interrupted": CommandInterrupted,
    "checkpoint.ready": CheckpointReady,
}
KIND_OF: Final[dict[type[EventData], str]] = {data: kind for kind, data in KINDS.items()}


def is_kind(kind: str) -> bool:
    """Whether `kind` has the grammar of a kind."""
    return _KIND.fullmatch(kind) is not None


def is_reserved(kind: str) -> bool:
    """Whether `kind` is one of relayd's own, known to this version or not."""
    return kind.startswith(RESERVED_PREFIXES)
