"""All that a relay's events add up to, from the daemon (docs/reference/protocol.md, "Operations")."""

from typing import Final, NamedTuple

from relayd.client import operations
from relayd.client.errors import ProtocolViolationError
from relayd.client.sync import Client
from relayd.protocol.cursor import Cursor
from relayd.protocol.errors import InvalidStateError

_TRIES: Final = 5


class ExportedState(NamedTuple):
    """The encoded state at the cursor `at`."""

    at: Cursor
    encoded: bytes


def export_state(client: Client, relay: str) -> ExportedState:
    """The state as it is now, all of its parts.

    Raises what the daemon refuses it with, InvalidStateError too: others ask for the same relay's state all the time.
    """
    for _ in range(_TRIES - 1):
        try:
            return _export(client, relay)
        except InvalidStateError:
            continue
    return _export(client, relay)


def _export(client: Client, relay: str) -> ExportedState:
    part = client.call(operations.export(relay))
    at, size, encoded = part.at, part.size, bytearray(part.state)
    while len(encoded) < size:
        part = client.call(operations.export(relay, at, len(encoded)))
        if not part.state or (part.at, part.size) != (at, size):
            raise ProtocolViolationError("the daemon sent a part of another state than the one asked for")
        encoded += part.state
    if len(encoded) > size:
        raise ProtocolViolationError(f"the daemon sent {len(encoded)} bytes of a state that has {size}")
    return ExportedState(at, bytes(encoded))
