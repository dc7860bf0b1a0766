"""Why a daemon does not start; raised before a client is served (docs/reference/errors.md, "Starting")."""

from relayd.protocol.errors import RelaydError


class CannotStartError(RelaydError):
    """The state directory or the socket cannot be had as they are."""

    code = "cannot_start"


class AlreadyRunningError(CannotStartError):
    """Another daemon holds the state directory, or answers at the socket."""

    code = "already_running"
