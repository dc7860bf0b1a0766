"""Handing commands to workers, and taking their outcomes (docs/reference/protocol.md, "Commands"). Pure.

Which connection holds what is the daemon's to know, and comes in as `Hands`: connections end, and leave no event.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

from relayd.protocol.commands import OutcomeWord, outcome_digest
from relayd.protocol.errors import (
    ConflictError,
    ForbiddenError,
    InvalidStateError,
    NameDetail,
    NotFoundError,
    StateDetail,
)
from relayd.protocol.event import NIL
from relayd.protocol.kinds import CommandClaimed, CommandCompleted, CommandEnded, CommandInterrupted, CommandRejected
from relayd.protocol.messages import ClaimedCommand, Finish, Finished
from relayd.relay.endings import end_bodies
from relayd.relay.ledger import Entry, Lane
from relayd.relay.own import own_body
from relayd.relay.state import RelayState

CLAIM_BYTES_MAX: Final = 4 * 1024 * 1024
"""Commands of one answer together, unless a single one is larger."""


class Hands(Protocol):
    """What one connection has, and what nobody has."""

    def holds(self, command_id: str) -> bool:
        """Whether this connection holds it."""
        ...

    def orphaned(self, command_id: str) -> bool:
        """Whether no connection holds it."""
        ...


class HandOver(NamedTuple):
    """Events of a hand-over, and what the worker is told."""

    bodies: list[bytes]
    commands: list[ClaimedCommand]


def decide_claim(state: RelayState, capacity: int, worker: str, hands: Hands, now_ms: int) -> HandOver:
    """What a claim hands over now, which may be nothing.

    Cancels first and outside of `capacity`; then what the identity had and lost hold of; then what was started, in
    order of acceptance.
    """
    lane = state.lane
    chosen: list[tuple[str, Entry]] = []
    room, size = capacity, 0
    for name, entry in _due(lane, worker, hands):
        if room == 0:
            break
        size += len(bytes(entry.command))
        if chosen and size > CLAIM_BYTES_MAX:
            break
        chosen.append((name, entry))
        room -= 1
    targets = {name for name, _ in chosen}
    cancels = [
        (name, entry)
        for name, entry in lane.cancels.items()
        if entry.target is not None and not hands.holds(name) and (hands.holds(entry.target) or entry.target in targets)
    ]
    handed = [*cancels, *chosen]
    bodies = [own_body(now_ms, CommandClaimed(worker, entry.delivery + 1), name) for name, entry in handed]
    told = [ClaimedCommand(name, entry.ordinal, entry.command, entry.delivery + 1) for name, entry in handed]
    return HandOver(bodies, told)


def _due(lane: Lane, worker: str, hands: Hands) -> Iterator[tuple[str, Entry]]:
    started = sorted(lane.started.items(), key=lambda item: item[1].ordinal)
    for name, entry in started:
        if entry.state == "in_flight" and entry.worker == worker and hands.orphaned(name):
            yield name, entry
    for name, entry in started:
        if entry.state == "pending":
            yield name, entry


class Finishing(NamedTuple):
    """Events that a finish records, or the answer of one that was given before."""

    bodies: list[bytes]
    answer: Finished | None = None


_ENDS: Final[dict[OutcomeWord, type[CommandEnded]]] = {
    "completed": CommandCompleted,
    "rejected": CommandRejected,
    "interrupted": CommandInterrupted,
}


def decide_finish(state: RelayState, request: Finish, hands: Hands, now_ms: int) -> Finishing:
    """Takes an outcome. Raises RelaydError where it is refused."""
    lane, name = state.lane, request.command_id
    ended = lane.ended.get(name)
    if ended is not None:
        said = outcome_digest(request.outcome, request.message, request.result)
        if said != ended.outcome:
            message = f"command `{name}` has ended otherwise at ordinal {ended.terminal} ({ended.state})"
            raise ConflictError(message)
        return Finishing([], Finished(request.id, ended.terminal, duplicate=True))
    entry = lane.live(name)
    if entry is None:
        raise NotFoundError(f"this relay knows no command `{name}`", NameDetail("command", name))
    if entry.type in ("cancel", "begin_checkpoint"):
        raise ForbiddenError(f"`{name}` is a {entry.type}, which relayd ends itself")
    if entry.state == "queued":
        message = f"command `{name}` has not been started, so that nobody can have finished it"
        raise InvalidStateError(message, StateDetail("queued"))
    if not hands.holds(name):
        message = f"command `{name}` is not held by this connection; claim it first"
        raise ForbiddenError(message)
    reason = None if request.outcome == "completed" else "by_worker"
    result = NIL if bytes(request.result) == bytes(NIL) else request.result
    end = _ENDS[request.outcome](entry.type, reason, request.message, result)
    return Finishing(end_bodies(lane, name, end, now_ms))
