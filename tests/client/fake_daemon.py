"""A small scripted daemon on a real socket: records in memory, and faults on demand.

It shares the wire's codec with the clients and nothing else: records are built here by hand from the format's page.
"""

import contextlib
import hashlib
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec

from relayd.protocol.cursor import Cursor
from relayd.protocol.errors import (
    DesynchronizedError,
    InvalidStateError,
    NotFoundError,
    PositionDetail,
    RelaydError,
    RequestCancelledError,
    ShuttingDownError,
    StateDetail,
    to_wire,
)
from relayd.protocol.frame import FrameBuffer, encode_frame
from relayd.protocol.messages import (
    Acknowledge,
    Acknowledged,
    Attach,
    AwaitAcknowledged,
    CancelRequest,
    ConsumerPosition,
    DeleteRelay,
    Done,
    ForgetConsumer,
    Hello,
    Leave,
    Limits,
    LostSpan,
    Open,
    Opened,
    Page,
    Record,
    Recorded,
    RelayEntry,
    RelayList,
    Relays,
    Request,
    Status,
    StatusResponse,
    Welcome,
)
from relayd.protocol.parse import parse_request

CUT = object()
SILENCE = object()
STOPPING = ShuttingDownError("the daemon stops")
STORE = bytes(range(16))
GENESIS = Cursor(0, bytes(16))

Answer = object
Hook = Callable[[Request], Answer]


def record_bytes(ordinal: int, kind: str, data: object, command_id=None, producer=None) -> tuple[bytes, bytes]:
    """One record and its digest, as docs/reference/journal.md, "Record", has it."""
    body = msgspec.msgpack.encode([1_700_000_000_000 + ordinal, kind, data, command_id, producer])
    digest = hashlib.blake2b(ordinal.to_bytes(8, "little") + body, digest_size=16, person=b"relayd.event.v1").digest()
    return struct.pack("<IQ16s", len(body), ordinal, digest) + body, digest


def ordinals(found) -> list[int]:
    """The ordinals of events."""
    return [event.ordinal for event in found]


def once(answer: Answer) -> Hook:
    """A hook that answers the next request, whatever it is."""
    return lambda _request: answer


def for_kind(kind: type[Request], answer: Answer, *, number: int = 1) -> Hook:
    """A hook that answers the request of a kind that comes as the `number`th from now."""
    left = number

    def hook(request: Request) -> Answer:
        nonlocal left
        left -= isinstance(request, kind)
        return answer if isinstance(request, kind) and left == 0 else None

    return hook


def produced(daemon: "FakeDaemon") -> list[object]:
    """What was recorded, as data: each once and in order is what a producer owes."""
    return [msgspec.msgpack.decode(record[28:])[2] for record in daemon.records]


async def until(daemon: "FakeDaemon", condition: Callable[[], bool]) -> None:
    """Lets an async client go on until something is so at the daemon's."""
    await anyio.to_thread.run_sync(daemon.wait_for, condition)


