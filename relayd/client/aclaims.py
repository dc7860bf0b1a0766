"""What the async client has of one relay's commands: one task claims them, and keeps them across connections.

It claims only what somebody waits for, so that no command lies about. While anything is in hand a claim of capacity 0
waits for cancels. After a lost connection what is in hand is claimed again under the same identity before anything
else; what the relay does not have for this worker any more is lost. Answers are taken in as they are read, so that a
cancel never comes before its command.
"""

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import anyio
import msgspec

from relayd.client import operations
from relayd.client.aassignment import AsyncAssignment
from relayd.client.alink import AsyncLink, Pending
from relayd.client.backoff import Backoff
from relayd.client.errors import ConnectionLostError, NotConnectedError
from relayd.client.operations import Call
from relayd.client.submitting import is_waited_out
from relayd.client.working import CLAIM_WAIT_MS, NOT_OURS, RECLAIM_WAIT_MS, HandOver, read_hand_over, still_ours
from relayd.protocol.errors import RelaydError, RequestCancelledError
from relayd.protocol.messages import CancelRequest, Claimed

if TYPE_CHECKING:
    from relayd.client.aclient import AsyncClient

R = TypeVar("R", bound=msgspec.Struct)


class Want:
    """Somebody who waits for one command."""

    __slots__ = ("come", "given")

    def __init__(self) -> None:
        self.come = anyio.Event()
        self.given: AsyncAssignment | None = None


