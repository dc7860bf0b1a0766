"""The async client, for Trio and asyncio (through anyio).

    async with connect() as client:
        await client.record("build", [("output", {"text": "hello"})])

One client serves any number of tasks: requests share its connection and are answered as they may. A call that is
cancelled takes its request back; whether it was done is then not known.
"""

from collections.abc import Iterable
from types import TracebackType
from typing import Self, TypeVar

import anyio
import msgspec
from anyio.abc import TaskGroup

from relayd.client import operations
from relayd.client.afollow import Follow, Pages
from relayd.client.alink import AsyncLink
from relayd.client.aproducer import AsyncProducer
from relayd.client.arelay import AsyncRelay
from relayd.client.backoff import Backoff
from relayd.client.errors import ConnectionLostError, NotConnectedError, lost
from relayd.client.events import EventPage, verify_page
from relayd.client.following import Following
from relayd.client.operations import Call, CommandLike, NewEventLike, PositionLike, new_command_id
from relayd.client.producing import BATCH_BYTES, BATCH_EVENTS, IN_FLIGHT, LINGER_MS, Producing
from relayd.client.session import Identities, identities
from relayd.protocol.address import default_socket
from relayd.protocol.commands import OutcomeWord
from relayd.protocol.cursor import Cursor
from relayd.protocol.errors import RelaydError
from relayd.protocol.kinds import Retention
from relayd.protocol.limits import PAGE_BYTES_DEFAULT
from relayd.protocol.messages import (
    Accepted,
    Acknowledged,
    ClaimedCommand,
    CommandReport,
    Finished,
    Opened,
    Oversize,
    Recorded,
    RelayEntry,
    RelayStatus,
    Welcome,
)

R = TypeVar("R", bound=msgspec.Struct)


def connect(
    socket: str | None = None,
    *,
    client: str | None = None,
    asker: str | None = None,
    author: str | None = None,
    worker: str | None = None,
    reconnect: bool = True,
) -> "AsyncClient":
    """A client to be entered with `async with`, which connects; raises NotConnectedError where no daemon listens."""
    return AsyncClient(socket or default_socket(), identities(client, asker, author, worker), reconnect=reconnect)


