"""What events of the command lane do to its state. Called by `fold` alone.

Raises LookupError where an event cannot follow the state; nothing has changed then.
"""

from typing import Final

import msgspec

from relayd.protocol.commands import (
    AdvanceFloor,
    BeginCheckpoint,
    Cancel,
    CompleteCheckpoint,
    Configure,
    OutcomeWord,
    command_digest,
    outcome_digest,
    read_stored,
    type_of,
)
from relayd.protocol.cursor import Cursor
from relayd.protocol.kinds import (
    KIND_OF,
    CheckpointReady,
    CommandClaimed,
    CommandCompleted,
    CommandEnded,
    CommandInterrupted,
    CommandQueued,
    CommandRejected,
    CommandRequeued,
    CommandStarted,
    EventData,
)
from relayd.relay.ledger import TRANSITIONS, Barrier, Entry, Lane, Terminal
from relayd.relay.state import RelayState

ENTRY_BYTES: Final = 96
"""What an entry takes in a snapshot beside its command and its id."""

LaneEvent = CommandQueued | CommandStarted | CommandClaimed | CommandRequeued | CommandEnded | CheckpointReady


def entry_bytes(command_id: str, command: msgspec.Raw) -> int:
    """The bound of what a live command takes in a snapshot."""
    return ENTRY_BYTES + len(command_id) + len(bytes(command)) + len(command_id)


def fold_command(state: RelayState, cursor: Cursor, command_id: str | None, data: LaneEvent) -> None:
    """Folds one event of the lane at `cursor`."""
    lane = state.lane
    match data:
        case CommandQueued():
            take_up(lane, cursor.ordinal, _named(command_id), data.command)
        case CheckpointReady():
            barrier = _barrier(lane, data.barrier)
            entry = _moved(barrier.entry, data)
            lane.barrier = Barrier(barrier.command_id, entry, cursor)
        case CommandStarted():
            _start(lane, _named(command_id), data)
        case CommandClaimed():
            _hand_over(lane, _named(command_id), data)
        case CommandRequeued():
            _requeue(lane, _named(command_id), data)
        case _:
            _end(state, cursor.ordinal, _named(command_id), data)


def _named(command_id: str | None) -> str:
    if command_id is None:
        raise LookupError("it names no command")
    return command_id


def take_up(lane: Lane, ordinal: int, command_id: str, encoded: msgspec.Raw) -> None:
    """A command accepted at `ordinal` stands in its container from now on. Raises LookupError where it cannot."""
    if lane.live(command_id) is not None or command_id in lane.ended:
        raise LookupError(f"{command_id} is there already")
    encoded = msgspec.Raw(bytes(encoded))
    try:
        command = read_stored(encoded)
    except msgspec.DecodeError as error:
        raise LookupError(f"its command cannot be read: {error}") from error
    if isinstance(command, BeginCheckpoint) and lane.barrier is not None:
        raise LookupError(f"checkpoint {lane.barrier.command_id} is being made")
    target = command.target if isinstance(command, Cancel) else None
    entry = Entry(type_of(command), command_digest(command), ordinal, encoded, target=target)
    lane.live_bytes += entry_bytes(command_id, encoded)
    match entry.type:
        case "task" | "configure":
            lane.queue[command_id] = entry
        case "side_task":
            lane.side[command_id] = entry
        case "begin_checkpoint":
            lane.barrier = Barrier(command_id, entry)
        case _:
            # A command that relayd finishes itself stands here until its terminal event, in the same group.
            lane.cancels[command_id] = entry


def _barrier(lane: Lane, command_id: str) -> Barrier:
    if lane.barrier is None or lane.barrier.command_id != command_id:
        raise LookupError(f"there is no checkpoint {command_id}")
    return lane.barrier


def _moved(entry: Entry, data: EventData) -> Entry:
    """The entry after the event, as the table has it."""
    state = TRANSITIONS.get((entry.state, KIND_OF[type(data)]))
    if state not in ("queued", "pending", "in_flight"):
        raise LookupError(f"a command that is {entry.state} cannot be so")
    return msgspec.structs.replace(entry, state=state)


def _start(lane: Lane, command_id: str, data: CommandStarted) -> None:
    waiting = lane.queue if command_id in lane.queue else lane.side
    entry = waiting.get(command_id)
    if entry is None:
        raise LookupError(f"{command_id} does not wait")
    lane.started[command_id] = _moved(entry, data)
    del waiting[command_id]


def _hand_over(lane: Lane, command_id: str, data: CommandClaimed) -> None:
    entries = lane.started if command_id in lane.started else lane.cancels
    entry = entries.get(command_id)
    if entry is None:
        raise LookupError(f"{command_id} is not started")
    moved = _moved(entry, data)
    entries[command_id] = msgspec.structs.replace(moved, worker=data.worker, delivery=data.delivery)


def _requeue(lane: Lane, command_id: str, data: CommandRequeued) -> None:
    entry = lane.started.get(command_id)
    if entry is None:
        raise LookupError(f"{command_id} is not started")
    queued = _moved(entry, data)
    del lane.started[command_id]
    # Its place is that of its acceptance: before all that were accepted after it.
    earlier = {name: other for name, other in lane.queue.items() if other.ordinal < entry.ordinal}
    later = {name: other for name, other in lane.queue.items() if other.ordinal > entry.ordinal}
    lane.queue = {**earlier, command_id: queued, **later}


_OUTCOMES: Final[dict[type[EventData], OutcomeWord]] = {
    CommandCompleted: "completed",
    CommandRejected: "rejected",
    CommandInterrupted: "interrupted",
}


def _end(state: RelayState, ordinal: int, command_id: str, data: CommandEnded) -> None:
    lane = state.lane
    entry = lane.live(command_id)
    if entry is None:
        raise LookupError(f"{command_id} is not there, or has ended")
    word = _OUTCOMES[type(data)]
    if word == "completed":
        _take_effect(state, entry)
    for entries in (lane.started, lane.queue, lane.side, lane.cancels):
        entries.pop(command_id, None)
    if lane.barrier is not None and lane.barrier.command_id == command_id:
        lane.barrier = None
    lane.live_bytes -= entry_bytes(command_id, entry.command)
    outcome = outcome_digest(word, data.message, data.result)
    lane.remember(command_id, Terminal(entry.type, entry.digest, entry.ordinal, word, ordinal, outcome, data.reason))


def _take_effect(state: RelayState, entry: Entry) -> None:
    """What completing this command changes beside its own entry."""
    if entry.type not in ("configure", "complete_checkpoint", "advance_floor"):
        return
    match read_stored(entry.command):
        case Configure(key=key, value=value):
            configure(state.lane, key, msgspec.Raw(bytes(value)))
        case CompleteCheckpoint(barrier=barrier):
            state.floor = _barrier(state.lane, barrier).cut
        case AdvanceFloor(cursor=cursor):
            state.floor = cursor
        case _:
            pass


def configure(lane: Lane, key: str, value: msgspec.Raw) -> None:
    """Sets `config[key]`."""
    before = lane.config.get(key)
    if before is not None:
        lane.live_bytes -= config_bytes(key, before)
    lane.config[key] = value
    lane.live_bytes += config_bytes(key, value)


def config_bytes(key: str, value: msgspec.Raw) -> int:
    """The bound of what a setting takes in a snapshot."""
    return ENTRY_BYTES + len(key.encode()) + len(bytes(value))
