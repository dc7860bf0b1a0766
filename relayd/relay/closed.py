"""What is refused once a relay is closed (docs/reference/protocol.md, "Checkpoints"). Pure."""

from relayd.protocol.errors import InvalidStateError, StateDetail


def closed_error() -> InvalidStateError:
    """The relay is closed for ever."""
    message = "this relay is closed: what it has can be read, and nothing new begins in it"
    return InvalidStateError(message, StateDetail("closed"))
