"""Accepting commands (docs/reference/protocol.md, "Commands"). Pure.

Each command is accepted once: a repeat is told by its id and compared by its digest. What relayd finishes itself is
queued and ended in one group, so that nobody sees it half done.
"""

from typing import Final, NamedTuple

from relayd.protocol.commands import (
    AdvanceFloor,
    AnyCommand,
    Cancel,
    ClearQueue,
    Close,
    CompleteCheckpoint,
    ReleaseCheckpoint,
    RemoveQueued,
    command_digest,
    store_command,
    type_of,
)
from relayd.protocol.cursor import GENESIS, Cursor, format_cursor
from relayd.protocol.errors import (
    BoundDetail,
    ConflictError,
    InvalidStateError,
    NameDetail,
    NotFoundError,
    OverloadedError,
    RelaydError,
    StateDetail,
)
from relayd.protocol.kinds import CommandCompleted, CommandEnded, CommandQueued, CommandRejected, RelayClosed
from relayd.protocol.limits import KIB, PRODUCERS_REMEMBERED, STATE_BYTES_MAX, TERMINAL_IDS_REMEMBERED
from relayd.protocol.messages import Accepted, Submit
from relayd.relay.closed import closed_error
from relayd.relay.endings import end_bodies
from relayd.relay.fold_commands import entry_bytes
from relayd.relay.ledger import Barrier, Lane
from relayd.relay.own import own_body, raw
from relayd.relay.state import RelayState

ENDED_BYTES: Final = 256
PRODUCER_BYTES: Final = 600
STATE_BYTES_OTHER: Final = 65_536 + ENDED_BYTES * TERMINAL_IDS_REMEMBERED + PRODUCER_BYTES * PRODUCERS_REMEMBERED
"""Whatever ends is remembered, and whoever records: this much of the state is theirs, taken or not."""
CANCELS_BYTES: Final = 512 * KIB
"""What the first cancels of their targets may take past the bound, as they let the state shrink."""
_CANCELLABLE: Final = ("task", "configure", "side_task", "begin_checkpoint")


class Submission(NamedTuple):
    """A request with its command read, and its digest."""

    request: Submit
    command: AnyCommand
    digest: bytes


def read_submission(request: Submit, command: AnyCommand) -> Submission:
    """What `decide_submit` takes."""
    return Submission(request, command, command_digest(command))


def state_bytes(state: RelayState) -> int:
    """A bound of what the state takes in a snapshot."""
    return STATE_BYTES_OTHER + state.lane.live_bytes


def repeat_of(state: RelayState, submission: Submission) -> Accepted | None:
    """The first answer, where this was accepted before. Raises ConflictError where another command has its id."""
    request = submission.request
    known = state.lane.live(request.command_id) or state.lane.ended.get(request.command_id)
    if known is None:
        return None
    if known.digest != submission.digest:
        raise ConflictError(
            f"command_id `{request.command_id}` was accepted at ordinal {known.ordinal} with another command:"
            " a new command needs a new id"
        )
    return Accepted(request.id, request.command_id, known.ordinal, duplicate=True)


def decide_submit(
    state: RelayState, submission: Submission, now_ms: int, *, queue_max: int, found: bytes | None = None
) -> list[bytes]:
    """The events of a command that was not accepted before, `command.queued` first. Raises RelaydError to refuse it.

    `found`: of an AdvanceFloor, the digest of the event at its ordinal; None where there is none that can be read.
    """
    request, command = submission.request, submission.command
    lane = state.lane
    if lane.closed is not None:
        raise closed_error()
    ends: list[bytes] = []
    match command:
        case Cancel():
            ends = _cancel(state, submission, command, now_ms, queue_max)
        case RemoveQueued():
            removed = [command.command_id] if command.command_id in lane.queue else []
            ends = _remove(lane, removed, now_ms)
        case ClearQueue():
            ends = _remove(lane, list(lane.queue), now_ms)
        case CompleteCheckpoint() | ReleaseCheckpoint():
            ends = [barrier_completed(*_ready(lane, command.barrier), now_ms)]
        case AdvanceFloor():
            _check_floor(state, command.cursor, found)
        case Close():
            ends = _close(state, command, now_ms)
        case _:
            _check_room(state, submission, queue_max)
    own = _own_end(command, ends, state)
    queued = own_body(now_ms, CommandQueued(store_command(command)), request.command_id)
    if own is None:
        return [queued, *ends]
    completed = own_body(now_ms, own, request.command_id)
    if isinstance(command, CompleteCheckpoint | ReleaseCheckpoint):
        # Completed while the checkpoint still stands: folding it takes the floor from there.
        return [queued, completed, *ends]
    return [queued, *ends, completed]


def _own_end(command: AnyCommand, ends: list[bytes], state: RelayState) -> CommandEnded | None:
    """How a command ends that relayd finishes itself; None where it goes on."""
    word = type_of(command)
    match command:
        case Cancel():
            return CommandCompleted(word) if ends else None
        case RemoveQueued():
            removed = [command.command_id] if ends else []
            return CommandCompleted(word, result=raw({"removed": removed}))
        case ClearQueue():
            return CommandCompleted(word, result=raw({"removed": list(state.lane.queue)}))
        case CompleteCheckpoint():
            barrier = state.lane.barrier
            assert barrier is not None, "it was checked"
            return CommandCompleted(word, result=raw({"floor": barrier.cut}))
        case AdvanceFloor():
            return CommandCompleted(word, result=raw({"floor": command.cursor}))
        case _:
            return CommandCompleted(word) if word in ("release_checkpoint", "close", "notice") else None


