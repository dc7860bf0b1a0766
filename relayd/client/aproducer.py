"""The async producer: one task sends batches, answers are taken in as they are read."""

import time
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self

import anyio
from anyio.lowlevel import cancel_shielded_checkpoint, checkpoint_if_cancelled

from relayd.client.alink import AsyncLink, Pending
from relayd.client.backoff import Backoff
from relayd.client.errors import OWN_ERRORS, ConnectionLostError
from relayd.client.producing import Batch, Producing
from relayd.protocol.cursor import Cursor
from relayd.protocol.errors import RelaydError

if TYPE_CHECKING:
    from relayd.client.aclient import AsyncClient


class AsyncProducer:
    """A numbered stream into one relay: each event is recorded once, whatever breaks on the way.

    Made by `AsyncClient.producer`. What `record` takes is sent at once where nothing is in flight, else with its batch,
    at the latest after `linger_ms`. Leaving the `async with` block flushes, unless an exception leaves it.
    """

    def __init__(self, client: "AsyncClient", producing: Producing, linger_ms: float) -> None:
        self._client = client
        self._producing = producing
        self._linger_seconds = linger_ms / 1000
        self._gathering_since = 0.0
        self._backoff = Backoff()
        self._link: AsyncLink | None = None
        self._running = anyio.CancelScope()
        self._wake = anyio.Event()
        self._progress = anyio.Event()

    async def __aenter__(self) -> Self:
        await self._start()
        self._client.tasks.start_soon(self._run)
        return self

    async def _start(self) -> None:
        """Asks where the stream stands; what time lifts is waited out here as in `flush`."""
        while True:
            try:
                answer = await self._client.call(self._producing.where())
            except RelaydError as error:
                if not self._client.reconnect or not error.retryable or isinstance(error, OWN_ERRORS):
                    raise
                await anyio.sleep(self._backoff.next_seconds())
            else:
                break
        self._backoff.reset()
        self._producing.stands(answer)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if error is None:
                await self.flush()
        finally:
            self._running.cancel()

    @property
    def position(self) -> int:
        """The sequence of the last event that is known durable; 0: none yet."""
        return self._producing.position

    @property
    def through(self) -> Cursor | None:
        """The cursor of the last event of this producer that is known durable; None: none yet."""
        return self._producing.through

    async def record(self, kind: str, data: object = None, command_id: str | None = None) -> int:
        """Takes an event in and gives its sequence; `flush` says when it is durable.

        Waits while too much is in flight, and lets other tasks run once a batch. Who is cancelled in it has not
        recorded this event. Raises InvalidRequestError or TooLargeError for an event that cannot be recorded, which
        changes nothing, and what ended the stream, if something has.
        """
        producing = self._producing
        if not producing.gathered:
            await checkpoint_if_cancelled()
        while producing.full and producing.failed is None:
            await self._progress.wait()
        if producing.failed is not None:
            raise producing.failed
        sequence = producing.add(kind, data, command_id)
        if producing.complete or not producing.unacknowledged:
            producing.cut()
            self._wake.set()
            await cancel_shielded_checkpoint()
        elif producing.gathered == 1:
            self._gathering_since = time.monotonic()
            self._wake.set()
        return sequence

    async def flush(self) -> Cursor | None:
        """Waits until everything taken in is durable; the cursor of the last event, None where there was none.

        Raises what ended the stream.
        """
        producing = self._producing
        producing.cut()
        self._wake.set()
        while producing.unacknowledged and producing.failed is None:
            await self._progress.wait()
        if producing.failed is not None:
            raise producing.failed
        return producing.through

    async def _run(self) -> None:
        producing = self._producing
        with self._running:
            while producing.failed is None:
                try:
                    await self._send_all(await self._connect())
                except ConnectionLostError as error:
                    self._disconnected(error)
                except RelaydError as error:
                    producing.failed = error
                await self._wait()
            self._tell()

    async def _connect(self) -> AsyncLink:
        link = await self._client.connected()
        if link is not self._link:
            self._producing.disconnected()
            self._link = link
        return link

    async def _send_all(self, link: AsyncLink) -> None:
        producing = self._producing
        if producing.may_resume:
            await anyio.sleep(self._backoff.next_seconds())
            producing.resume()
        if producing.gathered and (not producing.unacknowledged or self._linger_left() <= 0):
            producing.cut()
        while (batch := producing.next_batch()) is not None:
            await link.send(batch.call.request, partial(self._answered, link, batch))

    async def _wait(self) -> None:
        """Until there may be something to do."""
        if self._wake.is_set() or self._producing.may_resume or self._producing.failed is not None:
            self._wake = anyio.Event()
            return
        if self._producing.gathered:
            with anyio.move_on_after(max(self._linger_left(), 0)):
                await self._wake.wait()
        else:
            await self._wake.wait()
        self._wake = anyio.Event()

    def _linger_left(self) -> float:
        return self._gathering_since + self._linger_seconds - time.monotonic()

    def _answered(self, link: AsyncLink, batch: Batch, pending: Pending) -> None:
        """Called by the connection's reading task with each answer, in order."""
        if link is not self._link:
            return
        producing = self._producing
        try:
            answer = batch.call.answer(pending.response())
        except ConnectionLostError as error:
            self._disconnected(error)
        except RelaydError as error:
            producing.refused(error)
            if not self._client.reconnect and error.retryable:
                producing.failed = error
        else:
            self._backoff.reset()
            producing.recorded(batch, answer)
        self._tell()

    def _disconnected(self, error: ConnectionLostError) -> None:
        self._link = None
        self._producing.disconnected()
        if not self._client.reconnect:
            self._producing.failed = error
        self._wake.set()

    def _tell(self) -> None:
        """The sender looks again, and so does who waits for room or for everything to be durable."""
        self._wake.set()
        self._progress.set()
        self._progress = anyio.Event()
