"""What became of a command, as whoever submitted it is told."""

from typing import Final, NamedTuple

import msgspec

from relayd.client.errors import CommandFailedError
from relayd.protocol.commands import CommandType, OutcomeWord
from relayd.protocol.messages import CommandReport

ENDED: Final = ("completed", "rejected", "interrupted")

_decode: Final = msgspec.msgpack.Decoder().decode


class Outcome(NamedTuple):
    """How a command ended, in the event `ordinal`.

    `reason` is a word of docs/reference/protocol.md, "Commands", `message` is for people. `result` and `message` are
    gone when their event is.
    """

    command_id: str
    type: CommandType
    state: OutcomeWord
    ordinal: int
    result: object = None
    reason: str | None = None
    message: str | None = None

    @property
    def completed(self) -> bool:
        """Whether it was done, and neither rejected nor interrupted."""
        return self.state == "completed"


def outcome_of(report: CommandReport) -> Outcome | None:
    """The outcome that a report tells of; None while the command has not ended."""
    if report.state not in ENDED or report.terminal is None:
        return None
    result = _decode(report.result)
    return Outcome(report.command_id, report.type, report.state, report.terminal, result, report.reason, report.message)


def result_of(outcome: Outcome) -> object:
    """The result of what was completed. Raises CommandFailedError for anything else."""
    if not outcome.completed:
        raise CommandFailedError(outcome)
    return outcome.result
