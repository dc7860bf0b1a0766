"""A submitted command as the synchronous client's caller has it in hand."""

import time
from typing import TYPE_CHECKING, Self

from relayd.client import operations
from relayd.client.backoff import Backoff
from relayd.client.operations import new_command_id
from relayd.client.outcome import Outcome, outcome_of, result_of
from relayd.client.submitting import CUT_POLL_SECONDS, WAIT_MS, is_waited_out, time_is_up
from relayd.protocol.commands import AnyCommand, Cancel
from relayd.protocol.errors import RelaydError, WaitTimeoutError
from relayd.protocol.messages import CommandReport

if TYPE_CHECKING:
    from relayd.client.sync import Client


class Handle:
    """A command of a relay, by its id; made by what submits, or by `Relay.handle` for one submitted before."""

    def __init__(self, client: "Client", relay: str, command_id: str) -> None:
        self._client = client
        self.relay = relay
        self.command_id = command_id

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.command_id} of relay {self.relay}>"

    @classmethod
    def submit(cls, client: "Client", relay: str, command: AnyCommand, command_id: str | None = None) -> Self:
        """Has a command accepted; its id is chosen before the first try, so that any number of tries are one."""
        accepted = client.submit(relay, command, command_id or new_command_id())
        return cls(client, relay, accepted.command_id)

    def outcome(self, timeout: float | None = None) -> Outcome:
        """How the command ended, when it has; it does not raise for one that was rejected or interrupted.

        Waits through lost connections and restarts of the daemon. Raises WaitTimeoutError after `timeout` seconds (a
        daemon that cannot be reached may take the client's own `timeout` longer), and NotFoundError for a command that
        the relay does not know or remember.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            wait_ms = WAIT_MS if until is None else max(0, min(WAIT_MS, int((until - time.monotonic()) * 1000)))
            try:
                outcome = outcome_of(self.report(wait_ms))
            except WaitTimeoutError as error:
                if not is_waited_out(error, reconnect=True):
                    raise
            else:
                if outcome is not None:
                    return outcome
                time.sleep(CUT_POLL_SECONDS if wait_ms else 0.0)
            if until is not None and time.monotonic() >= until:
                raise time_is_up(self.command_id, timeout or 0.0)

    def result(self, timeout: float | None = None) -> object:
        """The result, when the command is completed. Raises CommandFailedError where it ended otherwise."""
        return result_of(self.outcome(timeout))

    def cancel(self, command_id: str | None = None) -> "Handle":
        """Asks for the command's end, by a command of its own; gives that one's handle, which ends with this one.

        Raises InvalidStateError where it has ended already.
        """
        return Handle.submit(self._client, self.relay, Cancel(self.command_id), command_id)

    def report(self, wait_ms: int = 0) -> CommandReport:
        """What is known of it now, or once it has ended, or has its cut; what time lifts is waited out."""
        backoff = Backoff()
        while True:
            try:
                found = self._client.call(operations.command(self.relay, self.command_id, wait_ms))
            except WaitTimeoutError:
                raise
            except RelaydError as error:
                if not is_waited_out(error, reconnect=self._client.reconnect):
                    raise
                self._client.waits(error)
            else:
                self._client.waits(None)
                return found
            time.sleep(backoff.next_seconds())

    def settled(self) -> CommandReport:
        """What is known once it has ended, or has its cut."""
        while True:
            try:
                return self.report(WAIT_MS)
            except WaitTimeoutError as error:
                if not is_waited_out(error, reconnect=True):
                    raise
