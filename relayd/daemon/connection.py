"""One client's connection: frames in, requests dispatched in order, answers out (docs/reference/protocol.md).

It costs itself and nobody else: reading stops while too much of it is in flight or it does not take what it is owed,
and a frame that does not come to an end, or no hello, ends it.
"""

import math
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

import trio
from structlog.typing import FilteringBoundLogger

from relayd.daemon.outbox import Outbox
from relayd.daemon.page_budget import PAGES_BYTES
from relayd.daemon.reply import Reply
from relayd.daemon.settings import Settings
from relayd.daemon.transport import Peer, Transport
from relayd.protocol.errors import (
    BoundDetail,
    HelloRequiredError,
    InternalError,
    InvalidRequestError,
    InvalidStateError,
    OverloadedError,
    RelaydError,
    StateDetail,
    TooLargeError,
    to_wire,
)
from relayd.protocol.frame import FrameBuffer, encode_frame
from relayd.protocol.limits import FRAME_SECONDS_MAX, HELLO_SECONDS_MAX, KIB
from relayd.protocol.messages import AnyRequest, AnyResponse, CancelRequest, Done, Hello, Leave, Welcome
from relayd.protocol.parse import BadRequestError, parse_request

CONGESTED_BYTES: Final = 256 * KIB
"""Past this many unsent bytes a connection is read no further."""
STOOD_STILL_SECONDS: Final = 1.0
"""A deadline found passed by more than this was not missed by the client; it is given as much time again."""
READS_MAX: Final = 2
"""Pages that are read from files for one connection at a time; the next is read while the last is being sent."""


class Service(Protocol):
    """What a connection talks to."""

    def welcome(self, hello: Hello, peer: Peer) -> Welcome:
        """Takes a client on. Raises RelaydError where it is refused."""
        ...

    def handle(self, request: AnyRequest, reply: Reply) -> None:
        """Answers a request through `reply`, now or later. Raises RelaydError to refuse it now."""
        ...


