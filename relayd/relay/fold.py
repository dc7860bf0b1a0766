"""`fold`: what one event does to a relay's state. Live running and replay use this and nothing else.

Raises FoldError where an event cannot follow the state: a kind that a later version knows, or data that is not that
kind's. The state is then unchanged.
"""

from typing import Final, NamedTuple

import msgspec

from relayd.protocol.cursor import GENESIS, Cursor
from relayd.protocol.event import Body, Producer
from relayd.protocol.kinds import (
    KINDS,
    EventData,
    RelayClosed,
    RelayCreated,
    RelayEvicted,
    RelayLost,
    RelayRestored,
    is_reserved,
)
from relayd.protocol.limits import PRODUCERS_REMEMBERED
from relayd.relay.fold_commands import LaneEvent, fold_command
from relayd.relay.state import ProducerMark, RelayState

_DATA_DECODERS: Final = {kind: msgspec.msgpack.Decoder(data).decode for kind, data in KINDS.items()}

_EMPTY_MAP: Final = b"\x80"


class FoldError(ValueError):
    """An event that cannot be folded. `reason` is a word of docs/reference/journal.md, "Opening"."""

    def __init__(self, reason: str, message: str, ordinal: int) -> None:
        super().__init__(message)
        self.reason = reason
        self.ordinal = ordinal


class Run(NamedTuple):
    """Application events in a row, recorded at one time, of one producer or of none: `producer` is the last one's."""

    recorded_at_ms: int
    producer: Producer | None


def fold(state: RelayState, cursor: Cursor, body: Body) -> None:
    """Folds the event at `cursor` into `state`. Its caller has proven that it follows the frontier."""
    if is_reserved(body.kind):
        _fold_own(state, cursor, body, _read_data(cursor, body))
    fold_run(state, cursor, Run(body.recorded_at_ms, body.producer))


def fold_run(state: RelayState, last: Cursor, run: Run) -> None:
    """Folds a run of application events that ends at `last`: the same as folding each, at the price of one."""
    state.frontier = last
    state.last_event_at = run.recorded_at_ms
    if run.producer is not None:
        _mark(state.producers, run.producer.name, ProducerMark(run.producer.sequence, last))


def _read_data(cursor: Cursor, body: Body) -> EventData:
    decode = _DATA_DECODERS.get(body.kind)
    if decode is None:
        message = f"ordinal {cursor.ordinal} is a `{body.kind}`, which this version of relayd does not know"
        raise FoldError("later_format", message, cursor.ordinal)
    try:
        # A kind without fields has no data.
        return decode(body.data if KINDS[body.kind].__struct_fields__ else _EMPTY_MAP)
    except msgspec.DecodeError as error:
        message = f"ordinal {cursor.ordinal} is a `{body.kind}` with data that is not that kind's: {error}"
        raise FoldError("journal_corrupt", message, cursor.ordinal) from error


def _fold_own(state: RelayState, cursor: Cursor, body: Body, data: EventData) -> None:
    before = state.execution
    match data:
        case RelayCreated() | RelayRestored():
            state.store = data.store
            state.retention = data.retention
            state.max_active = data.max_active
            state.execution_since = body.recorded_at_ms
            if isinstance(data, RelayRestored):
                state.seed = data.seed
        case RelayEvicted():
            state.evicted = data.through
        case RelayLost():
            # What the lost ordinals said of producers is not known: each may begin anywhere.
            state.producers.clear()
            if state.lane.barrier is not None:
                state.lane.barrier = msgspec.structs.replace(state.lane.barrier, cut=None)
        case RelayClosed():
            state.lane.closed = data.cut
        case _ if isinstance(data, LaneEvent):
            try:
                fold_command(state, cursor, body.command_id, data)
            except LookupError as error:
                message = f"ordinal {cursor.ordinal} is a `{body.kind}` that cannot follow: {error}"
                raise FoldError("journal_corrupt", message, cursor.ordinal) from error
        case _:
            pass
    if state.execution != before:
        state.execution_since = body.recorded_at_ms


def _mark(producers: dict[str, ProducerMark], name: str, mark: ProducerMark) -> None:
    """Remembers `mark` as the last used; past the bound the one longest unused is forgotten."""
    producers.pop(name, None)
    producers[name] = mark
    if len(producers) > PRODUCERS_REMEMBERED:
        del producers[next(iter(producers))]


def new_state(store: bytes) -> RelayState:
    """The state before the first event of a relay without a seed."""
    return RelayState(store=store, frontier=GENESIS)
