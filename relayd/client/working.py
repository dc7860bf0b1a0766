"""A command that a worker has, without I/O: what both clients' assignments share."""

from collections.abc import Iterable
from typing import Final, NamedTuple, cast

import msgspec

from relayd.client.errors import ProtocolViolationError
from relayd.protocol.commands import (
    AnyCommand,
    Cancel,
    CommandType,
    Configure,
    OutcomeWord,
    SideTask,
    Task,
    read_stored,
    type_of,
)
from relayd.protocol.errors import (
    ConflictError,
    ForbiddenError,
    InvalidRequestError,
    InvalidStateError,
    NotFoundError,
    TooLargeError,
)
from relayd.protocol.messages import ClaimedCommand, HeldCommand

CLAIM_WAIT_MS: Final = 30_000
"""Of one claim that waits for work, or for cancels alone."""

RECLAIM_WAIT_MS: Final = 1_000
"""Of one claim for what is in hand already; then it is looked again whether it is there to be had."""

NOT_OURS: Final = (ConflictError, ForbiddenError, NotFoundError, InvalidStateError)
"""What `finish` is refused with where the command has ended otherwise, or is somebody else's by now."""

UNSAYABLE: Final = (InvalidRequestError, TooLargeError)
"""What an outcome is refused with that cannot be sent, or is too large."""

CANCELLED: Final = "cancelled"

_decode: Final = msgspec.msgpack.Decoder().decode


class Ending(NamedTuple):
    """How a command is to end."""

    outcome: OutcomeWord
    result: object = None
    message: str | None = None


class Assigned:
    """A command in a worker's hands. Set `result` to complete it with that.

    `delivery` counts the hand-overs, this one too: over 1, somebody may have begun it before. `cancelled`: the
    controller wants it ended. `lost`: the relay has ended it, or given it to somebody else; nothing can be said of it
    any more. `end`: how it ended, once the relay has that.
    """

    def __init__(self, relay: str, claimed: ClaimedCommand, command: AnyCommand) -> None:
        self.relay = relay
        self.command_id = claimed.command_id
        self.ordinal = claimed.ordinal
        self.delivery = claimed.delivery
        self.result: object = None
        self.cancelled = False
        self.lost = False
        self.end: OutcomeWord | None = None
        self._command = command

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.command_id} ({self.type}) of relay {self.relay}>"

    @property
    def type(self) -> CommandType:
        """`task`, `side_task` or `configure`."""
        return type_of(self._command)

    @property
    def payload(self) -> object:
        """What a task or side task was submitted with; of a configure, `{key: value}`."""
        command = self._command
        if isinstance(command, Task | SideTask):
            return _decode(command.payload)
        if isinstance(command, Configure):
            return {command.key: _decode(command.value)}
        return None


class HandOver(NamedTuple):
    """What one answer to `claim` carries: commands, and the targets of cancels."""

    commands: list[tuple[ClaimedCommand, AnyCommand]]
    cancelled: list[str]


def read_hand_over(claimed: Iterable[ClaimedCommand]) -> HandOver:
    """Takes an answer to `claim` apart. Raises ProtocolViolationError."""
    found = HandOver([], [])
    for one in claimed:
        try:
            command = read_stored(one.command)
        except msgspec.DecodeError as error:
            message = f"the daemon handed over `{one.command_id}`, which this version does not know: {error}"
            raise ProtocolViolationError(message) from None
        if isinstance(command, Cancel):
            found.cancelled.append(command.target)
        else:
            found.commands.append((one, command))
    return found


def still_ours(in_flight: Iterable[HeldCommand], worker: str | None, command_ids: Iterable[str]) -> set[str]:
    """Which of these the relay still counts as this worker's."""
    ours = {held.command_id for held in in_flight if held.worker == worker}
    return ours.intersection(command_ids)


def describe(error: BaseException) -> str:
    """An exception as an outcome's message; of a group, each that is in it."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(describe(one) for one in cast("BaseExceptionGroup[BaseException]", error).exceptions)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
