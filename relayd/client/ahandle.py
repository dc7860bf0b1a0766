"""A submitted command as the async client's caller has it in hand."""

from typing import TYPE_CHECKING, Self

import anyio

from relayd.client import operations
from relayd.client.backoff import Backoff
from relayd.client.operations import new_command_id
from relayd.client.outcome import Outcome, outcome_of, result_of
from relayd.client.submitting import CUT_POLL_SECONDS, WAIT_MS, is_waited_out, time_is_up
from relayd.protocol.commands import AnyCommand, Cancel
from relayd.protocol.errors import RelaydError, WaitTimeoutError
from relayd.protocol.messages import CommandReport

if TYPE_CHECKING:
    from relayd.client.aclient import AsyncClient


class AsyncHandle:
    """A command of a relay, by its id; made by what submits, or by `AsyncRelay.handle` for one submitted before."""

    def __init__(self, client: "AsyncClient", relay: str, command_id: str) -> None:
        self._client = client
        self.relay = relay
        self.command_id = command_id

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.command_id} of relay {self.relay}>"

    @classmethod
    async def submit(
        cls, client: "AsyncClient", relay: str, command: AnyCommand, command_id: str | None = None
    ) -> Self:
        """Has a command accepted; its id is chosen before the first try, so that any number of tries are one."""
        accepted = await client.submit(relay, command, command_id or new_command_id())
        return cls(client, relay, accepted.command_id)

    async def outcome(self, timeout: float | None = None) -> Outcome:  # noqa: ASYNC109 - a wait, not a bound of work
        """How the command ended, when it has; it does not raise for one that was rejected or interrupted.

        Waits through lost connections and restarts of the daemon. Raises WaitTimeoutError after `timeout` seconds, and
        NotFoundError for a command that the relay does not know or remember.
        """
        if timeout is not None and timeout <= 0:
            outcome = outcome_of(await self.report())
            if outcome is not None:
                return outcome
        with anyio.move_on_after(timeout):
            return await self._outcome()
        raise time_is_up(self.command_id, timeout or 0.0)

    async def result(self, timeout: float | None = None) -> object:  # noqa: ASYNC109 - as above
        """The result, when the command is completed. Raises CommandFailedError where it ended otherwise."""
        return result_of(await self.outcome(timeout))

    async def cancel(self, command_id: str | None = None) -> "AsyncHandle":
        """Asks for the command's end, by a command of its own; gives that one's handle, which ends with this one.

        Raises InvalidStateError where it has ended already.
        """
        return await AsyncHandle.submit(self._client, self.relay, Cancel(self.command_id), command_id)

    async def report(self, wait_ms: int = 0) -> CommandReport:
        """What is known of it now, or once it has ended, or has its cut; what time lifts is waited out."""
        backoff = Backoff()
        while True:
            try:
                return await self._client.call(operations.command(self.relay, self.command_id, wait_ms))
            except WaitTimeoutError:
                raise
            except RelaydError as error:
                if not is_waited_out(error, reconnect=self._client.reconnect):
                    raise
            await anyio.sleep(backoff.next_seconds())

    async def settled(self) -> CommandReport:
        """What is known once it has ended, or has its cut."""
        while True:
            try:
                return await self.report(WAIT_MS)
            except WaitTimeoutError:
                continue

    async def _outcome(self) -> Outcome:
        while True:
            outcome = outcome_of(await self.settled())
            if outcome is not None:
                return outcome
            await anyio.sleep(CUT_POLL_SECONDS)
