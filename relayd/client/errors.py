"""What can go wrong between a client and the daemon (docs/reference/errors.md, "Of the clients").

These never travel: they say that no answer came, or one that cannot be believed. Everything else that a client raises
is the daemon's own refusal, from relayd/protocol/errors.py.
"""

from typing import Final

from relayd.protocol.errors import RelaydError, WaitTimeoutError


class NotConnectedError(RelaydError):
    """No daemon can be reached at the socket."""

    code = "unreachable"
    retryable = True


class ConnectionLostError(RelaydError):
    """The connection ended before the answer came; what was asked for may have been done or not.

    `sent` is False where not a byte of the request had left, so that it was certainly not done.
    """

    code = "connection_lost"
    retryable = True

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


class NoAnswerError(WaitTimeoutError):
    """The client's own `timeout` ran out; what was asked for may be done all the same."""


class ProtocolViolationError(RelaydError):
    """The daemon sent what it must not: a record that does not verify, an answer to nothing, another type of answer."""

    code = "unverified"


OWN_ERRORS: Final = (NotConnectedError, ConnectionLostError, NoAnswerError)
"""What a client says itself, after it has tried what there was to try."""


def cannot_reach(socket: str, error: OSError) -> NotConnectedError:
    """The error for a socket that refuses, says what is so and what to do."""
    if isinstance(error, FileNotFoundError):
        what = f"there is no socket {socket}"
        hint = "start the daemon with `relayd serve`, or say where it listens with RELAYD_SOCKET or --socket"
    elif isinstance(error, ConnectionRefusedError):
        what = f"nobody listens at {socket}"
        hint = "the daemon that made this socket is gone: start it again with `relayd serve`"
    elif isinstance(error, PermissionError):
        what = f"this user may not connect to {socket}"
        hint = "run as the daemon's user, or have `socket_mode` let this user in"
    else:
        what = f"cannot connect to {socket}: {error.strerror or error}"
        hint = "is `relayd serve` running, and is this its socket?"
    return NotConnectedError(f"{what}; {hint}")


def silent(socket: str, seconds: float) -> NotConnectedError:
    """The error for a daemon that took the connection and does not answer hello."""
    return NotConnectedError(
        f"whoever listens at {socket} did not answer within {seconds:g} s; is it a relayd daemon, and is it stuck?"
    )


def lost(socket: str, why: str, *, sent: bool = True) -> ConnectionLostError:
    """The error for a connection that ended."""
    if sent:
        tail = "what was asked for may have been done or not: look before sending it again"
    else:
        tail = "the request had not been sent"
    return ConnectionLostError(f"the connection to {socket} was lost ({why}); {tail}", sent=sent)
