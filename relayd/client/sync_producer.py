"""The synchronous producer: batches go out while the next one gathers, without a thread."""

import time
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Self

from relayd.client.backoff import Backoff
from relayd.client.errors import OWN_ERRORS, ConnectionLostError
from relayd.client.producing import Batch, Producing
from relayd.client.sync_link import Deadline, Link
from relayd.protocol.cursor import Cursor
from relayd.protocol.errors import RelaydError
from relayd.protocol.messages import AnyResponse

if TYPE_CHECKING:
    from relayd.client.sync import Client


class Producer:
    """A numbered stream into one relay: each event is recorded once, whatever breaks on the way.

    Made by `Client.producer`. What `record` takes is sent at once where nothing is in flight, else with the batch, at
    the latest by the first call after `linger_ms`. There is no thread behind it: call `flush` before a pause. Leaving
    the `with` block flushes, unless an exception leaves it.
    """

    def __init__(self, client: "Client", producing: Producing, linger_ms: float) -> None:
        self._client = client
        self._producing = producing
        self._linger_seconds = linger_ms / 1000
        self._gathering_since = 0.0
        self._backoff = Backoff()
        self._in_flight: deque[tuple[int, Batch]] = deque()
        self._link: Link | None = None
        self._started = False

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.flush()
        finally:
            self._abandon()

    @property
    def position(self) -> int:
        """The sequence of the last event that is known durable; 0: none yet."""
        return self._producing.position

    @property
    def through(self) -> Cursor | None:
        """The cursor of the last event of this producer that is known durable; None: none yet."""
        return self._producing.through

    def record(self, kind: str, data: object = None, command_id: str | None = None) -> int:
        """Takes an event in and gives its sequence; `flush` says when it is durable.

        Waits while too much is in flight. Raises InvalidRequestError or TooLargeError for an event that cannot be
        recorded, which changes nothing, and what ended the stream, if something has.
        """
        producing = self._producing
        if not self._started:
            self._start()
        if producing.failed is not None:
            raise producing.failed
        while producing.full:
            self._step(wait=True)
        sequence = producing.add(kind, data, command_id)
        now = time.monotonic()
        if producing.gathered == 1:
            self._gathering_since = now
            if producing.in_flight:
                self._step(wait=False)
        if producing.complete or not producing.unacknowledged or now - self._gathering_since >= self._linger_seconds:
            producing.cut()
            self._step(wait=False)
        return sequence

    def flush(self) -> Cursor | None:
        """Waits until everything taken in is durable; the cursor of the last event, None where there was none.

        Raises what ended the stream, and NoAnswerError after the client's `timeout` without any answer.
        """
        if not self._started:
            self._start()
        self._producing.cut()
        while self._producing.unacknowledged:
            self._step(wait=True)
        if self._producing.failed is not None:
            raise self._producing.failed
        return self._producing.through

    def _start(self) -> None:
        """Asks where the stream stands; what time lifts is waited out here as in `flush`."""
        while True:
            try:
                answer = self._client.call(self._producing.where())
            except RelaydError as error:
                if not self._client.reconnect or not error.retryable or isinstance(error, OWN_ERRORS):
                    raise
                self._client.waits(error)
                time.sleep(self._backoff.next_seconds())
            else:
                break
        self._client.waits(None)
        self._backoff.reset()
        self._producing.stands(answer)
        self._started = True

    def _step(self, *, wait: bool) -> None:
        """Sends what may be sent and takes in what has come; with `wait`, at least one answer or a new connection."""
        producing = self._producing
        try:
            self._exchange(Deadline(self._client.timeout), wait=wait)
        except ConnectionLostError as error:
            self._abandon()
            if not self._client.reconnect:
                producing.failed = error
        except BaseException:
            # What is still in flight cannot be told from what is not any more.
            if self._link is not None:
                self._link.close()
            self._abandon()
            raise
        if producing.failed is not None:
            raise producing.failed

    def _exchange(self, deadline: Deadline, *, wait: bool) -> None:
        producing, in_flight = self._producing, self._in_flight
        if producing.may_resume:
            deadline.sleep(self._backoff.next_seconds())
            producing.resume()
        link = self._connect(deadline)
        while (batch := producing.next_batch()) is not None:
            in_flight.append((link.send(batch.call.request, deadline), batch))
        if wait and in_flight:
            request, batch = in_flight[0]
            response = link.receive(request, deadline)
            in_flight.popleft()
            self._take(batch, response)
        while in_flight:
            request, batch = in_flight[0]
            response = link.receive_if_there(request)
            if response is None:
                break
            in_flight.popleft()
            self._take(batch, response)

    def _connect(self, deadline: Deadline) -> Link:
        link = self._client.connected(deadline)
        if link is not self._link:
            self._abandon()
            self._link = link
        return link

    def _abandon(self) -> None:
        """Nobody waits any more for what is in flight; it is sent again, if the stream goes on."""
        if self._link is not None:
            for request, _ in self._in_flight:
                self._link.forget(request)
        self._link = None
        self._in_flight.clear()
        self._producing.disconnected()

    def _take(self, batch: Batch, response: AnyResponse) -> None:
        try:
            answer = batch.call.answer(response)
        except RelaydError as error:
            self._producing.refused(error)
            if not self._client.reconnect and error.retryable:
                self._producing.failed = error
            elif error.retryable:
                self._client.waits(error)
        else:
            self._backoff.reset()
            self._client.waits(None)
            self._producing.recorded(batch, answer)