def _check_room(state: RelayState, submission: Submission, queue_max: int) -> None:
    """Refuses what would not fit, before anything is written."""
    lane = state.lane
    word = type_of(submission.command)
    if word == "begin_checkpoint":
        if lane.barrier is not None:
            name = lane.barrier.command_id
            message = f"checkpoint `{name}` is being made; complete, release or cancel it, then begin another"
            raise InvalidStateError(message, StateDetail("checkpoint"))
        return
    if word == "notice":
        return
    waiting = len(lane.queue) + len(lane.side) + len(lane.started)
    if waiting >= queue_max:
        message = f"{waiting} commands of this relay have not ended, which is the bound (`queue`): send it again later"
        raise OverloadedError(message, BoundDetail("queue"))
    _check_state_bytes(state, submission)


def _check_state_bytes(state: RelayState, submission: Submission, more: int = 0) -> None:
    size = entry_bytes(submission.request.command_id, store_command(submission.command))
    if state_bytes(state) + size > STATE_BYTES_MAX + more:
        message = f"the relay's commands and settings fill the {STATE_BYTES_MAX} bytes there are: send it again later"
        raise OverloadedError(message, BoundDetail("state_bytes"))


def _cancel(state: RelayState, submission: Submission, command: Cancel, now_ms: int, queue_max: int) -> list[bytes]:
    """Ends the target where no worker has it; else nothing yet."""
    lane = state.lane
    target = lane.live(command.target)
    if target is None:
        ended = lane.ended.get(command.target)
        if ended is None:
            raise _unknown(command.target)
        message = f"command `{command.target}` has ended already ({ended.state}); there is nothing to cancel"
        raise InvalidStateError(message, StateDetail(ended.state))
    if target.type not in _CANCELLABLE:
        message = f"command `{command.target}` is a {target.type}; only {', '.join(_CANCELLABLE)} can be cancelled"
        raise InvalidStateError(message, StateDetail(target.state))
    if target.state == "in_flight":
        if len(lane.cancels) >= queue_max:
            message = f"{len(lane.cancels)} cancels wait for their targets to end, which is the bound (`queue`)"
            raise OverloadedError(message, BoundDetail("queue"))
        _check_state_bytes(state, submission, 0 if lane.cancels_of(command.target) else CANCELS_BYTES)
        return []
    end, own = CommandRejected(target.type, "cancelled"), submission.request.command_id
    return end_bodies(lane, command.target, end, now_ms, but=own)


def _unknown(command_id: str) -> RelaydError:
    message = f"this relay knows no command `{command_id}` (it remembers the last that ended); see `relayd commands`"
    return NotFoundError(message, NameDetail("command", command_id))


def _remove(lane: Lane, command_ids: list[str], now_ms: int) -> list[bytes]:
    return [
        own_body(now_ms, CommandRejected(lane.queue[command_id].type, "removed"), command_id)
        for command_id in command_ids
    ]


# Checkpoints


def _ready(lane: Lane, command_id: str) -> tuple[Barrier, Cursor]:
    """The checkpoint, where it is ready."""
    barrier = lane.barrier
    if barrier is None or barrier.command_id != command_id:
        ended = lane.ended.get(command_id)
        if ended is None and lane.live(command_id) is None:
            raise _unknown(command_id)
        message = f"`{command_id}` is no checkpoint that is being made; begin one, and wait for its cut"
        raise InvalidStateError(message, StateDetail(None if ended is None else ended.state))
    if barrier.cut is None:
        message = f"checkpoint `{command_id}` waits for what was started before it; ask `command` for its cut, and wait"
        raise InvalidStateError(message, StateDetail("waiting"))
    return barrier, barrier.cut


def barrier_completed(barrier: Barrier, cut: Cursor, now_ms: int) -> bytes:
    """The end of the `begin_checkpoint` itself."""
    return own_body(now_ms, CommandCompleted("begin_checkpoint", result=raw({"cut": cut})), barrier.command_id)


def _close(state: RelayState, command: Close, now_ms: int) -> list[bytes]:
    lane = state.lane
    barrier, cut = _ready(lane, command.barrier)
    if command.cut != cut:
        message = f"the cut of `{command.barrier}` is {format_cursor(cut)}, not {format_cursor(command.cut)}"
        raise InvalidStateError(message, StateDetail("ready"))
    if state.frontier != cut:
        message = (
            f"the cut {format_cursor(cut)} is no longer exact, since {state.frontier.ordinal - cut.ordinal} events were"
            " recorded after it: release the checkpoint, begin another, and close with its cut"
        )
        raise InvalidStateError(message, StateDetail("inexact"))
    waiting = {**lane.queue, **lane.side}
    rejected = [own_body(now_ms, CommandRejected(entry.type, "relay_closed"), name) for name, entry in waiting.items()]
    closed = own_body(now_ms, RelayClosed(command.barrier, cut))
    return [closed, *rejected, barrier_completed(barrier, cut, now_ms)]


def _check_floor(state: RelayState, cursor: Cursor, found: bytes | None) -> None:
    floor = state.floor or GENESIS
    if cursor.ordinal < floor.ordinal:
        raise InvalidStateError(f"the floor is at {floor.ordinal} already; it only moves up", StateDetail("floor"))
    if cursor.ordinal > state.frontier.ordinal:
        message = f"cursor {cursor.ordinal} is past this relay's latest event, {state.frontier.ordinal}"
        raise InvalidStateError(message, StateDetail("ahead"))
    if found is None:
        message = f"event {cursor.ordinal} cannot be read, so that the cursor's digest cannot be checked"
        raise InvalidStateError(message, StateDetail("unreadable"))
    if found != cursor.digest:
        message = f"event {cursor.ordinal} of this relay is another than the cursor's; take the cursor from a page"
        raise InvalidStateError(message, StateDetail("digest_mismatch"))
