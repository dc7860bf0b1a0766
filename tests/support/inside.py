"""The whole daemon but its sockets in one Trio run: streams in memory, any storage, and virtual time.

With `threads=False` file work runs in the daemon's own task, so that a mock clock never runs ahead of it, and a `Gate`
holds back what it does.
"""

import contextlib
import itertools
import os
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import structlog
import trio
from support.faults import Faults
from support.wire import cut_frames, frame, records
from trio.testing import MockClock

from relayd.daemon.environment import Environment, FileWork, random_id
from relayd.daemon.registry import Registry
from relayd.daemon.server import Server
from relayd.daemon.settings import Settings
from relayd.daemon.tails import TailBudget
from relayd.daemon.transport import Peer as PeerCredentials
from relayd.journal.pages import make_page_cache
from relayd.journal.real_storage import open_state_directory
from relayd.journal.storage import Directory

ROOM = 1 << 40


def run_virtually(function: Callable, *, clock: trio.abc.Clock | None = None, instruments: Sequence = ()) -> object:
    """As trio.run, under a clock that jumps when nothing else is left to do."""
    return trio.run(function, clock=clock or MockClock(autojump_threshold=0), instruments=instruments)


class Gate:
    """Holds jobs back by the name of their function, until `open`."""

    def __init__(self) -> None:
        self._held: set[str] = set()
        self._opened = trio.Event()
        self.reached: list[str] = []
        """Jobs that came to a closed gate."""

    def hold(self, *names: str) -> None:
        self._held.update(names)

    def open(self, *names: str) -> None:
        """Lets jobs of these names go on; all without names."""
        self._held.difference_update(names or set(self._held))
        self._opened.set()
        self._opened = trio.Event()

    async def passes(self, name: str) -> None:
        while name in self._held:
            self.reached.append(name)
            await self._opened.wait()


class InlineFiles:
    """File work without threads."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self.jobs: list[str] = []

    async def run(self, job: Callable, *args: object) -> object:
        name = getattr(job, "__name__", str(job)).lstrip("_")
        await trio.lowlevel.checkpoint()
        with trio.CancelScope(shield=True):
            await self._gate.passes(name)
        self.jobs.append(name)
        return job(*args)


class Stream:
    """A connection in memory. The client takes `room` more bytes before a send would wait."""

    def __init__(self) -> None:
        self._send, self._receive = trio.open_memory_channel[bytes](float("inf"))
        self._sendable = trio.Event()
        self.room = ROOM
        self.sent = bytearray()
        self.answers: list[dict] = []
        self.answered = trio.Event()
        self.closed = False
        self.broken = False
        self.gone = False

    # The daemon's side

    async def receive(self) -> bytes:
        if self.closed:
            raise trio.ClosedResourceError
        try:
            data = await self._receive.receive()
        except trio.EndOfChannel:
            return b""
        if self.broken:
            raise BrokenPipeError
        return data

    def send_now(self, buffers: Sequence[bytes]) -> int:
        if self.broken:
            raise BrokenPipeError
        data = b"".join(buffers)[: self.room]
        self.room -= len(data)
        self.sent += data
        found = cut_frames(self.sent)
        if found:
            self.answers += found
            self._wake()
        return len(data)

    async def wait_sendable(self) -> None:
        while not self.room and not self.closed and not self.broken:
            self._sendable = trio.Event()
            await self._sendable.wait()
        if self.closed:
            raise trio.ClosedResourceError

    def peer_is_gone(self) -> bool:
        return self.gone

    def close(self) -> None:
        self.closed = True
        self._sendable.set()
        self._receive.close()
        self._wake()

    def _wake(self) -> None:
        self.answered.set()
        self.answered = trio.Event()

    # The client's side

    def feed(self, data: bytes) -> None:
        with contextlib.suppress(trio.BrokenResourceError):
            self._send.send_nowait(data)

    def take(self, size: int = ROOM) -> None:
        """The client reads so many bytes more."""
        self.room += size
        self._sendable.set()

    def half_close(self) -> None:
        """The client sends no more."""
        self._send.close()

    def vanish(self) -> None:
        """The client is gone."""
        self.gone = True
        self._send.close()


class Client:
    """A client in memory, under its own ids."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self._ids = itertools.count(1)

    def send(self, op: str, /, **fields: object) -> int:
        request = fields.pop("id", None) or next(self._ids)
        self.stream.feed(frame({"op": op, "id": request, **fields}))
        return request

    def answered(self, request: int) -> dict | None:
        """The answer to one request, where it has come; it is taken out."""
        for at, response in enumerate(self.stream.answers):
            if response["id"] == request:
                return self.stream.answers.pop(at)
        return None

    async def answer(self, request: int) -> dict:
        """The same, when it has come."""
        while True:
            response = self.answered(request)
            if response is not None:
                return response
            assert not self.stream.closed, f"the connection was closed before {request} was answered"
            await self.stream.answered.wait()

    async def call(self, op: str, /, **fields: object) -> dict:
        return await self.answer(self.send(op, **fields))

    async def done(self, op: str, /, **fields: object) -> dict:
        response = await self.call(op, **fields)
        assert response["re"] != "error", response
        return response

    async def refusal(self, op: str, /, **fields: object) -> tuple[str, bool, object]:
        """Code, whether sending again helps, and detail, of a request that has to be refused."""
        response = await self.call(op, **fields)
        assert response["re"] == "error", response
        assert response["message"]
        return response["code"], response["retryable"], response.get("detail")

    async def read_all(self, relay: str, after: object = "earliest") -> list:
        found = []
        while True:
            page = await self.done("attach", relay=relay, after=after)
            found += records(page["records"])
            after = page["through"]
            if after[0] >= page["latest"][0]:
                return found

    async def closed(self) -> None:
        """Waits until the daemon has closed the connection."""
        while not self.stream.closed:
            await self.stream.answered.wait()