class AsyncClient:
    """A connection to the daemon, made again by itself when it is lost; made by `connect`.

    Each call raises what the daemon refuses it with (relayd/protocol/errors.py), ConnectionLostError where the answer
    was lost and asking again is not safe (with `reconnect` False: whenever it was lost), and ProtocolViolationError
    for an answer that cannot be believed. Bound a call's time with a cancel scope.
    """

    def __init__(self, socket: str, who: Identities, *, reconnect: bool) -> None:
        self.socket = socket
        self.reconnect = reconnect
        self._who = who
        self._backoff = Backoff()
        self._tasks: TaskGroup | None = None
        self._link: AsyncLink | None = None
        self._welcome: Welcome | None = None
        self._failed: RelaydError | None = None
        self._relays: dict[str, AsyncRelay] = {}
        self._changed = anyio.Event()

    async def __aenter__(self) -> Self:
        if self._tasks is not None:
            raise NotConnectedError("this client was entered before; make a new one with connect()")
        tasks = anyio.create_task_group()
        self._tasks = tasks
        self._link, self._welcome = await AsyncLink.open(self.socket, self._who, tasks)
        await tasks.__aenter__()
        tasks.start_soon(self._keep, self._link)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._tasks is not None, "left without having been entered"
        self._fail(NotConnectedError("this client is closed; make a new one"))
        # The body's exception goes on by itself: in the group of these tasks nobody could catch it by its type.
        self._tasks.cancel_scope.shield = True
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(None, None, None)

    @property
    def welcome(self) -> Welcome:
        """What the daemon said of itself when the connection was made: its version and limits."""
        if self._welcome is None:
            raise NotConnectedError("this client is not connected; enter it with `async with`")
        return self._welcome

    @property
    def worker(self) -> str | None:
        """The identity under which this client works on commands."""
        return self._who.worker

    def relay(self, name: str) -> AsyncRelay:
        """The commands of one relay: to have work done, and to do it. Asks for nothing by itself."""
        if name not in self._relays:
            self._relays[name] = AsyncRelay(self, operations.named(name))
        return self._relays[name]

    async def relays(self) -> list[RelayEntry]:
        """All relays, in order of name."""
        return (await self.call(operations.relays())).relays

    async def open(
        self,
        relay: str,
        *,
        create: bool = False,
        retention: Retention | None = None,
        max_active: int | None = None,
    ) -> Opened:
        """Opens a relay; `create` makes it where there is none. Raises NotFoundError, AlreadyExistsError."""
        call = operations.open_relay(relay, create=create, retention=retention, max_active=max_active)
        return await self.call(call)

    async def delete_relay(self, relay: str, store: bytes | None = None) -> None:
        """Removes a relay and its events for good. `store` makes sure which one; else the one there now is meant."""
        if store is None:
            store = (await self.open(relay)).store
        await self.call(operations.delete_relay(relay, store))

    async def status(self, relay: str) -> RelayStatus:
        """The state of a relay."""
        return await self.call(operations.status(relay))

    async def record(
        self,
        relay: str,
        events: Iterable[NewEventLike],
        *,
        producer: str | None = None,
        sequence: int | None = None,
        oversize: Oversize = "refuse",
    ) -> Recorded:
        """Records events, all or none; they are durable when it returns.

        Without `producer` and `sequence` a lost answer is a ConnectionLostError: whether they are there is not known.
        `producer` numbers a whole stream and never loses or doubles an event.
        """
        call = operations.record(relay, events, producer=producer, sequence=sequence, oversize=oversize)
        return await self.call(call)

    async def attach(
        self,
        relay: str,
        after: PositionLike = "earliest",
        *,
        wait_ms: int = 0,
        max_bytes: int = PAGE_BYTES_DEFAULT,
        status: bool = False,
    ) -> EventPage:
        """One proven page of events after a position. Raises DesynchronizedError."""
        call = operations.attach(relay, after, wait_ms=wait_ms, max_bytes=max_bytes, status=status)
        return verify_page(operations.position(after), await self.call(call))

    async def acknowledge(self, relay: str, through: Cursor | str, consumer: str = "controller") -> Acknowledged:
        """Says that `consumer` has everything through a cursor durably."""
        return await self.call(operations.acknowledge(relay, through, consumer))

    async def await_acknowledged(self, relay: str, consumer: str, through: Cursor | str, wait_ms: int) -> Acknowledged:
        """Waits until `consumer` has acknowledged a cursor. Raises WaitTimeoutError."""
        return await self.call(operations.await_acknowledged(relay, consumer, through, wait_ms))

    async def forget_consumer(self, relay: str, consumer: str) -> None:
        """Frees what a consumer that is gone pins."""
        await self.call(operations.forget_consumer(relay, consumer))

    async def submit(self, relay: str, command: CommandLike, command_id: str | None = None) -> Accepted:
        """Has a command accepted, exactly once however often it is sent under one id; without one it gets a fresh one.

        Raises ConflictError for an id that another command has, InvalidStateError, OverloadedError, TooLargeError.
        """
        return await self.call(operations.submit(relay, command_id or new_command_id(), command))

    async def command(self, relay: str, command_id: str, *, wait_ms: int = 0) -> CommandReport:
        """What became of a command; waits for its end or cut. Raises NotFoundError, WaitTimeoutError."""
        return await self.call(operations.command(relay, command_id, wait_ms))

    async def claim(self, relay: str, capacity: int, *, wait_ms: int = 0) -> list[ClaimedCommand]:
        """Commands to work on, which this connection holds from then on. Raises ForbiddenError without a `worker`."""
        return (await self.call(operations.claim(relay, capacity, wait_ms))).commands

    async def finish(
        self,
        relay: str,
        command_id: str,
        outcome: OutcomeWord,
        *,
        result: object = None,
        message: str | None = None,
    ) -> Finished:
        """Says how a command that this connection holds ended. Raises ForbiddenError, ConflictError, NotFoundError."""
        return await self.call(operations.finish(relay, command_id, outcome, result=result, message=message))

    async def leave(self) -> None:
        """Says a planned goodbye for this connection's asker."""
        await self.call(operations.leave())

    def follow(
        self,
        relay: str,
        after: PositionLike = "earliest",
        *,
        live: bool = True,
        max_bytes: int = PAGE_BYTES_DEFAULT,
    ) -> Follow:
        """Each event after a position once, in order; a Gap where events are lost. For `async for`.

        With `live` it goes on for ever; without, it ends at the latest there was when the first page came. Who is
        cancelled while waiting for the next one loses nothing: the same iterator goes on where it was.
        """
        return Follow(self.pages(relay, after, live=live, max_bytes=max_bytes))

    def pages(
        self,
        relay: str,
        after: PositionLike = "earliest",
        *,
        live: bool = True,
        max_bytes: int = PAGE_BYTES_DEFAULT,
    ) -> Pages:
        """What `follow` gives, a page at a time; pages without events are passed over, unless they tell of a gap."""
        return Pages(self, Following(relay, after, live=live, max_bytes=max_bytes))

    def producer(
        self,
        relay: str,
        name: str,
        *,
        batch_events: int = BATCH_EVENTS,
        batch_bytes: int = BATCH_BYTES,
        linger_ms: float = LINGER_MS,
        oversize: Oversize = "clamp",
        in_flight: int = IN_FLIGHT,
    ) -> AsyncProducer:
        """A numbered stream of events into a relay, each recorded exactly once; for `async with`."""
        producing = Producing(
            relay,
            name,
            batch_events=batch_events,
            batch_bytes=batch_bytes,
            in_flight=in_flight,
            oversize=oversize,
        )
        return AsyncProducer(self, producing, linger_ms)

    async def call(self, call: Call[R]) -> R:
        """Makes one call, again after a lost connection where that is safe."""
        while True:
            link = await self.connected()
            try:
                pending = await link.send(call.request)
                try:
                    response = await pending.wait()
                finally:
                    pending.take_back()
            except ConnectionLostError as error:
                if not self.reconnect or (error.sent and not call.repeatable):
                    raise
            else:
                if self.reconnect and call.ends_with(response):
                    link.end()
                    continue
                self._backoff.reset()
                return call.answer(response)

    async def connected(self) -> AsyncLink:
        """The connection, once there is one. Raises NotConnectedError, ConnectionLostError, or hello's refusal."""
        while self._link is None or self._link.closed:
            if self._failed is not None:
                raise self._failed
            if self._tasks is None:
                raise NotConnectedError("this client is not connected; enter it with `async with`")
            await self._changed.wait()
        return self._link

    @property
    def tasks(self) -> TaskGroup:
        """The tasks that live no longer than this client. What they raise must be caught in them."""
        if self._tasks is None:
            raise NotConnectedError("this client is not connected; enter it with `async with`")
        return self._tasks

    async def _keep(self, link: AsyncLink) -> None:
        """Reads the connection, and makes it again when it has ended."""
        while True:
            await link.run()
            if not self.reconnect:
                self._fail(lost(self.socket, "and `reconnect` is off", sent=False))
                return
            again = await self._again()
            if again is None:
                return
            link = again

    async def _again(self) -> AsyncLink | None:
        while True:
            await anyio.sleep(self._backoff.next_seconds())
            try:
                link, self._welcome = await AsyncLink.open(self.socket, self._who, self.tasks)
            except RelaydError as error:
                if not error.retryable:
                    self._fail(error)
                    return None
            else:
                self._backoff.reset()
                self._link = link
                self._tell()
                return link

    def _fail(self, error: RelaydError) -> None:
        if self._failed is None:
            self._failed = error
        self._link = None
        self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
