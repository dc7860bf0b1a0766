"""relayd: a durable relay between workers and controllers, over a Unix socket.

    from relayd import Client          # blocking
    from relayd import connect         # Trio and asyncio

Names are imported when they are first used: importing relayd itself costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

from relayd.version import __version__

if TYPE_CHECKING:
    from relayd.client.aclient import AsyncClient, connect
    from relayd.client.arelay import AsyncRelay
    from relayd.client.errors import CommandFailedError, ConnectionLostError, NotConnectedError, ProtocolViolationError
    from relayd.client.events import Event, EventPage, Gap
    from relayd.client.outcome import Outcome
    from relayd.client.sync import Client
    from relayd.client.sync_relay import Relay
    from relayd.protocol import errors
    from relayd.protocol.address import default_socket
    from relayd.protocol.cursor import Cursor, format_cursor, parse_cursor
    from relayd.protocol.errors import RelaydError
    from relayd.protocol.messages import NewEvent

__all__ = [
    "AsyncClient",
    "AsyncRelay",
    "Client",
    "CommandFailedError",
    "ConnectionLostError",
    "Cursor",
    "Event",
    "EventPage",
    "Gap",
    "NewEvent",
    "NotConnectedError",
    "Outcome",
    "ProtocolViolationError",
    "Relay",
    "RelaydError",
    "__version__",
    "connect",
    "default_socket",
    "errors",
    "format_cursor",
    "parse_cursor",
]

_HOMES: Final = {
    "AsyncClient": "relayd.client.aclient",
    "AsyncRelay": "relayd.client.arelay",
    "Client": "relayd.client.sync",
    "CommandFailedError": "relayd.client.errors",
    "ConnectionLostError": "relayd.client.errors",
    "Cursor": "relayd.protocol.cursor",
    "Event": "relayd.client.events",
    "EventPage": "relayd.client.events",
    "Gap": "relayd.client.events",
    "NewEvent": "relayd.protocol.messages",
    "NotConnectedError": "relayd.client.errors",
    "Outcome": "relayd.client.outcome",
    "ProtocolViolationError": "relayd.client.errors",
    "Relay": "relayd.client.sync_relay",
    "RelaydError": "relayd.protocol.errors",
    "connect": "relayd.client.aclient",
    "default_socket": "relayd.protocol.address",
    "format_cursor": "relayd.protocol.cursor",
    "parse_cursor": "relayd.protocol.cursor",
}


def __getattr__(name: str) -> object:
    if name == "errors":
        found: object = import_module("relayd.protocol.errors")
    elif name in _HOMES:
        found = getattr(import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module 'relayd' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