class Inside:
    """A daemon on the directory `place`; `faults` is under all its file work.

    `relays`: the directory of relays, of another storage than the real one; it is the caller's to wrap and to close.
    `files` and `new_id` take the place of the daemon's own.
    """

    def __init__(
        self,
        place: Path,
        nursery: trio.Nursery,
        *,
        faults: Faults,
        threads: bool,
        settings: dict,
        relays: Directory | None = None,
        files: object = None,
        new_id: Callable[[], bytes] = random_id,
    ) -> None:
        values = {"state": str(place), "socket": str(place / "s"), **settings}
        self.place = place
        self.faults = faults
        self.gate = Gate()
        self.logged: list[dict] = []
        self.now_ms = 1_700_000_000_000
        self._directories: tuple[Directory, ...] = ()
        if relays is None:
            relays = self._real_relays()
        settings = Settings(**values)
        self.files = files or (FileWork(settings.file_threads) if threads else InlineFiles(self.gate))
        self.environment = Environment(
            settings,
            structlog.wrap_logger(None, processors=[self._log], wrapper_class=structlog.BoundLogger),
            make_page_cache(settings.page_cache_bytes),
            self.files,
            TailBudget(settings.tails_bytes),
            now_ms=lambda: self.now_ms,
            new_id=new_id,
        )
        self._nursery = nursery
        self.registry = Registry(relays, self.environment, nursery)
        self.server = Server(self.environment, self.registry, nursery)
        nursery.start_soon(self.environment.deadlines.run, self.environment.outbox.flush)

    def _real_relays(self) -> Directory:
        state = open_state_directory(str(self.place), make=True)
        (self.place / "relays").mkdir(exist_ok=True)
        relays = state.directory("relays")
        self._directories = (relays, state)
        return self.faults.wrap(relays)

    def _log(self, _logger: object, level: str, event: dict) -> None:
        self.logged.append({"level": level, **event})
        raise structlog.DropEvent

    def said(self, event: str) -> list[dict]:
        return [line for line in self.logged if line["event"] == event]

    def connect_silent(self, *, uid: int | None = None) -> Client:
        """A client that has not said hello."""
        stream = Stream()
        self.server.connect(stream, PeerCredentials(1, os.geteuid() if uid is None else uid, 0))
        return Client(stream)

    async def connect(self, **more: object) -> Client:
        client = self.connect_silent(**more)
        await client.done("hello", versions=[1], client="test")
        return client

    async def relay(self, name: str = "a", **fields: object) -> Client:
        """A client, and a relay that is open."""
        client = await self.connect()
        await client.done("open", relay=name, create=True, **fields)
        return client

    async def nobody_asks(self, seconds: float = 200) -> None:
        """Time passes until every relay is closed."""
        await trio.sleep(seconds)
        assert not self.registry._entries

    def journal(self, name: str = "a") -> Path:
        return self.place / "relays" / name / "journal"

    def close(self) -> None:
        for directory in self._directories:
            directory.close()


@contextlib.asynccontextmanager
async def inside(
    place: Path, *, faults: Faults | None = None, threads: bool = False, **settings: object
) -> AsyncIterator[Inside]:
    """A daemon in memory; it ends at once where the block ends, as if killed between two steps."""
    async with trio.open_nursery() as nursery:
        daemon = Inside(place, nursery, faults=faults or Faults(), threads=threads, settings=settings)
        try:
            yield daemon
        finally:
            nursery.cancel_scope.cancel()
            daemon.gate.open()
    daemon.close()
