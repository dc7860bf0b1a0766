"""The synchronous client: plain blocking calls, without an event loop.

A client is for one thread at a time. Give each thread its own.
"""

from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Self, TypeVar

import msgspec

from relayd.client import operations
from relayd.client.backoff import Backoff
from relayd.client.errors import ConnectionLostError, NotConnectedError, lost
from relayd.client.events import Event, EventPage, Gap, verify_page
from relayd.client.following import Following
from relayd.client.operations import Call, CommandLike, NewEventLike, PositionLike, new_command_id
from relayd.client.producing import BATCH_BYTES, BATCH_EVENTS, IN_FLIGHT, LINGER_MS, Producing
from relayd.client.session import identities
from relayd.client.sync_link import Deadline, Link
from relayd.client.sync_producer import Producer
from relayd.client.sync_relay import Relay
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
    Page,
    Recorded,
    RelayEntry,
    RelayStatus,
    Welcome,
)

R = TypeVar("R", bound=msgspec.Struct)


class Client:
    """A connection to the daemon, made again by itself when it is lost.

    Each call raises what the daemon refuses it with (relayd/protocol/errors.py), ConnectionLostError where the answer
    was lost and asking again is not safe (with `reconnect` False: whenever it was lost), NoAnswerError after
    `timeout` seconds beyond its own `wait_ms`, and ProtocolViolationError for an answer that cannot be believed.
    Constructing it connects; raises NotConnectedError where no daemon listens.

    `waiting` is told of each trouble that a call waits out instead of raising it (a daemon that is gone, a disk
    without room), once a try, and of None when that is over.
    """

    def __init__(
        self,
        socket: str | None = None,
        *,
        client: str | None = None,
        asker: str | None = None,
        author: str | None = None,
        worker: str | None = None,
        reconnect: bool = True,
        timeout: float | None = None,
        waiting: Callable[[RelaydError | None], None] | None = None,
    ) -> None:
        self.socket = socket or default_socket()
        self.reconnect = reconnect
        self.timeout = timeout
        self._who = identities(client, asker, author, worker)
        self._backoff = Backoff()
        self._closed = False
        self._waiting = waiting
        self._troubled = False
        self._link = Link(self.socket, self._who, Deadline(timeout))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection; later calls raise NotConnectedError."""
        self._closed = True
        self._link.close()

    @property
    def welcome(self) -> Welcome:
        """What the daemon said of itself when the connection was made: its version and limits."""
        return self._link.welcome

    @property
    def worker(self) -> str | None:
        """The identity under which this client works on commands."""
        return self._who.worker

    @property
    def is_connected(self) -> bool:
        """Whether its connection is not known to have ended."""
        return not self._link.closed

    def disconnect(self) -> None:
        """Ends the connection; the next call makes another."""
        self._link.close()

    def relay(self, name: str) -> Relay:
        """The commands of one relay: to have work done, and to do it. Asks for nothing by itself."""
        return Relay(self, operations.named(name))

    def relays(self) -> list[RelayEntry]:
        """All relays, in order of name."""
        return self.call(operations.relays()).relays

    def open(
        self,
        relay: str,
        *,
        create: bool = False,
        retention: Retention | None = None,
        max_active: int | None = None,
    ) -> Opened:
        """Opens a relay; `create` makes it where there is none. Raises NotFoundError, AlreadyExistsError."""
        call = operations.open_relay(relay, create=create, retention=retention, max_active=max_active)
        return self.call(call)

    def delete_relay(self, relay: str, store: bytes | None = None) -> None:
        """Removes a relay and its events for good. `store` makes sure which one; else the one there now is meant."""
        if store is None:
            store = self.open(relay).store
        self.call(operations.delete_relay(relay, store))

    def status(self, relay: str) -> RelayStatus:
        """The state of a relay."""
        return self.call(operations.status(relay))

    def record(
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
        return self.call(call)

    def attach(
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
        return verify_page(operations.position(after), self.call(call))

    def acknowledge(self, relay: str, through: Cursor | str, consumer: str = "controller") -> Acknowledged:
        """Says that `consumer` has everything through a cursor durably."""
        return self.call(operations.acknowledge(relay, through, consumer))

    def await_acknowledged(self, relay: str, consumer: str, through: Cursor | str, wait_ms: int) -> Acknowledged:
        """Waits until `consumer` has acknowledged a cursor. Raises WaitTimeoutError."""
        return self.call(operations.await_acknowledged(relay, consumer, through, wait_ms))

    def forget_consumer(self, relay: str, consumer: str) -> None:
        """Frees what a consumer that is gone pins."""
        self.call(operations.forget_consumer(relay, consumer))

    def submit(self, relay: str, command: CommandLike, command_id: str | None = None) -> Accepted:
        """Has a command accepted, exactly once however often it is sent under one id; without one it gets a fresh one.

        Raises ConflictError for an id that another command has, InvalidStateError, OverloadedError, TooLargeError.
        """
        return self.call(operations.submit(relay, command_id or new_command_id(), command))

    def command(self, relay: str, command_id: str, *, wait_ms: int = 0) -> CommandReport:
        """What became of a command; waits for its end or cut. Raises NotFoundError, WaitTimeoutError."""
        return self.call(operations.command(relay, command_id, wait_ms))

    def claim(self, relay: str, capacity: int, *, wait_ms: int = 0) -> list[ClaimedCommand]:
        """Commands to work on, which this connection holds from then on. Raises ForbiddenError without a `worker`."""
        return (self.call(operations.claim(relay, capacity, wait_ms))).commands

    def finish(
        self,
        relay: str,
        command_id: str,
        outcome: OutcomeWord,
        *,
        result: object = None,
        message: str | None = None,
    ) -> Finished:
        """Says how a command that this connection holds ended. Raises ForbiddenError, ConflictError, NotFoundError."""
        return self.call(operations.finish(relay, command_id, outcome, result=result, message=message))

    def leave(self) -> None:
        """Says a planned goodbye for this connection's asker."""
        self.call(operations.leave())

    def follow(
        self,
        relay: str,
        after: PositionLike = "earliest",
        *,
        live: bool = True,
        max_bytes: int = PAGE_BYTES_DEFAULT,
    ) -> Iterator[Event | Gap]:
        """Each event after a position once, in order; a Gap where events are lost.

        With `live` it goes on for ever; without, it ends at the latest there was when the first page came.
        """
        for page in self.pages(relay, after, live=live, max_bytes=max_bytes):
            if page.gap is not None:
                yield page.gap
            yield from page.events

    def pages(
        self,
        relay: str,
        after: PositionLike = "earliest",
        *,
        live: bool = True,
        max_bytes: int = PAGE_BYTES_DEFAULT,
    ) -> Iterator[EventPage]:
        """What `follow` gives, a page at a time; pages without events are passed over, unless they tell of a gap."""
        following = Following(relay, after, live=live, max_bytes=max_bytes)
        backoff = Backoff()
        ahead: tuple[Link, int] | None = None
        call = following.next_call()
        try:
            while call is not None:
                sent, ahead = ahead, None
                try:
                    page = self._finish(call, sent)
                except RelaydError as error:
                    if not self.reconnect and error.retryable:
                        raise
                    found = following.refused(error)
                    if found is None:
                        self.waits(error)
                    call = following.next_call()
                else:
                    backoff.reset()
                    self.waits(None)
                    following.advance(page)
                    asked, call = call, following.next_call()
                    if call is not None and following.catching_up:
                        # The daemon reads the next page while this one is proven and used.
                        ahead = self._begin(call)
                    found = following.prove(asked, page)
                if found is None:
                    Deadline(self.timeout).sleep(backoff.next_seconds())
                elif found.events or found.gap is not None:
                    yield found
        finally:
            if ahead is not None:
                ahead[0].take_back(ahead[1])

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
    ) -> Producer:
        """A numbered stream of events into a relay, each recorded exactly once; a context manager."""
        producing = Producing(
            relay,
            name,
            batch_events=batch_events,
            batch_bytes=batch_bytes,
            in_flight=in_flight,
            oversize=oversize,
        )
        return Producer(self, producing, linger_ms)

    def call(self, call: Call[R]) -> R:
        """Makes one call, again after a lost connection where that is safe."""
        deadline = self._deadline(call)
        while True:
            link = self.connected(deadline)
            try:
                response = link.receive(link.send(call.request, deadline), deadline)
            except ConnectionLostError as error:
                if not self.reconnect or (error.sent and not call.repeatable):
                    raise
            else:
                if self.reconnect and call.ends_with(response):
                    link.close()
                    continue
                self._backoff.reset()
                return call.answer(response)

    def connected(self, deadline: Deadline) -> Link:
        """The connection, made again where it was lost. Raises NotConnectedError, NoAnswerError."""
        if not self._link.closed:
            return self._link
        if self._closed:
            raise NotConnectedError("this client is closed; make a new one")
        if not self.reconnect:
            raise lost(self.socket, "and `reconnect` is off", sent=False)
        while True:
            deadline.sleep(self._backoff.next_seconds())
            try:
                self._link = Link(self.socket, self._who, deadline)
            except RelaydError as error:
                if not error.retryable:
                    raise
                self.waits(error)
            else:
                self._backoff.reset()
                self.waits(None)
                return self._link

    def waits(self, trouble: RelaydError | None) -> None:
        """Tells `waiting` of a trouble that is waited out, or, after one, that it is over."""
        if self._waiting is not None and (trouble is not None or self._troubled):
            self._troubled = trouble is not None
            self._waiting(trouble)

    def _deadline(self, call: Call[R]) -> Deadline:
        return Deadline(None if self.timeout is None else self.timeout + call.wait_seconds)

    def _begin(self, call: Call[Page]) -> tuple[Link, int] | None:
        """Sends ahead; None where the connection is gone, so that the call is made when its answer is needed."""
        try:
            return self._link, self._link.send(call.request, self._deadline(call))
        except ConnectionLostError:
            return None

    def _finish(self, call: Call[Page], ahead: tuple[Link, int] | None) -> Page:
        if ahead is not None:
            link, request = ahead
            try:
                response = link.receive(request, self._deadline(call))
            except ConnectionLostError:
                if not self.reconnect:
                    raise
            else:
                if not (self.reconnect and call.ends_with(response)):
                    return call.answer(response)
        return self.call(call)
