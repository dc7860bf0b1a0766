"""A connection's bytes: a non-blocking socket under Trio, with a send that does not wait.

`Transport` is the seam: tests put streams in memory in its place.
"""

import select
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol

import trio

from relayd.protocol.event import Buffer

_CREDENTIALS = struct.Struct("iII")
_BUFFERS_MAX = 64


class Peer(NamedTuple):
    """Who connected, as the kernel says."""

    pid: int
    uid: int
    gid: int


class Transport(Protocol):
    """A byte stream to one client."""

    async def receive(self) -> bytes:
        """The next bytes; empty where the client sends no more. Raises OSError where the connection broke."""
        ...

    def send_now(self, buffers: Sequence[Buffer]) -> int:
        """Sends what can be sent without waiting, and says how many bytes that was. Raises OSError."""
        ...

    async def wait_sendable(self) -> None:
        """Waits until `send_now` can send again. Raises OSError or trio.ClosedResourceError."""
        ...

    def peer_is_gone(self) -> bool:
        """Whether the client, having sent its last byte, does not receive any more either."""
        ...

    def close(self) -> None:
        """Ends the connection; a second call does nothing."""
        ...


class SocketTransport:
    """The transport over a connected Unix socket, which it owns."""

    def __init__(self, connected: socket.socket, receive_bytes: int = 65_536) -> None:
        connected.setblocking(False)
        self._socket = connected
        self._receive_bytes = receive_bytes

    @property
    def peer(self) -> Peer:
        """The process that connected (not who sends now)."""
        found = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        return Peer(*_CREDENTIALS.unpack(found))

    def hold_back(self, send_bytes: int) -> None:
        """Lets the system keep no more than about twice `send_bytes` of what the client has not taken."""
        with suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_bytes)

    async def receive(self) -> bytes:
        """The next bytes; empty where the client sends no more."""
        await trio.lowlevel.checkpoint_if_cancelled()
        try:
            received = self._socket.recv(self._receive_bytes)
        except BlockingIOError:
            pass
        else:
            # A client that always has more to say leaves others their turn; what it said is never lost by that.
            await trio.lowlevel.cancel_shielded_checkpoint()
            return received
        while True:
            await trio.lowlevel.wait_readable(self._socket)
            try:
                return self._socket.recv(self._receive_bytes)
            except BlockingIOError:
                continue

    def send_now(self, buffers: Sequence[Buffer]) -> int:
        """Sends what can be sent without waiting, and says how many bytes that was."""
        try:
            if len(buffers) == 1:
                return self._socket.send(buffers[0])
            return self._socket.sendmsg(buffers[:_BUFFERS_MAX])
        except BlockingIOError:
            return 0

    async def wait_sendable(self) -> None:
        """Waits until the socket takes bytes again."""
        await trio.lowlevel.wait_writable(self._socket)

    def peer_is_gone(self) -> bool:
        """Whether the client, having sent its last byte, does not receive any more either."""
        polled = select.poll()
        polled.register(self._socket, 0)
        return bool(polled.poll(0))

    def close(self) -> None:
        """Ends the connection."""
        if self._socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()
