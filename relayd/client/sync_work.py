"""Working with the synchronous client: one command at a time.

Nothing runs beside the body. A cancel is seen when the body asks for it, and a lost connection when the next thing is
asked: what is in hand is then claimed again under the same identity, before anything else is done with it.
"""

import time
from collections import deque
from typing import TYPE_CHECKING, Self, TypeVar

import msgspec

from relayd.client import operations
from relayd.client.backoff import Backoff
from relayd.client.errors import ConnectionLostError, NoAnswerError, lost
from relayd.client.operations import Call
from relayd.client.submitting import is_state, is_waited_out
from relayd.client.sync_assignment import Assignment
from relayd.client.sync_link import Deadline, Link
from relayd.client.working import CANCELLED, CLAIM_WAIT_MS, NOT_OURS, RECLAIM_WAIT_MS, read_hand_over, still_ours
from relayd.protocol.errors import InvalidStateError, RelaydError

if TYPE_CHECKING:
    from relayd.client.sync import Client

R = TypeVar("R", bound=msgspec.Struct)


class Work:
    """Commands to work on, each once; see `Relay.work`. The loop ends when the relay is closed."""

    def __init__(self, client: "Client", relay: str) -> None:
        self.relay = relay
        self._client = client
        self._backoff = Backoff()
        self._current: Assignment | None = None
        self._spare: deque[Assignment] = deque()
        """Handed over while what is in hand was claimed again."""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Assignment:
        current = self._current
        if current is not None and not current.over:
            message = f"command `{current.command_id}` is in hand and has not ended: use `with`, or say its end, first"
            raise InvalidStateError(message)
        self._current = None
        while True:
            found = self._next_spare() or self._claim_one()
            if found is None:
                raise StopIteration
            self._current = found
            if not found.cancelled:
                return found
            found.reject(CANCELLED)

    def finish(self, call: Call[R]) -> bool:
        """Has the relay take the outcome of what is in hand; False where that is not ours any more."""
        current = self._in_hand()
        while True:
            try:
                # Of one that did not come back, any connection can tell: the end may be recorded already.
                link = self._client.connected(self._deadline())
                if link is not current.link:
                    self._claim_again(link, current)
                self._exchange(link, call)
            except NOT_OURS:
                return False
            except RelaydError as error:
                self._wait_out(error)
            else:
                self._worked()
                return True

    def look(self) -> None:
        """Takes in whether what is in hand was cancelled, or is lost."""
        current = self._in_hand()
        while True:
            try:
                link = self._client.connected(self._deadline())
                if link is not current.link and not self._claim_again(link, current):
                    current.lost = True
                    return
                if link is current.link and not current.cancelled:
                    self._take(link, 0)
            except RelaydError as error:
                self._wait_out(error)
            else:
                self._worked()
                return

    def abandon(self) -> None:
        """The worker stops: its connection ends, so that the lease begins."""
        self._client.disconnect()
        self._current = None

    def _in_hand(self) -> Assignment:
        assert self._current is not None, "asked for by what is in hand"
        return self._current

    def _next_spare(self) -> Assignment | None:
        """One whose connection still lives; else it is claimed anew."""
        while self._spare:
            found = self._spare.popleft()
            if not found.link.closed:
                return found
        return None

    def _claim_one(self) -> Assignment | None:
        """The next command, when there is one; None once the relay is closed."""
        while True:
            try:
                link = self._client.connected(self._deadline())
                self._take(link, 1, CLAIM_WAIT_MS)
            except InvalidStateError as error:
                if is_state(error, "closed"):
                    return None
                raise
            except RelaydError as error:
                self._wait_out(error)
            else:
                self._worked()
                found = self._next_spare()
                if found is not None:
                    return found

    def _claim_again(self, link: Link, current: Assignment) -> bool:
        """Whether what is in hand is this worker's still; then this connection has it."""
        while current.link is not link:
            status = self._exchange(link, operations.status(self.relay))
            if not still_ours(status.in_flight, self._client.worker, [current.command_id]):
                return False
            self._take(link, 1, RECLAIM_WAIT_MS)
        return True

    def _take(self, link: Link, capacity: int, wait_ms: int = 0) -> None:
        """Claims, and takes in what comes. Raises NoAnswerError, which ends the connection: it may have come after."""
        try:
            handed = read_hand_over(self._exchange(link, operations.claim(self.relay, capacity, wait_ms)).commands)
        except NoAnswerError:
            link.close()
            raise
        known = {found.command_id: found for found in (*self._spare, self._current) if found is not None}
        for claimed, command in handed.commands:
            found = known.get(claimed.command_id)
            if found is None:
                found = known[claimed.command_id] = Assignment(self, claimed, command, link)
                self._spare.append(found)
            found.link, found.delivery = link, claimed.delivery
        for target in handed.cancelled:
            if target in known:
                known[target].cancelled = True

    def _exchange(self, link: Link, call: Call[R]) -> R:
        """One question on this connection. Raises ConnectionLostError also for the daemon's goodbye."""
        deadline = self._deadline(call.wait_seconds)
        response = link.receive(link.send(call.request, deadline), deadline)
        if self._client.reconnect and call.ends_with(response):
            link.close()
            raise lost(self._client.socket, "the daemon stops")
        return call.answer(response)

    def _deadline(self, more_seconds: float = 0.0) -> Deadline:
        timeout = self._client.timeout
        return Deadline(None if timeout is None else timeout + more_seconds)

    def _wait_out(self, error: RelaydError) -> None:
        """Waits where time lifts this. Raises it where not."""
        if not self._client.reconnect:
            raise error
        if isinstance(error, ConnectionLostError):
            return
        if not is_waited_out(error, reconnect=True):
            raise error
        self._client.waits(error)
        time.sleep(self._backoff.next_seconds())

    def _worked(self) -> None:
        self._backoff.reset()
        self._client.waits(None)
