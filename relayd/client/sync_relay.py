"""One relay's commands with the synchronous client: for whoever wants work done, and for whoever does it."""

from typing import TYPE_CHECKING

from relayd.client.submitting import as_command, configuration, is_state, side_task
from relayd.client.sync_checkpoint import Checkpoint
from relayd.client.sync_handle import Handle
from relayd.client.sync_work import Work
from relayd.protocol.commands import OnLoss
from relayd.protocol.cursor import Cursor
from relayd.protocol.errors import InvalidStateError

if TYPE_CHECKING:
    from relayd.client.sync import Client


class Relay:
    """The commands of one relay; made by `Client.relay`."""

    def __init__(self, client: "Client", name: str) -> None:
        self._client = client
        self.name = name

    # Having work done

    def submit(self, work: object = None, *, on_loss: OnLoss = "interrupt", command_id: str | None = None) -> Handle:
        """Has work accepted, exactly once: a task with this payload, or a command of relayd.protocol.commands.

        `on_loss` says what becomes of a task when its worker is lost: "interrupt", or "requeue" for what may run twice.
        A `command_id` of the caller's own makes one command of it also when the caller begins again. Raises
        ConflictError for an id that another command has, InvalidStateError, OverloadedError, TooLargeError.
        """
        return Handle.submit(self._client, self.name, as_command(work, on_loss), command_id)

    def side_task(self, payload: object = None, *, command_id: str | None = None) -> Handle:
        """Has work accepted that does not wait for the queue."""
        return Handle.submit(self._client, self.name, side_task(payload), command_id)

    def configure(self, key: str, value: object, *, command_id: str | None = None) -> Handle:
        """Has a setting accepted, in order with tasks; completed, it is in `status`."""
        return Handle.submit(self._client, self.name, configuration(key, value), command_id)

    def handle(self, command_id: str) -> Handle:
        """A command that was submitted before, by anyone."""
        return Handle(self._client, self.name, command_id)

    def checkpoint(self, *, command_id: str | None = None) -> Checkpoint:
        """A cut of the relay, for `with`."""
        return Checkpoint(self._client, self.name, command_id)

    def close(self) -> Cursor:
        """Seals the relay for ever once what is started has ended; the cursor of its cut.

        What was queued is rejected. Where somebody records meanwhile, it makes another cut, until it is exact.
        """
        while True:
            with self.checkpoint() as checkpoint:
                try:
                    checkpoint.close()
                except InvalidStateError as error:
                    if not is_state(error, "inexact"):
                        raise
                else:
                    return checkpoint.cut

    # Working

    def work(self) -> Work:
        """Commands to work on, one at a time, for `for`."""
        return Work(self._client, self.name)
