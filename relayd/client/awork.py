"""Working with the async client: commands one after another, or a handler that is called for each."""

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, Self

import anyio

from relayd.client.aassignment import AsyncAssignment
from relayd.client.submitting import is_state
from relayd.client.working import describe
from relayd.protocol.errors import FieldDetail, InvalidRequestError, InvalidStateError, RelaydError

if TYPE_CHECKING:
    from relayd.client.aclaims import AsyncClaims

_log: Final = logging.getLogger("relayd.worker")


class AsyncWork:
    """Commands to work on, each once; see `AsyncRelay.work`. For one task at a time; commands end in any.

    It claims when the next one is asked for, and while fewer than `capacity` of its commands have not ended. The loop
    ends when the relay is closed.
    """

    def __init__(self, claims: "AsyncClaims", capacity: int) -> None:
        if capacity < 1:
            expected = "at least 1"
            message = f"a worker that works on {capacity} commands at once gets none; `capacity` is {expected}"
            raise InvalidRequestError(message, FieldDetail("capacity", expected))
        self._claims = claims
        self._capacity = capacity
        self._unended: set[str] = set()
        self._room = anyio.Event()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AsyncAssignment:
        while len(self._unended) >= self._capacity:
            self._room = anyio.Event()
            await self._room.wait()
        try:
            command = await self._claims.next()
        except InvalidStateError as error:
            if is_state(error, "closed"):
                raise StopAsyncIteration from None
            raise
        self._unended.add(command.command_id)
        command.when_over = lambda: self._ended(command.command_id)
        return command

    def _ended(self, command_id: str) -> None:
        self._unended.discard(command_id)
        self._room.set()


Handler = Callable[[AsyncAssignment], Awaitable[object]]
Failed = Callable[[AsyncAssignment, Exception], None]


def log_failure(command: AsyncAssignment, error: Exception) -> None:
    """Says it in the log of Python's `logging`, as `relayd.worker`."""
    _log.error("%r was not completed: %s", command, describe(error), exc_info=error)


async def run(work: AsyncWork, handler: Handler, failed: Failed) -> None:
    """Calls `handler` for each command of `work` in a task of its own."""
    ended: RelaydError | None = None
    async with anyio.create_task_group() as tasks:
        try:
            async for command in work:
                tasks.start_soon(_handle, command, handler, failed)
        except RelaydError as error:
            # Raised below: from here it would come in a group.
            ended = error
    if ended is not None:
        raise ended


async def _handle(command: AsyncAssignment, handler: Handler, failed: Failed) -> None:
    try:
        async with command:
            command.result = await handler(command)
    except Exception as error:  # noqa: BLE001 - whatever a handler raises is its command's outcome
        failed(command, error)
    if command.lost:
        _log.warning("%r is not this worker's any more; what it did is not recorded as its outcome", command)
