"""A request in flight: how it is answered, waits, and is taken back."""

from collections.abc import Callable
from typing import Protocol

from relayd.protocol.errors import BoundDetail, OverloadedError, RelaydError, RequestCancelledError, to_wire
from relayd.protocol.messages import AnyResponse


class Answering(Protocol):
    """The connection that a request came by."""

    waiting: int
    reads: int
    worker: str | None
    given_up: bool
    """It closes when what does not wait is answered."""

    def at_end(self, owner: object, call: Callable[[], None]) -> None:
        """Calls `call` when the connection ends; once for each owner."""
        ...

    def hold_back(self, size: int) -> None:
        """Counts a request that is held back. Raises OverloadedError past what may be in flight."""
        ...

    def let_go(self, size: int) -> None:
        """It is held back no longer."""
        ...

    @property
    def waiting_max(self) -> int:
        """How many of its requests may wait."""
        ...

    @property
    def congested(self) -> bool:
        """Whether what it is owed is not taken."""
        ...

    def when_taken(self, call: Callable[[], None]) -> None:
        """Calls `call` once it is no longer congested, unless it ends first."""
        ...

    def read_ended(self) -> None:
        """One of its `reads` has ended, answered or not."""
        ...

    def respond(self, reply: "Reply", response: AnyResponse) -> None:
        """Sends the answer; the request is no longer in flight."""
        ...


class Reply:
    """One request in flight, answered exactly once; `size` is its frame's bytes.

    While it waits (a long poll, a held record), `take_back` ends the waiting; there is none while it does not.
    `over`: the client took it back, or is gone; what is still on its way to it is dropped.
    """

    __slots__ = ("_held", "_take_back", "connection", "id", "over", "size")

    def __init__(self, connection: Answering, request: int, size: int) -> None:
        self.connection = connection
        self.id = request
        self.size = size
        self.over = False
        self._take_back: Callable[[], None] | None = None
        self._held: Callable[[], None] | None = None

    def answer(self, response: AnyResponse) -> None:
        """Answers it, unless it is over."""
        if not self.over:
            self._no_longer_waits()
            self.connection.respond(self, response)

    def refuse(self, error: RelaydError) -> None:
        """Answers it with an error."""
        self.answer(to_wire(error, self.id))

    def wait(self, take_back: Callable[[], None]) -> None:
        """From now on it waits.

        Raises OverloadedError where too many of its connection do, RequestCancelledError where that is given up.
        """
        connection = self.connection
        if connection.given_up:
            raise RequestCancelledError("the connection is being closed, so nothing waits on it; connect and ask again")
        if self._take_back is None:
            if connection.waiting >= connection.waiting_max:
                message = (
                    f"{connection.waiting} requests of this connection wait already, which is the bound:"
                    " let some of them end, or use another connection"
                )
                raise OverloadedError(message, BoundDetail("waiting"))
            connection.waiting += 1
        self._take_back = take_back

    def hold_back(self, take_back: Callable[[], None]) -> None:
        """From now on it is held back, also when its connection ends. Raises OverloadedError where too much is."""
        self.connection.hold_back(self.size)
        self._held = take_back

    def go_on(self) -> None:
        """It is held back no longer."""
        if self._held is not None:
            self._held = None
            self.connection.let_go(self.size)

    def cancel(self) -> None:
        """Ends its waiting: it is answered `cancelled`. One that does not wait goes on."""
        take_back = self._take_back or self._held
        if take_back is not None:
            take_back()
            self.refuse(RequestCancelledError("the client took this request back; nothing was done for it"))
            self.over = True

    def abandon(self) -> None:
        """Its connection is gone: what waits for it ends, and nobody is answered."""
        take_back = self._take_back
        if self._held is None:
            self._no_longer_waits()
        self.over = True
        if take_back is not None:
            take_back()

    def _no_longer_waits(self) -> None:
        if self._take_back is not None:
            self._take_back = None
            self.connection.waiting -= 1
        self.go_on()