class Connection:
    """Runs one connection over `transport` until it ends."""

    def __init__(
        self,
        transport: Transport,
        peer: Peer,
        service: Service,
        *,
        settings: Settings,
        outbox: Outbox,
        log: FilteringBoundLogger,
    ) -> None:
        self._transport = transport
        self._peer = peer
        self._service = service
        self._settings = settings
        self._outbox = outbox
        self._log = log
        self._frames = FrameBuffer()
        self._in_flight: dict[int, Reply] = {}
        self._in_flight_bytes = 0
        self._outgoing: deque[bytes | bytearray | memoryview] = deque()
        self._unsent = 0
        self._to_flush = False
        self._welcomed = False
        self._closed = False
        self._hello_until = math.inf
        self._complete_until = math.inf
        self._progress = trio.Event()
        self._blocked = trio.Event()
        self._receiving = trio.CancelScope()
        self._when_taken: list[Callable[[], None]] = []
        self.waiting = 0
        self.reads = 0
        self.given_up = False
        self.client = ""
        self._asker: str | None = None
        self.worker: str | None = None
        self._held = 0
        self._held_bytes = 0
        self._at_end: dict[object, Callable[[], None]] = {}
        self.requests = 0

    @property
    def waiting_max(self) -> int:
        """How many of its requests may wait."""
        return self._settings.waiting

    @property
    def congested(self) -> bool:
        """Whether what it is owed is not taken.

        While all connections together are owed much, one that has anything unsent counts as congested: many slow
        readers that each held a little less than the bound would hold a lot.
        """
        if self._outbox.pages_bytes > PAGES_BYTES:
            return self._unsent > 0 or self.reads > 0
        return self._unsent > CONGESTED_BYTES or self.reads >= READS_MAX

    def at_end(self, owner: object, call: Callable[[], None]) -> None:
        """Calls `call` when the connection ends; once for each owner."""
        self._at_end[owner] = call

    def hold_back(self, size: int) -> None:
        """Counts a request that is held back. Raises OverloadedError past what may be in flight."""
        settings = self._settings
        if self._held >= settings.in_flight or self._held_bytes + size > settings.in_flight_bytes:
            message = (
                f"{self._held} records of this connection ({self._held_bytes} bytes) are held until the checkpoint"
                " ends, which is the bound: send it again then"
            )
            raise OverloadedError(message, BoundDetail("in_flight"))
        self._held += 1
        self._held_bytes += size

    def let_go(self, size: int) -> None:
        """It is held back no longer."""
        self._held -= 1
        self._held_bytes -= size
        self._progress.set()

    def when_taken(self, call: Callable[[], None]) -> None:
        """Calls `call` once it is no longer congested, unless it ends first."""
        self._when_taken.append(call)

    @property
    def in_flight(self) -> int:
        """Requests not answered yet."""
        return len(self._in_flight)

    async def run(self) -> None:
        """Serves the connection to its end; cancelling ends it at once."""
        self._hello_until = trio.current_time() + HELLO_SECONDS_MAX
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._send_blocked)
                with self._receiving:
                    await self._receive()
                await self._finish()
                nursery.cancel_scope.cancel()
        finally:
            self.close()

    def drain(self) -> None:
        """Reads no further; the connection ends when it has been sent what it is owed."""
        self._receiving.cancel()

    def close(self) -> None:
        """Ends the connection now; whatever waits for it ends too."""
        if self._closed:
            return
        self._closed = True
        self._transport.close()
        replies = list(self._in_flight.values())
        self._in_flight.clear()
        self._in_flight_bytes = 0
        for reply in replies:
            reply.abandon()
        self._outgoing.clear()
        self._when_taken.clear()
        at_end, self._at_end = self._at_end, {}
        for call in at_end.values():
            call()
        self._count_unsent(-self._unsent)
        self._progress.set()
        self._blocked.set()

    # Receiving

    async def _receive(self) -> None:
        """Reads and dispatches until the client sends no more, breaks framing, or takes too long."""
        self._complete_until = self._hello_until
        while not self._closed:
            data = await self._receive_in_time()
            if data is None:
                self._refuse_slow()
                return
            if not data:
                return
            requests, greeted = self.requests, self._welcomed
            try:
                for frame in self._frames.feed(data):
                    self._dispatch(frame)
                    if self._full and not await self._wait_for_room():
                        self._refuse_slow()
                        return
            except (InvalidRequestError, TooLargeError) as error:
                self._send(to_wire(error, 0))
                self._give_up()
                return
            finally:
                self._outbox.flush()
            if not self._welcomed:
                continue
            if not len(self._frames):
                self._complete_until = math.inf
            elif self.requests > requests or not greeted or self._complete_until == math.inf:
                # A frame that is not complete has its clock from here: it stood while the daemon did not read.
                self._complete_until = trio.current_time() + FRAME_SECONDS_MAX

    async def _receive_in_time(self) -> bytes | None:
        """The next bytes, as `_receive_some` has them; None where none came before what is owed had to be complete."""
        while True:
            with trio.move_on_at(self._complete_until):
                return await self._receive_some()
            now = trio.current_time()
            if now <= self._complete_until + STOOD_STILL_SECONDS:
                return None
            # The process was stopped, or the machine slept: what came meanwhile is not looked at yet.
            self._complete_until = now + STOOD_STILL_SECONDS

    async def _receive_some(self) -> bytes:
        """The next bytes; empty where there are no more, and where nobody is left to answer."""
        try:
            data = await self._transport.receive()
            if not data and self._transport.peer_is_gone():
                self.close()
        except (OSError, trio.ClosedResourceError):
            self.close()
            return b""
        return data

    def _refuse_slow(self) -> None:
        if self._welcomed:
            text = f"a frame was not complete {FRAME_SECONDS_MAX:g} s after its first byte; the connection is closed"
            self._send(to_wire(InvalidRequestError(text), 0))
        else:
            text = f"no `hello` came within {HELLO_SECONDS_MAX:g} s; the connection is closed"
            self._send(to_wire(HelloRequiredError(text), 0))
        self._give_up()

    def _give_up(self) -> None:
        """Ends what waits, and what would begin to; the connection closes when the rest is answered."""
        self.given_up = True
        for reply in list(self._in_flight.values()):
            reply.cancel()
        self._outbox.flush()

    @property
    def _full(self) -> bool:
        return (
            self.congested
            or len(self._in_flight) - self.waiting - self._held >= self._settings.in_flight
            or self._in_flight_bytes - self._held_bytes >= self._settings.in_flight_bytes
        )

    @property
    def _patience_until(self) -> float:
        """Until when a client is waited for that does not take what it is owed: without end, once it said hello."""
        return math.inf if self._welcomed else self._hello_until

    async def _wait_for_room(self) -> bool:
        """Waits until the connection may have one more request in flight; False where patience ended first."""
        self._outbox.flush()
        with trio.move_on_at(self._patience_until):
            while self._full and not self._closed:
                self._progress = trio.Event()
                await self._progress.wait()
            return True
        return False

    def _dispatch(self, frame: bytes) -> None:
        self.requests += 1
        try:
            request = parse_request(frame)
        except BadRequestError as bad:
            self._send(to_wire(bad.error, 0 if bad.request in self._in_flight else bad.request))
            return
        if request.id in self._in_flight:
            text = f"id {request.id} is in flight on this connection already; that request goes on, use another id"
            self._send(to_wire(InvalidRequestError(text), 0))
            return
        reply = Reply(self, request.id, len(frame))
        self._in_flight[request.id] = reply
        self._in_flight_bytes += len(frame)
        try:
            self._handle(request, reply)
        except RelaydError as error:
            reply.refuse(error)
        except Exception:  # noqa: BLE001 - a bug costs its request an answer, and no more
            self._log.exception("request_failed", op=type(request).__name__)
            if request.id in self._in_flight:
                reply.refuse(InternalError("relayd met a bug of its own; its log has the traceback"))

    def _handle(self, request: AnyRequest, reply: Reply) -> None:
        match request:
            case Hello():
                if self._welcomed:
                    raise InvalidStateError("this connection has said hello already; go on with other requests")
                reply.answer(self._service.welcome(request, self._peer))
                self._welcomed = True
                self.client = request.client
                self._asker = request.asker
                self.worker = request.worker
            case _ if not self._welcomed:
                op = type(request).__struct_config__.tag
                raise HelloRequiredError(f"`{op}` came before `hello`; every connection begins with `hello`")
            case Leave():
                if self._asker is None:
                    text = "this connection named no asker in its `hello`, so there is nobody who could leave"
                    raise InvalidStateError(text, StateDetail("no asker"))
                # Nothing can be asked in this version, so nothing is held for an asker that goes.
                reply.answer(Done(request.id))
            case CancelRequest():
                taken_back = self._in_flight.get(request.request)
                if taken_back is not None and taken_back is not reply:
                    taken_back.cancel()
                reply.answer(Done(request.id))
            case _:
                self._service.handle(request, reply)

    # Sending

    def respond(self, reply: Reply, response: AnyResponse) -> None:
        """Sends the answer of a request that is in flight."""
        if self._in_flight.pop(reply.id, None) is not reply:
            assert self._closed, "a request is answered once"
            return
        self._in_flight_bytes -= reply.size
        self._send(response)
        self._progress.set()

    def _send(self, response: AnyResponse) -> None:
        if self._closed:
            return
        try:
            frame = encode_frame(response)
        except TooLargeError as error:
            frame = encode_frame(to_wire(error, response.id))
        self._outgoing.append(frame)
        self._count_unsent(len(frame))
        if not self._to_flush:
            self._to_flush = True
            self._outbox.add(self)

    def _count_unsent(self, more: int) -> None:
        self._unsent += more
        self._outbox.unsent_bytes += more

    def flush(self) -> None:
        """Sends what can be sent without waiting."""
        self._to_flush = False
        try:
            while self._outgoing and not self._closed:
                sent = self._transport.send_now(list(self._outgoing))
                if not sent:
                    self._blocked.set()
                    return
                self._sent(sent)
        except OSError:
            self.close()

    def _sent(self, sent: int) -> None:
        self._count_unsent(-sent)
        outgoing = self._outgoing
        while sent:
            first = outgoing[0]
            if len(first) > sent:
                outgoing[0] = memoryview(first)[sent:]
                break
            sent -= len(first)
            outgoing.popleft()
        self._progress.set()
        self._tell_taken()

    def read_ended(self) -> None:
        """One of its `reads` has ended, answered or not."""
        self.reads -= 1
        self._progress.set()
        self._tell_taken()

    def _tell_taken(self) -> None:
        if self._when_taken and not self.congested:
            calls, self._when_taken = self._when_taken, []
            for call in calls:
                call()

    async def _send_blocked(self) -> None:
        """Goes on sending when the client takes bytes again."""
        while not self._closed:
            self._blocked = trio.Event()
            await self._blocked.wait()
            while self._outgoing and not self._closed:
                try:
                    await self._transport.wait_sendable()
                except (OSError, trio.ClosedResourceError):
                    self.close()
                self.flush()

    async def _finish(self) -> None:
        """The client sends no more: what it is owed is sent, and then the connection ends."""
        with trio.move_on_at(self._patience_until):
            while (self._in_flight or self._outgoing) and not self._closed:
                self._outbox.flush()
                self._progress = trio.Event()
                await self._progress.wait()
