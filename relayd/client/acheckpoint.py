"""A checkpoint as the async client's caller makes it."""

import contextlib
from types import TracebackType
from typing import TYPE_CHECKING, Self

import anyio

from relayd.client.ahandle import AsyncHandle
from relayd.client.errors import CommandFailedError
from relayd.client.outcome import outcome_of
from relayd.protocol.commands import BeginCheckpoint, Close, CompleteCheckpoint, ReleaseCheckpoint
from relayd.protocol.cursor import Cursor
from relayd.protocol.errors import RelaydError

if TYPE_CHECKING:
    from relayd.client.aclient import AsyncClient

RELEASE_SECONDS_MAX = 5.0
"""How long whoever is cancelled in the block still tries to release; the daemon does it when the connection ends."""


class AsyncCheckpoint:
    """A cut of the relay, made when the `async with` block is entered; work stands still until it is left.

    Say `complete`, `release` or `close` in the block; left without that, also by an exception, it is released. It
    belongs to this connection: where that is lost, the checkpoint is interrupted, and saying anything of it raises
    InvalidStateError.
    """

    def __init__(self, client: "AsyncClient", relay: str, command_id: str | None) -> None:
        self._client = client
        self._relay = relay
        self._asked_id = command_id
        self._handle: AsyncHandle | None = None
        self._cut: Cursor | None = None
        self._over = False

    @property
    def command_id(self) -> str:
        """Of the `begin_checkpoint`."""
        assert self._handle is not None, "the checkpoint was not begun; enter it with `async with`"
        return self._handle.command_id

    @property
    def cut(self) -> Cursor:
        """Everything through here is in this checkpoint, and nothing else."""
        assert self._cut is not None, "the checkpoint was not begun; enter it with `async with`"
        return self._cut

    async def __aenter__(self) -> Self:
        """Drains and cuts. Raises InvalidStateError while another is made, CommandFailedError where it came to none."""
        self._handle = await AsyncHandle.submit(self._client, self._relay, BeginCheckpoint(), self._asked_id)
        try:
            report = await self._handle.settled()
        except BaseException:
            await self._give_up()
            raise
        outcome = outcome_of(report)
        if outcome is not None or report.cut is None:
            assert outcome is not None, "it has ended or has its cut"
            raise CommandFailedError(outcome)
        self._cut = report.cut
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._over:
            return
        if error is None:
            await self.release()
        else:
            await self._give_up()

    async def complete(self) -> None:
        """The relay's floor becomes the cut, and work goes on."""
        await self._say(CompleteCheckpoint(self.command_id))

    async def release(self) -> None:
        """Work goes on; the floor stays where it is."""
        await self._say(ReleaseCheckpoint(self.command_id))

    async def close(self) -> None:
        """Seals the relay at the cut, for ever. Raises InvalidStateError where something was recorded after it."""
        await self._say(Close(self.command_id, self.cut))

    async def _say(self, command: CompleteCheckpoint | ReleaseCheckpoint | Close) -> None:
        await AsyncHandle.submit(self._client, self._relay, command)
        self._over = True

    async def _give_up(self) -> None:
        """Ends it in any state, as far as that can be had; what went wrong before is what the caller is told."""
        assert self._handle is not None, "it was begun"
        with anyio.move_on_after(RELEASE_SECONDS_MAX, shield=True):
            with contextlib.suppress(RelaydError):
                if self._cut is None:
                    await self._handle.cancel()
                else:
                    await self.release()
