"""The server: clients taken on, and their requests handed to whom they concern."""

import os
import socket

import trio

from relayd.daemon.connection import Connection
from relayd.daemon.environment import Environment
from relayd.daemon.registry import Registry
from relayd.daemon.reply import Reply
from relayd.daemon.transport import Peer, SocketTransport, Transport
from relayd.protocol.errors import (
    BoundDetail,
    FieldDetail,
    ForbiddenError,
    IncompatibleProtocolError,
    InvalidRequestError,
    OverloadedError,
    VersionsDetail,
    to_wire,
)
from relayd.protocol.frame import encode_frame
from relayd.protocol.limits import (
    COMMAND_BYTES_MAX,
    EVENT_BODY_BYTES_MAX,
    FRAME_BYTES_MAX,
    KIB,
    PAGE_BYTES_MAX,
)
from relayd.protocol.messages import (
    AnyRequest,
    CancelRequest,
    Hello,
    Leave,
    Limits,
    Record,
    Relays,
    Welcome,
)
from relayd.relay.recording import check_record
from relayd.version import __version__

PROTOCOL_VERSION = 1
CROWD = 16
"""So many connections have the system's own send buffers, which take some 200 KiB for a client that takes nothing."""
CROWD_SEND_BYTES = 8 * KIB
"""What further ones have. The system's buffers are memory of this process too: a thousand full ones, 200 MiB."""
_VERSIONS_SAID = 8


class Server:
    """Owns the connections. `nursery` runs them; cancelling it ends them at once."""

    def __init__(self, environment: Environment, registry: Registry, nursery: trio.Nursery) -> None:
        self._environment = environment
        self._registry = registry
        self._nursery = nursery
        self._connections: set[Connection] = set()
        self._refused_at = -1.0
        self._emptied = trio.Event()

    def accepted(self, connected: socket.socket) -> None:
        """Takes a client on, or tells it that there are too many."""
        transport = SocketTransport(connected)
        if len(self._connections) >= CROWD:
            transport.hold_back(CROWD_SEND_BYTES)
        try:
            peer = transport.peer
        except OSError:
            transport.close()
            return
        self.connect(transport, peer)

    def turned_away(self, connected: socket.socket) -> None:
        """Tells a client that there is no descriptor for it."""
        text = "the daemon has no descriptor left for one more connection: close some, then connect again"
        _tell_and_close(SocketTransport(connected), OverloadedError(text, BoundDetail("descriptors")))

    def connect(self, transport: Transport, peer: Peer) -> None:
        """Serves a client over any transport."""
        bound = self._environment.settings.connections
        if len(self._connections) >= bound:
            self._refuse(transport, bound)
            return
        connection = Connection(
            transport,
            peer,
            self,
            settings=self._environment.settings,
            outbox=self._environment.outbox,
            log=self._environment.log,
        )
        self._connections.add(connection)
        self._nursery.start_soon(self._run, connection)

    def _refuse(self, transport: Transport, bound: int) -> None:
        text = f"{bound} connections are open, which is the bound (`connections`): close some, then connect again"
        _tell_and_close(transport, OverloadedError(text, BoundDetail("connections")))
        now = trio.current_time()
        if now >= self._refused_at + 1.0:
            self._refused_at = now
            self._environment.log.warning("connection_refused", connections=bound)

    async def _run(self, connection: Connection) -> None:
        try:
            await connection.run()
        except Exception:
            self._environment.log.exception("connection_failed", client=connection.client)
        finally:
            self._connections.discard(connection)
            if not self._connections:
                self._emptied.set()
            self._environment.log.debug("connection_ended", client=connection.client, requests=connection.requests)

    # What connections ask

    def welcome(self, hello: Hello, peer: Peer) -> Welcome:
        """Takes a client on. Raises IncompatibleProtocolError, ForbiddenError."""
        if PROTOCOL_VERSION not in hello.versions:
            text = (
                f"this relayd speaks version {PROTOCOL_VERSION} of the protocol and the client {_few(hello.versions)}:"
                " use a client and a daemon of one release"
            )
            raise IncompatibleProtocolError(text, VersionsDetail([PROTOCOL_VERSION]))
        named = [field for field in ("asker", "author", "worker") if getattr(hello, field) is not None]
        if named and peer.uid not in (0, os.geteuid()):
            text = (
                f"user {peer.uid} may not say who it is (`{named[0]}`): only the daemon's own user and root may;"
                " connect without it, or as that user"
            )
            raise ForbiddenError(text)
        settings = self._environment.settings
        limits = Limits(
            FRAME_BYTES_MAX,
            PAGE_BYTES_MAX,
            EVENT_BODY_BYTES_MAX,
            COMMAND_BYTES_MAX,
            settings.in_flight,
            settings.in_flight_bytes,
        )
        return Welcome(hello.id, PROTOCOL_VERSION, f"relayd {__version__}", limits)

    def handle(self, request: AnyRequest, reply: Reply) -> None:
        """Answers a request through `reply`, now or later. Raises RelaydError to refuse it now."""
        match request:
            case Record():
                check_record(request)
                self._registry.submit(request, reply)
            case Relays():
                self._nursery.start_soon(self._registry.answer_list, request, reply)
            case Hello() | CancelRequest() | Leave():
                raise InvalidRequestError("the connection itself answers this", FieldDetail("op", "another operation"))
            case _:
                self._registry.submit(request, reply)

    # Its end

    async def finish(self) -> None:
        """Waits until every connection has been sent what it is owed, then ends them all."""
        for connection in list(self._connections):
            connection.drain()
        while self._connections:
            self._emptied = trio.Event()
            await self._emptied.wait()

    def close(self) -> None:
        """Ends every connection now."""
        for connection in list(self._connections):
            connection.close()


def _tell_and_close(transport: Transport, why: OverloadedError) -> None:
    try:
        transport.send_now([encode_frame(to_wire(why, 0))])
    except OSError:
        pass
    finally:
        transport.close()


def _few(versions: list[int]) -> str:
    """The versions for a message; of many, the first ones: a refusal says again little of what was sent."""
    more = ", …" if len(versions) > _VERSIONS_SAID else ""
    return ", ".join(map(str, versions[:_VERSIONS_SAID])) + more if versions else "none"