class AsyncClaims:
    """The commands of one relay that this client's worker has or waits for. Of one client there is one at a time."""

    def __init__(self, client: "AsyncClient", relay: str) -> None:
        self.relay = relay
        self.failed: RelaydError | None = None
        self._client = client
        self._backoff = Backoff()
        self._in_hand: dict[str, AsyncAssignment] = {}
        self._missing: set[str] = set()
        """In hand, and not yet claimed on this connection."""
        self._wants: dict[Want, None] = {}
        self._spare: deque[AsyncAssignment] = deque()
        """Handed over to somebody who had gone; the next one who waits gets it."""
        self._link: AsyncLink | None = None
        self._claim: Pending | None = None
        self._taken_back = False
        self._watch: Pending | None = None
        self._pausing = False
        self._running = False
        self._wake = anyio.Event()
        self._changed = anyio.Event()

    # Who works

    async def next(self) -> AsyncAssignment:
        """A command, when there is one. Who is cancelled has got none. Raises what ended the claiming."""
        await self._client.connected()
        self._run_along()
        while self._spare:
            found = self._spare.popleft()
            if not found.over:
                found.given = True
                return found
        while True:
            if self.failed is not None:
                raise self.failed
            want = Want()
            self._wants[want] = None
            self._wake.set()
            try:
                await want.come.wait()
            except BaseException:
                if want.given is not None:
                    self._spare.append(want.given)
                self._wake.set()
                raise
            finally:
                self._wants.pop(want, None)
            if want.given is not None and not want.given.over:
                want.given.given = True
                return want.given

    async def finish(self, assignment: AsyncAssignment, call: Call[R]) -> bool:
        """Has the relay take an outcome; False where the command is not ours any more. Repeated until it is known."""
        assignment.finishing = True
        backoff = Backoff()
        while True:
            link = await self._link_that_holds(assignment)
            try:
                await self._exchange(link, call)
            except ConnectionLostError:
                if not self._client.reconnect:
                    raise
                self._wake.set()
            except NOT_OURS:
                return False
            except RelaydError as error:
                if not is_waited_out(error, reconnect=self._client.reconnect):
                    raise
                await anyio.sleep(backoff.next_seconds())
            else:
                return True

    def let_go(self, assignment: AsyncAssignment) -> None:
        """It is in nobody's hands here any more."""
        if self._in_hand.get(assignment.command_id) is assignment:
            del self._in_hand[assignment.command_id]
            self._missing.discard(assignment.command_id)

    async def _link_that_holds(self, assignment: AsyncAssignment) -> AsyncLink:
        """The connection that can end it; of one that did not come back, any: the end may be recorded already."""
        while True:
            link = await self._client.connected()
            if assignment.link is link or assignment.gone:
                return link
            if self.failed is not None:
                raise self.failed
            self._wake.set()
            await self._changed.wait()

    # The task

    def _run_along(self) -> None:
        if not self._running:
            self._client.tasks.start_soon(self._run)
            self._running = True

    async def _run(self) -> None:
        try:
            await self._keep_asking()
        finally:
            if self.failed is None:
                self._fail(NotConnectedError("this client is closed; make a new one"))

    async def _keep_asking(self) -> None:
        while self.failed is None:
            try:
                await self._step(await self._client.connected())
            except ConnectionLostError as error:
                if not self._client.reconnect:
                    self._fail(error)
                continue
            except RelaydError as error:
                self._trouble(error)
            if not self._pausing:
                await self._wake.wait()
            self._wake = anyio.Event()

    async def _step(self, link: AsyncLink) -> None:
        """Asks for what is to be asked for."""
        if self._pausing:
            await anyio.sleep(self._backoff.next_seconds())
            self._pausing = False
        if link is not self._link:
            self._link, self._claim, self._watch = link, None, None
            self._missing = set(self._in_hand)
        if self._missing and self._claim is None:
            await self._claim_again(link)
        if self._in_hand and self._watch is None:
            self._watch = await self._ask(link, 0, CLAIM_WAIT_MS)
        if self._wants and self._claim is None:
            self._claim = await self._ask(link, len(self._wants), CLAIM_WAIT_MS)
        elif self._claim is not None and not self._wants and not self._missing and not self._taken_back:
            # Its answer is awaited all the same: it may carry commands already.
            self._taken_back = True
            await link.send(CancelRequest(0, self._claim.id), lambda _answer: None)

    async def _claim_again(self, link: AsyncLink) -> None:
        """Claims what is in hand; room for it is counted, so that it comes first and new work fits beside it."""
        status = await self._exchange(link, operations.status(self.relay))
        ours = still_ours(status.in_flight, self._client.worker, self._missing)
        for command_id in self._missing - ours:
            self._lose(self._in_hand[command_id])
        self._missing &= ours
        if self._missing:
            self._claim = await self._ask(link, len(self._missing) + len(self._wants), RECLAIM_WAIT_MS)

    async def _ask(self, link: AsyncLink, capacity: int, wait_ms: int) -> Pending:
        if capacity:
            self._taken_back = False
        call = operations.claim(self.relay, capacity, wait_ms)
        return await link.send(call.request, partial(self._answered, link, call))

    async def _exchange(self, link: AsyncLink, call: Call[R]) -> R:
        """One question on this connection. Raises ConnectionLostError also for the daemon's goodbye."""
        pending = await link.send(call.request)
        try:
            response = await pending.wait()
        finally:
            pending.take_back()
        if self._client.reconnect and call.ends_with(response):
            link.end()
            raise ConnectionLostError("the daemon stops")
        return call.answer(response)

    # Answers, as they are read

    def _answered(self, link: AsyncLink, call: Call[Claimed], pending: Pending) -> None:
        if pending is self._claim:
            self._claim = None
        elif pending is self._watch:
            self._watch = None
        try:
            response = pending.response()
            if self._client.reconnect and call.ends_with(response):
                link.end()
            else:
                self._take(link, read_hand_over(call.answer(response).commands))
                self._backoff.reset()
        except RequestCancelledError:
            pass
        except ConnectionLostError as error:
            if not self._client.reconnect:
                self._fail(error)
        except RelaydError as error:
            self._trouble(error)
        self._tell()

    def _take(self, link: AsyncLink, handed: HandOver) -> None:
        fresh: list[AsyncAssignment] = []
        for claimed, command in handed.commands:
            known = self._in_hand.get(claimed.command_id)
            if known is None:
                known = AsyncAssignment(self, claimed, command)
                self._in_hand[claimed.command_id] = known
                fresh.append(known)
            known.link, known.delivery = link, claimed.delivery
            self._missing.discard(claimed.command_id)
        for target in handed.cancelled:
            assignment = self._in_hand.get(target)
            if assignment is not None and not assignment.cancel():
                self._client.tasks.start_soon(assignment.reject_unbegun)
        for assignment in fresh:
            if not assignment.over:
                self._give(assignment)

    def _give(self, assignment: AsyncAssignment) -> None:
        want = next(iter(self._wants), None)
        if want is None:
            self._spare.append(assignment)
            return
        del self._wants[want]
        want.given = assignment
        want.come.set()

    def _lose(self, assignment: AsyncAssignment) -> None:
        self.let_go(assignment)
        assignment.lose()
        self._tell()

    def _trouble(self, error: RelaydError) -> None:
        if is_waited_out(error, reconnect=self._client.reconnect):
            self._pausing = True
            self._wake.set()
        else:
            self._fail(error)

    def _fail(self, error: RelaydError) -> None:
        """Nothing comes any more, and what is in hand cannot be ended."""
        self.failed = error
        for assignment in list(self._in_hand.values()):
            self._lose(assignment)
        for want in self._wants:
            want.come.set()

    def _tell(self) -> None:
        self._wake.set()
        self._changed.set()
        self._changed = anyio.Event()
