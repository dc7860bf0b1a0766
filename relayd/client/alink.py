"""One connection of the async client: a Unix stream, the session on it, and one task that reads it.

Frames leave whole and in the order that they were asked for. Who is cancelled in the middle of sending one ends the
connection: half a frame is out, and nothing could follow it.
"""

from collections.abc import Callable
from typing import Final

import anyio
from anyio.abc import ByteStream, TaskGroup
from anyio.lowlevel import checkpoint_if_cancelled

from relayd.client.errors import cannot_reach, lost, silent
from relayd.client.session import WELCOME_SECONDS_MAX, Identities, Session, welcome_of
from relayd.protocol.errors import RelaydError
from relayd.protocol.messages import AnyResponse, Request, Welcome

RECEIVE_BYTES: Final = 256 * 1024
BROKEN: Final = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, OSError)


class Pending:
    """An answer that is to come. With `done`, that is called with it in place of waking anyone."""

    __slots__ = ("_come", "_done", "_link", "_outcome", "id")

    def __init__(self, link: "AsyncLink", request: int, done: "Callable[[Pending], None] | None") -> None:
        self.id = request
        self._link = link
        self._done = done
        self._come = None if done is not None else anyio.Event()
        self._outcome: AnyResponse | RelaydError | None = None

    def settle(self, outcome: AnyResponse | RelaydError) -> None:
        """The answer came, or none will."""
        self._outcome = outcome
        if self._done is not None:
            self._done(self)
        elif self._come is not None:
            self._come.set()

    def response(self) -> AnyResponse:
        """The answer, once it is there. Raises ConnectionLostError, or what the daemon ended the connection with."""
        outcome = self._outcome
        assert outcome is not None, "asked for an answer that has not come"
        if isinstance(outcome, RelaydError):
            raise outcome
        return outcome

    async def wait(self) -> AnyResponse:
        """Waits for the answer. Who is cancelled may wait again, or `take_back`."""
        if self._come is not None:
            await self._come.wait()
        return self.response()

    def take_back(self) -> None:
        """Nobody waits any more, and the daemon need not go on waiting to give this answer."""
        if self._outcome is None:
            self._link.take_back(self.id)


class AsyncLink:
    """A connection that has said hello. `run` reads it and must be running for answers to come."""

    def __init__(self, stream: ByteStream, path: str, tasks: TaskGroup) -> None:
        self._stream = stream
        self._path = path
        self._tasks = tasks
        self._session = Session()
        self._sending = anyio.Lock(fast_acquire=True)
        self._reading = anyio.CancelScope()
        self._pending: dict[int, Pending] = {}
        self.closed = False

    @classmethod
    async def open(cls, path: str, who: Identities, tasks: TaskGroup) -> "tuple[AsyncLink, Welcome]":
        """Connects and says hello. Raises NotConnectedError, ConnectionLostError, or the daemon's refusal."""
        stream: ByteStream | None = None
        try:
            with anyio.fail_after(WELCOME_SECONDS_MAX):
                stream = await anyio.connect_unix(path)
                link = cls(stream, path, tasks)
                welcome = await link._greet(who)
        except BaseException as error:
            if stream is not None:
                await _close(stream)
            if isinstance(error, TimeoutError):
                raise silent(path, WELCOME_SECONDS_MAX) from None
            if isinstance(error, OSError):
                raise cannot_reach(path, error) from error
            raise
        return link, welcome

    async def _greet(self, who: Identities) -> Welcome:
        try:
            await self._stream.send(bytes(self._session.hello(who)))
            while True:
                for answer in self._session.receive(await self._stream.receive(RECEIVE_BYTES)):
                    return welcome_of(answer.response)
                if self._session.ended is not None:
                    raise self._session.ended
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream):
            raise lost(self._path, "the daemon closed it before it said welcome", sent=False) from None

    async def run(self) -> None:
        """Reads until the connection ends; then nothing that is pending will be answered."""
        why: RelaydError = lost(self._path, "it was closed")
        try:
            with self._reading:
                while self._session.ended is None:
                    for answer in self._session.receive(await self._stream.receive(RECEIVE_BYTES)):
                        self._pending.pop(answer.id).settle(answer.response)
                why = self._session.ended
                if why.retryable:
                    why = lost(self._path, why.message)
        except BROKEN as error:
            why = lost(self._path, str(error) or "the daemon closed it")
        finally:
            self.closed = True
            pending, self._pending = self._pending, {}
            for one in pending.values():
                one.settle(why)
            await _close(self._stream)

    def end(self) -> None:
        """Ends the connection; what is pending is told by `run`."""
        self.closed = True
        self._reading.cancel()

    async def send(self, request: Request, done: Callable[[Pending], None] | None = None) -> Pending:
        """Sends a request; gives what its answer comes to.

        Raises ConnectionLostError, whose `sent` says whether any of it left, or TooLargeError.
        """
        await checkpoint_if_cancelled()
        async with self._sending:
            if self.closed:
                raise lost(self._path, "it had ended before", sent=False)
            frame = self._session.send(request)
            pending = Pending(self, request.id, done)
            self._pending[request.id] = pending
            try:
                await self._stream.send(bytes(frame))
            except BROKEN as error:
                self._pending.pop(request.id, None)
                self.end()
                raise lost(self._path, str(error) or "the daemon closed it") from error
            except BaseException:
                self._pending.pop(request.id, None)
                self.end()
                raise
        return pending

    def take_back(self, request: int) -> None:
        """Drops the answer to `request`, and tells the daemon that it need not wait to give it."""
        if self._pending.pop(request, None) is None or self.closed:
            return
        self._session.forget(request)
        try:
            self._tasks.start_soon(self._send_take_back, request)
        except RuntimeError:
            # The client is being left: the connection ends anyway.
            self.end()

    async def _send_take_back(self, request: int) -> None:
        async with self._sending:
            if self.closed:
                return
            try:
                await self._stream.send(bytes(self._session.take_back(request)))
            except BROKEN:
                self.end()
            except BaseException:
                self.end()
                raise


async def _close(stream: ByteStream) -> None:
    with anyio.CancelScope(shield=True):
        await stream.aclose()
