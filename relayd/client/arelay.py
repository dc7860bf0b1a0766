"""One relay's commands with the async client: for whoever wants work done, and for whoever does it."""

from typing import TYPE_CHECKING

from relayd.client.acheckpoint import AsyncCheckpoint
from relayd.client.aclaims import AsyncClaims
from relayd.client.ahandle import AsyncHandle
from relayd.client.awork import AsyncWork, Failed, Handler, log_failure, run
from relayd.client.submitting import as_command, configuration, is_state, side_task
from relayd.protocol.commands import OnLoss
from relayd.protocol.cursor import Cursor
from relayd.protocol.errors import InvalidStateError

if TYPE_CHECKING:
    from relayd.client.aclient import AsyncClient


class AsyncRelay:
    """The commands of one relay; made by `AsyncClient.relay`, and the same one for the same name."""

    def __init__(self, client: "AsyncClient", name: str) -> None:
        self._client = client
        self.name = name
        self._claims: AsyncClaims | None = None

    # Having work done

    async def submit(
        self, work: object = None, *, on_loss: OnLoss = "interrupt", command_id: str | None = None
    ) -> AsyncHandle:
        """Has work accepted, exactly once: a task with this payload, or a command of relayd.protocol.commands.

        `on_loss` says what becomes of a task when its worker is lost: "interrupt", or "requeue" for what may run twice.
        A `command_id` of the caller's own makes one command of it also when the caller begins again. Raises
        ConflictError for an id that another command has, InvalidStateError, OverloadedError, TooLargeError.
        """
        return await AsyncHandle.submit(self._client, self.name, as_command(work, on_loss), command_id)

    async def side_task(self, payload: object = None, *, command_id: str | None = None) -> AsyncHandle:
        """Has work accepted that does not wait for the queue."""
        return await AsyncHandle.submit(self._client, self.name, side_task(payload), command_id)

    async def configure(self, key: str, value: object, *, command_id: str | None = None) -> AsyncHandle:
        """Has a setting accepted, in order with tasks; completed, it is in `status`."""
        return await AsyncHandle.submit(self._client, self.name, configuration(key, value), command_id)

    def handle(self, command_id: str) -> AsyncHandle:
        """A command that was submitted before, by anyone."""
        return AsyncHandle(self._client, self.name, command_id)

    def checkpoint(self, *, command_id: str | None = None) -> AsyncCheckpoint:
        """A cut of the relay, for `async with`."""
        return AsyncCheckpoint(self._client, self.name, command_id)

    async def close(self) -> Cursor:
        """Seals the relay for ever once what is started has ended; the cursor of its cut.

        What was queued is rejected. Where somebody records meanwhile, it makes another cut, until it is exact.
        """
        while True:
            async with self.checkpoint() as checkpoint:
                try:
                    await checkpoint.close()
                except InvalidStateError as error:
                    if not is_state(error, "inexact"):
                        raise
                else:
                    return checkpoint.cut

    # Working

    def work(self, *, capacity: int = 1) -> AsyncWork:
        """Commands to work on, for `async for`; never more than `capacity` that have not ended."""
        if self._claims is None or self._claims.failed is not None:
            self._claims = AsyncClaims(self._client, self.name)
        return AsyncWork(self._claims, capacity)

    async def run(self, handler: Handler, *, capacity: int = 1, failed: Failed = log_failure) -> None:
        """Calls `handler` for each command, up to `capacity` at once, until the relay is closed.

        What it returns is the result; an exception rejects the command, and is told to `failed`.
        """
        await run(self.work(capacity=capacity), handler, failed)
