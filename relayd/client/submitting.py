"""Commands as both clients' relay handles make them, and the rules of waiting for their end."""

from typing import Final, cast

from relayd.client.errors import OWN_ERRORS
from relayd.client.operations import encode_value
from relayd.protocol.commands import AnyCommand, Command, Configure, OnLoss, SideTask, Task
from relayd.protocol.errors import (
    FieldDetail,
    InvalidRequestError,
    InvalidStateError,
    RelaydError,
    StateDetail,
    WaitTimeoutError,
)

WAIT_MS: Final = 30_000
"""Of one question in a row of them that waits for an end; shorter than any idle time of a connection."""

CUT_POLL_SECONDS: Final = 0.05
"""A checkpoint that has its cut answers at once until it has ended: so often is asked then."""


def as_command(work: object, on_loss: OnLoss) -> AnyCommand:
    """A command as it is, or a task whose payload is `work`. Raises InvalidRequestError."""
    if not isinstance(work, Command):
        return Task(encode_value(work), on_loss)
    if on_loss != "interrupt":
        expected = "a payload; of a command say it in the command itself"
        raise InvalidRequestError(f"`on_loss` goes with {expected}", FieldDetail("on_loss", expected))
    return cast("AnyCommand", work)


def side_task(payload: object) -> AnyCommand:
    """Work beside the queue."""
    return SideTask(encode_value(payload))


def configuration(key: str, value: object) -> AnyCommand:
    """A setting, in order with tasks."""
    return Configure(key, encode_value(value))


def time_is_up(command_id: str, seconds: float) -> WaitTimeoutError:
    """The caller's own time for a command is over."""
    return WaitTimeoutError(f"command `{command_id}` has not ended within {seconds:g} s; ask again to wait longer")


def is_waited_out(error: RelaydError, *, reconnect: bool) -> bool:
    """Whether time lifts this, and whoever waits for an end goes on waiting."""
    return reconnect and error.retryable and not isinstance(error, OWN_ERRORS)


def is_state(error: InvalidStateError, state: str) -> bool:
    """Whether `error` says that something is in this state."""
    return isinstance(error.detail, StateDetail) and error.detail.state == state
