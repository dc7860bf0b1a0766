"""A command in the hands of the async client's worker: a body under a cancel scope, and what leaving it says."""

import contextlib
from collections.abc import AsyncGenerator, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

import anyio

from relayd.client import operations
from relayd.client.alink import AsyncLink
from relayd.client.working import CANCELLED, UNSAYABLE, Assigned, Ending, describe
from relayd.protocol.commands import AnyCommand
from relayd.protocol.errors import RelaydError
from relayd.protocol.messages import ClaimedCommand

if TYPE_CHECKING:
    from relayd.client.aclaims import AsyncClaims


class AsyncAssignment(Assigned):
    """A command to work on: `async with command:` runs the body under a cancel scope, and leaving it ends the command.

    Left normally it is completed with `result`; left by an exception it is rejected with that as its message, and the
    exception goes on. Where the controller cancels it, the body is cancelled and the command rejected; where it is
    lost, the body is cancelled and `lost` is True. What the body says itself (`complete`, `reject`, `interrupt`), also
    while it is being cancelled, counts before all of that. Where the worker itself is cancelled nothing is said, and
    the lease decides.
    """

    def __init__(self, claims: "AsyncClaims", claimed: ClaimedCommand, command: AnyCommand) -> None:
        super().__init__(claims.relay, claimed, command)
        self._claims = claims
        self._scope = anyio.CancelScope()
        self._said: Ending | None = None
        self._block = self._entered()
        self.link: AsyncLink | None = None
        self.finishing = False
        self.given = False
        self.gone = False
        self.over = False
        self.when_over: Callable[[], None] = lambda: None

    def complete(self, result: object = None) -> None:
        """Leaving the block completes it with this."""
        self._said = Ending("completed", result)

    def reject(self, message: str | None = None, *, result: object = None) -> None:
        """Leaving the block rejects it."""
        self._said = Ending("rejected", result, message)

    def interrupt(self, message: str | None = None, *, result: object = None) -> None:
        """Leaving the block says that it was begun and not brought to an end."""
        self._said = Ending("interrupted", result, message)

    async def __aenter__(self) -> Self:
        await self._block.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return await self._block.__aexit__(kind, error, traceback)

    # What happens to it

    def cancel(self) -> bool:
        """The controller wants it ended; False where nobody was given it, and it is to be rejected unbegun."""
        self.cancelled = True
        self._scope.cancel()
        if not self.given:
            self.over = True
        return self.given

    def lose(self) -> None:
        """It is not this worker's any more; of one whose end is being said, the relay's answer to that decides."""
        self.gone = True
        if not self.finishing:
            self._end_lost()
            self._scope.cancel()

    async def reject_unbegun(self) -> None:
        """Ends one that was cancelled before anybody began it."""
        try:
            await self._say(Ending("rejected", message=CANCELLED))
        except RelaydError:
            # It was not begun: whoever asks again for what this connection holds gets it again.
            return
        finally:
            self._end_over()

    @contextlib.asynccontextmanager
    async def _entered(self) -> AsyncGenerator[None]:
        try:
            try:
                with self._scope:
                    yield
            except Exception as error:
                await self._fail(error)
                raise
            if not self.lost:
                await self._succeed()
        finally:
            self._end_over()

    async def _succeed(self) -> None:
        if self._said is not None:
            ending = self._said
        elif self._scope.cancelled_caught:
            ending = Ending("rejected", message=CANCELLED)
        else:
            ending = Ending("completed", self.result)
        try:
            await self._say(ending)
        except UNSAYABLE as error:
            await self._say(Ending("rejected", message=str(error)))
            raise

    async def _fail(self, error: Exception) -> None:
        """Says that the body failed; what goes wrong in that is noted on its exception, which goes on."""
        if self.lost:
            return
        try:
            await self._say(self._said or Ending("rejected", message=describe(error)))
        except RelaydError as refused:
            error.add_note(f"relayd: the end of command `{self.command_id}` could not be recorded: {refused}")

    async def _say(self, ending: Ending) -> None:
        call = operations.finish(
            self.relay, self.command_id, ending.outcome, result=ending.result, message=ending.message
        )
        if await self._claims.finish(self, call):
            self.end = ending.outcome
        else:
            self._end_lost()

    def _end_lost(self) -> None:
        self.lost = True
        self._end_over()

    def _end_over(self) -> None:
        self.over = True
        self._claims.let_go(self)
        self.when_over()