class FakeDaemon:
    """One relay, `r`. `hooks` are asked about each request but hello, the first one first, until one is used up.

    A hook answers with a response struct, an error, CUT (the connection ends), SILENCE, or None (the usual answer, the
    hook stays). Answers may leave a byte at a time, and be cut after `cut_after` bytes of the next connection.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.lock = threading.RLock()
        self.records: list[bytes] = []
        self.digests: list[bytes] = [bytes(16)]
        self.producers: dict[str, tuple[int, Cursor]] = {}
        self.consumers: dict[str, Cursor] = {}
        self.evicted = 0
        self.unreadable: tuple[int, int] | None = None
        self.page_events = 10_000
        self.seen: list[Request] = []
        self.hooks: deque[Hook] = deque()
        self.byte_by_byte = False
        self.cut_after: int | None = None
        self.reading = threading.Event()
        self.reading.set()
        self.waiting: list[tuple[socket.socket, Attach]] = []
        self.hellos: list[Hello] = []
        self.changed = threading.Condition(self.lock)
        self._connections: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listener: socket.socket | None = None

    # The daemon's life.

    def start(self) -> None:
        """Listens."""
        listener = socket.socket(socket.AF_UNIX)
        Path(self.path).unlink(missing_ok=True)
        listener.bind(self.path)
        listener.listen(64)
        self._listener = listener
        self._spawn(self._accept, listener)

    def stop(self) -> None:
        """Ends every connection, answered or not; the records stay."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        with self.lock:
            for connection in list(self._connections):
                _kill(connection)
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(10)
        self._threads = [thread for thread in self._threads if thread.is_alive()]

    def restart(self) -> None:
        """Stops and listens again."""
        self.stop()
        self.start()

    def kill_connections(self) -> None:
        """Ends every connection and goes on listening."""
        with self.lock:
            for connection in list(self._connections):
                _kill(connection)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Waits until what is asked is so; looked at after every request."""
        with self.changed:
            assert self.changed.wait_for(condition, 10)

    def _spawn(self, function, *arguments) -> None:
        thread = threading.Thread(target=function, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with self.lock:
                if self._listener is not listener:
                    connection.close()
                    return
                self._connections.add(connection)
                cut, self.cut_after = self.cut_after, None
            self._spawn(self._serve, _Sender(connection, byte_by_byte=self.byte_by_byte, cut_after=cut))

    def _serve(self, sender: "_Sender") -> None:
        frames = FrameBuffer()
        try:
            while data := sender.socket.recv(65536):
                self.reading.wait(10)
                for frame in frames.feed(data):
                    request = parse_request(frame)
                    with self.changed:
                        self.seen.append(request)
                        self._handle(sender, request)
                        self.changed.notify_all()
        except OSError:
            pass
        finally:
            with self.changed:
                self._connections.discard(sender.socket)
                self.waiting = [one for one in self.waiting if one[0] is not sender]
                sender.socket.close()
                self.changed.notify_all()

    def _handle(self, sender: "_Sender", request: Request) -> None:
        answer = None
        if self.hooks and not isinstance(request, Hello):
            answer = self.hooks[0](request)
            if answer is not None:
                self.hooks.popleft()
        if answer is None:
            try:
                answer = self.answer(sender, request)
            except RelaydError as error:
                answer = error
        if answer is CUT:
            _kill(sender.socket)
        elif answer is not SILENCE:
            sender.send(answer, request.id)

    # Its relay.

    @property
    def latest(self) -> Cursor:
        """The last event's cursor."""
        return self.cursor(len(self.records))

    def cursor(self, ordinal: int) -> Cursor:
        """The cursor of an ordinal that is there."""
        return Cursor(ordinal, self.digests[ordinal])

    def append(self, kind: str, data: object = None, command_id=None, producer=None) -> Cursor:
        """One event, as if recorded by somebody else."""
        with self.changed:
            record, digest = record_bytes(len(self.records) + 1, kind, data, command_id, producer)
            self.records.append(record)
            self.digests.append(digest)
            for sender, request in self.waiting:
                sender.send(self.page(request), request.id)
            self.waiting.clear()
            self.changed.notify_all()
            return self.latest

    def answer(self, sender: "_Sender", request: Request) -> Answer:  # noqa: C901, PLR0912 - one arm an operation
        """The usual answer."""
        match request:
            case Hello():
                self.hellos.append(request)
                return Welcome(0, 1, "fake", Limits(8 << 20, 4 << 20, 2 << 20, 1 << 20, 1024, 16 << 20))
            case Relays():
                return RelayList(0, [RelayEntry("r", open=True, latest=len(self.records))])
            case CancelRequest(request=taken):
                for one in self.waiting:
                    if one[0] is sender and one[1].id == taken:
                        self.waiting.remove(one)
                        sender.send(RequestCancelledError("taken back"), taken)
                        break
                return Done(0)
            case Leave():
                return Done(0)
        if request.relay != "r":
            return NotFoundError(f"no relay {request.relay}")
        match request:
            case Open(create=create):
                return Opened(0, "r", STORE, self.latest, create)
            case DeleteRelay() | ForgetConsumer():
                return Done(0)
            case Status():
                return StatusResponse(
                    relay="r",
                    store=STORE,
                    execution="idle",
                    execution_since=0,
                    latest=self.latest,
                    acknowledged=GENESIS,
                    retained=GENESIS,
                    evicted=self.cursor(self.evicted),
                    retention="checkpointed",
                    max_active=1,
                    consumers=self.consumers,
                    readers=0,
                    last_event_at=0,
                    disk_bytes=0,
                    journal_bytes=0,
                    id=0,
                )
            case Acknowledge(through=through, consumer=consumer):
                self.consumers[consumer] = through
                return Acknowledged(0, through, GENESIS)
            case AwaitAcknowledged(through=through):
                return Acknowledged(0, through, GENESIS)
            case Record():
                return self.record(request)
            case Attach():
                page = self.page(request)
                if request.wait_ms and isinstance(page, Page) and not page.count:
                    self.waiting.append((sender, request))
                    return SILENCE
                return page
        raise AssertionError(request)

    def record(self, request: Record) -> Answer:
        """Records by the rules of docs/reference/protocol.md, "Producers"."""
        events, first = list(request.events), None
        sequence = request.sequence
        if request.producer is not None:
            known = self.producers.get(request.producer)
            if sequence is None:
                return Recorded(0, sequence=known and known[0])
            if known is not None:
                if sequence > known[0] + 1:
                    return InvalidStateError("out of order", StateDetail(expected=known[0] + 1))
                skipped = known[0] + 1 - sequence
                events, sequence = events[skipped:], max(sequence, known[0] + 1)
                if not events:
                    return Recorded(0, None, known[1], duplicate=True, sequence=known[0])
        for event in events:
            producer = None if request.producer is None else [request.producer, sequence]
            through = self.append(event.kind, msgspec.msgpack.decode(event.data), event.command_id, producer)
            first = first or through.ordinal
            if request.producer is not None:
                self.producers[request.producer] = (sequence, through)
                sequence += 1
        return Recorded(0, first, through, sequence=None if sequence is None else sequence - 1)

    def page(self, request: Attach) -> Answer:
        """A page by the table of docs/reference/protocol.md, "Cursors and resuming"."""
        after, gap, latest = request.after, None, self.latest
        if isinstance(after, ConsumerPosition):
            after = self.consumers.get(after.consumer, GENESIS)
        elif after == "earliest":
            after = self.cursor(self.evicted)
            gap = LostSpan(1, self.evicted) if self.evicted else None
        elif after == "latest":
            after = latest
        if after.ordinal > latest.ordinal:
            return self.desynchronized("ahead", after)
        if after.digest not in (None, self.digests[after.ordinal]):
            return self.desynchronized("digest_mismatch", after)
        if after.ordinal < self.evicted or (self.evicted and after == Cursor(self.evicted)):
            return self.desynchronized("evicted", after, (min(after.ordinal + 1, self.evicted), self.evicted))
        stop = after.ordinal + self.page_events
        if self.unreadable is not None:
            if self.unreadable[0] <= after.ordinal + 1 <= self.unreadable[1]:
                return self.desynchronized("unreadable", after, (after.ordinal + 1, self.unreadable[1]))
            if after.ordinal < self.unreadable[0]:
                stop = min(stop, self.unreadable[0] - 1)
        chosen = self.records[after.ordinal : stop]
        through = self.cursor(after.ordinal + len(chosen))
        known = request.after not in ("earliest", "latest")
        return Page(0, b"".join(chosen), len(chosen), through, latest, known, gap)

    def desynchronized(self, reason: str, requested: Cursor, lost=None) -> DesynchronizedError:
        """The refusal of a cursor."""
        detail = PositionDetail(reason, requested, self.cursor(self.evicted), self.latest, lost)
        return DesynchronizedError(f"not served: {reason}", detail)


class _Sender:
    """One connection's answers, whole or a byte at a time, up to where they are cut."""

    def __init__(self, connection: socket.socket, *, byte_by_byte: bool, cut_after: int | None) -> None:
        self.socket = connection
        self._byte_by_byte = byte_by_byte
        self._left = cut_after

    def send(self, answer: Answer, request: int) -> None:
        """Answers a request; bytes leave as they are."""
        if isinstance(answer, RelaydError):
            answer = to_wire(answer, request)
        elif isinstance(answer, bytes):
            self._send(answer)
            return
        else:
            answer = msgspec.structs.replace(answer, id=request) if answer.id == 0 else answer
        self._send(bytes(encode_frame(answer)))

    def _send(self, data: bytes) -> None:
        cut = self._left is not None and len(data) > self._left
        if self._left is not None:
            data = data[: self._left]
            self._left -= len(data)
        try:
            if self._byte_by_byte:
                for at in range(len(data)):
                    self.socket.sendall(data[at : at + 1])
            else:
                self.socket.sendall(data)
        except OSError:
            cut = True
        if cut:
            _kill(self.socket)


def _kill(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
