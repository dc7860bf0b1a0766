"""A command in the hands of the synchronous client's worker."""

from types import TracebackType
from typing import TYPE_CHECKING, Self

from relayd.client import operations
from relayd.client.sync_link import Link
from relayd.client.working import CANCELLED, UNSAYABLE, Assigned, Ending, describe
from relayd.protocol.commands import AnyCommand
from relayd.protocol.errors import RelaydError
from relayd.protocol.messages import ClaimedCommand

if TYPE_CHECKING:
    from relayd.client.sync_work import Work


class Assignment(Assigned):
    """A command to work on, as a `with` block or by saying its end.

    A block that is left normally completes it with `result`, unless a cancel was seen: then it is rejected. A block
    that an exception leaves rejects it with that as its message, and the exception goes on; for what is no Exception
    (KeyboardInterrupt, SystemExit) nothing is said, and the lease decides. `complete`, `reject` and `interrupt` say the
    end at once, in a block or without one.
    """

    def __init__(self, work: "Work", claimed: ClaimedCommand, command: AnyCommand, link: Link) -> None:
        super().__init__(work.relay, claimed, command)
        self._work = work
        self.link = link

    @property
    def over(self) -> bool:
        """Whether its end was said, or it is lost."""
        return self.lost or self.end is not None

    def complete(self, result: object = None) -> bool:
        """It is done, durably; False where it is lost."""
        return self._say(Ending("completed", result))

    def reject(self, message: str | None = None, *, result: object = None) -> bool:
        """It is not to be had, durably; False where it is lost."""
        return self._say(Ending("rejected", result, message))

    def interrupt(self, message: str | None = None, *, result: object = None) -> bool:
        """It was begun and not brought to an end, durably; False where it is lost."""
        return self._say(Ending("interrupted", result, message))

    def check(self) -> bool:
        """Asks the daemon, without waiting; True: it was cancelled or is lost, so stop."""
        if not self.over and not self.cancelled:
            self._work.look()
        return self.cancelled or self.lost

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self._leave()
        elif isinstance(error, Exception):
            self._fail(error)
        else:
            self._work.abandon()

    def _leave(self) -> None:
        if self.over:
            return
        try:
            self._say(Ending("rejected", message=CANCELLED) if self.cancelled else Ending("completed", self.result))
        except UNSAYABLE as error:
            self._say(Ending("rejected", message=str(error)))
            raise

    def _fail(self, error: Exception) -> None:
        """Says that the body failed; what goes wrong in that is noted on its exception, which goes on."""
        if self.over:
            return
        try:
            self._say(Ending("rejected", message=describe(error)))
        except RelaydError as refused:
            error.add_note(f"relayd: the end of command `{self.command_id}` could not be recorded: {refused}")

    def _say(self, ending: Ending) -> bool:
        if self.over:
            return self.end == ending.outcome
        call = operations.finish(
            self.relay, self.command_id, ending.outcome, result=ending.result, message=ending.message
        )
        if self._work.finish(call):
            self.end = ending.outcome
        else:
            self.lost = True
        return not self.lost
