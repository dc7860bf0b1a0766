"""What can go wrong between a client and the daemon (docs/reference/errors.md, "Of the clients").

These never travel: they say that no answer came, or one that cannot be believed. Everything else that a client raises
is the daemon's own refusal, from relayd/protocol/errors.py.
"""

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from relayd.protocol.errors import RelaydError, WaitTimeoutError

if TYPE_CHECKING:
    from relayd.client.outcome import Outcome


class NotConnectedError(RelaydError):
    """No daemon can be reached at the socket.

    `silent` is True where somebody took the connection and did not answer hello: a daemon that is stuck, or none.
    """

    code = "unreachable"
    retryable = True

    def __init__(self, message: str, *, silent: bool = False) -> None:
        super().__init__(message)
        self.silent = silent


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


class CommandFailedError(RelaydError):
    """A command that was to be done was rejected or interrupted; `outcome` says how it ended."""

    code = "command_failed"

    def __init__(self, outcome: "Outcome") -> None:
        words = [f"command `{outcome.command_id}` was {outcome.state}"]
        if outcome.reason is not None:
            words.append(f"({outcome.reason})")
        super().__init__(" ".join(words) + (f": {outcome.message}" if outcome.message else ""))
        self.outcome = outcome


class ProtocolViolationError(RelaydError):
    """The daemon sent what it must not: a record that does not verify, an answer to nothing, another type of answer."""

    code = "unverified"


OWN_ERRORS: Final = (NotConnectedError, ConnectionLostError, NoAnswerError)
"""What a client says itself, after it has tried what there was to try."""


SOCKET_PATH_BYTES_MAX: Final = 107
"""What Linux takes."""

SEND_AGAIN: Final = "what has a producer's number can be sent again as it is, anything else is looked for first"
"""docs/reference/errors.md, "Storage": the rule wherever it is not known whether something was done."""

_HOW: Final = "(`relayd serve --state … --socket …`, `make run`, your supervisor)"
_WHERE: Final = "say where the daemon listens with RELAYD_SOCKET or --socket"


def cannot_reach(socket: str, error: OSError) -> NotConnectedError:
    """The error for a socket that refuses, says what is so and what to do."""
    length = len(os.fsencode(socket))
    if length > SOCKET_PATH_BYTES_MAX:
        what = f"the socket's path is too long: it has {length} bytes, the system takes at most {SOCKET_PATH_BYTES_MAX}"
        hint = f"{_WHERE}, in a shorter path"
    elif _is_other(socket):
        what = f"{socket} is there and is no socket"
        hint = _WHERE
    elif isinstance(error, FileNotFoundError):
        what = f"there is no socket {socket}"
        hint = f"start the daemon the way it is started here {_HOW}, or {_WHERE}"
    elif isinstance(error, ConnectionRefusedError):
        what = f"nobody listens at {socket}"
        hint = f"the daemon that made this socket is gone: start it again the way it was started {_HOW}"
    elif isinstance(error, PermissionError):
        what = f"this user may not connect to {socket}"
        hint = "run as the daemon's user, or have `socket_mode` let this user in"
    else:
        what = f"cannot connect to {socket}: {error.strerror or error}"
        hint = f"is a daemon running, and is this its socket? {_WHERE}"
    return NotConnectedError(f"{what}; {hint}")


def _is_other(path: str) -> bool:
    """Whether something is at `path` that is no socket: connecting to it is refused as if nobody listened."""
    try:
        return not stat.S_ISSOCK(Path(path).stat().st_mode)
    except (OSError, ValueError):
        return False


def silent(socket: str, seconds: float) -> NotConnectedError:
    """The error for a daemon that took the connection and does not answer hello."""
    return NotConnectedError(
        f"whoever listens at {socket} did not answer within {seconds:g} s; is it a relayd daemon, and is it stuck?",
        silent=True,
    )


def lost(socket: str, why: str, *, sent: bool = True) -> ConnectionLostError:
    """The error for a connection that ended."""
    tail = f"what was asked for may have been done or not: {SEND_AGAIN}" if sent else "the request had not been sent"
    return ConnectionLostError(f"the connection to {socket} was lost ({why}); {tail}", sent=sent)
