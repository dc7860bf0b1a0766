"""A checkpoint as the synchronous client's caller makes it."""

import contextlib
from types import TracebackType
from typing import TYPE_CHECKING, Self

from relayd.client.errors import CommandFailedError
from relayd.client.outcome import outcome_of
from relayd.client.sync_handle import Handle
from relayd.protocol.commands import BeginCheckpoint, Close, CompleteCheckpoint, ReleaseCheckpoint
from relayd.protocol.cursor import Cursor
from relayd.protocol.errors import RelaydError

if TYPE_CHECKING:
    from relayd.client.sync import Client


class Checkpoint:
    """A cut of the relay, made when the `with` block is entered; work stands still until it is left.

    Say `complete`, `release` or `close` in the block; left without that, also by an exception, it is released. It
    belongs to this connection: where that is lost, the checkpoint is interrupted, and saying anything of it raises
    InvalidStateError.
    """

    def __init__(self, client: "Client", relay: str, command_id: str | None) -> None:
        self._client = client
        self._relay = relay
        self._asked_id = command_id
        self._handle: Handle | None = None
        self._cut: Cursor | None = None
        self._over = False

    @property
    def command_id(self) -> str:
        """Of the `begin_checkpoint`."""
        assert self._handle is not None, "the checkpoint was not begun; enter it with `with`"
        return self._handle.command_id

    @property
    def cut(self) -> Cursor:
        """Everything through here is in this checkpoint, and nothing else."""
        assert self._cut is not None, "the checkpoint was not begun; enter it with `with`"
        return self._cut

    def __enter__(self) -> Self:
        """Drains and cuts. Raises InvalidStateError while another is made, CommandFailedError where it came to none."""
        self._handle = Handle.submit(self._client, self._relay, BeginCheckpoint(), self._asked_id)
        try:
            report = self._handle.settled()
        except BaseException:
            self._give_up()
            raise
        outcome = outcome_of(report)
        if outcome is not None or report.cut is None:
            assert outcome is not None, "it has ended or has its cut"
            raise CommandFailedError(outcome)
        self._cut = report.cut
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._over:
            return
        if error is None:
            self.release()
        else:
            self._give_up()

    def complete(self) -> None:
        """The relay's floor becomes the cut, and work goes on."""
        self._say(CompleteCheckpoint(self.command_id))

    def release(self) -> None:
        """Work goes on; the floor stays where it is."""
        self._say(ReleaseCheckpoint(self.command_id))

    def close(self) -> None:
        """Seals the relay at the cut, for ever. Raises InvalidStateError where something was recorded after it."""
        self._say(Close(self.command_id, self.cut))

    def _say(self, command: CompleteCheckpoint | ReleaseCheckpoint | Close) -> None:
        Handle.submit(self._client, self._relay, command)
        self._over = True

    def _give_up(self) -> None:
        """Ends it in any state, where the connection whose it is still lives; without that it has ended by itself."""
        assert self._handle is not None, "it was begun"
        if not self._client.is_connected:
            return
        with contextlib.suppress(RelaydError):
            if self._cut is None:
                self._handle.cancel()
            else:
                self.release()
