"""What a relay is in memory: the fold of its journal (docs/internals/architecture.md, "The seven laws", 2).

Values inside the containers are immutable, so that `capture` needs to copy the containers alone and the copy can be
encoded in another thread while the relay goes on.
"""

from typing import Annotated, Final, Literal

import msgspec

from relayd.protocol.cursor import GENESIS, Cursor
from relayd.protocol.kinds import RETENTION_DEFAULT, Retention, StoreId
from relayd.relay.ledger import Lane

MAX_ACTIVE_DEFAULT: Final = 1

Execution = Literal["idle", "running", "closed"]


class ProducerMark(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The last sequence of a producer, and the cursor of the event that carried it."""

    sequence: int
    cursor: Cursor


class RelayState(msgspec.Struct, forbid_unknown_fields=True):
    """All that the events up to `frontier` add up to.

    `producers` is in order of last use, oldest first. `evicted` is the last eviction's cursor. `execution_since` and
    `last_event_at` are milliseconds since 1970, as recorded.
    """

    store: StoreId
    retention: Retention = RETENTION_DEFAULT
    max_active: Annotated[int, msgspec.Meta(ge=1)] = MAX_ACTIVE_DEFAULT
    frontier: Cursor = GENESIS
    evicted: Cursor = GENESIS
    floor: Cursor | None = None
    seed: bytes | None = None
    execution_since: int = 0
    last_event_at: int = 0
    producers: dict[str, ProducerMark] = {}
    lane: Lane = msgspec.field(default_factory=Lane)

    @property
    def execution(self) -> Execution:
        """What the relay does; `execution_since` is when it began to."""
        if self.lane.closed is not None:
            return "closed"
        return "running" if self.lane.started else "idle"

    def capture(self) -> "RelayState":
        """A copy that later folding does not touch."""
        captured = msgspec.structs.replace(self)
        captured.producers = dict(self.producers)
        captured.lane = self.lane.capture()
        return captured


def encode_state(state: RelayState) -> bytes:
    """The state as the snapshot keeps it: one MessagePack map."""
    return msgspec.msgpack.encode(state)


_decode_state: Final = msgspec.msgpack.Decoder(RelayState).decode


def decode_state(encoded: bytes) -> RelayState:
    """Reads what `encode_state` wrote. Raises msgspec.DecodeError where it is no state."""
    return _decode_state(encoded)
