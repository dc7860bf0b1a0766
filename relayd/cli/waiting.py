"""What is said on a terminal while a command waits for a daemon that is gone, or a disk without room."""

import time
from typing import Final

from relayd.cli.output import Progress, on_terminal, say
from relayd.client.errors import ConnectionLostError, NotConnectedError
from relayd.protocol.errors import RelaydError, StorageFullError

_SILENT_SECONDS: Final = 1.0
"""A daemon that is started again is back before anybody wonders."""


class Waits:
    """Told of each trouble that is waited out; says so once, after a second, and says when it is over."""

    def __init__(self, progress: Progress | None = None, *, quiet: bool = False) -> None:
        self._progress = progress
        self._shown = not quiet and on_terminal()
        self._since: float | None = None
        self._said = ""

    def __call__(self, trouble: RelaydError | None) -> None:
        """A try failed with `trouble`, or, None, one succeeded."""
        if not self._shown:
            return
        if trouble is None:
            self._since = None
            if self._said:
                self._said = ""
                self._say("going on")
            return
        now = time.monotonic()
        if self._since is None:
            self._since = now
        said = _sentence(trouble)
        if now - self._since >= _SILENT_SECONDS and said != self._said:
            self._said = said
            self._say(said)

    def _say(self, text: str) -> None:
        if self._progress is not None:
            self._progress.clear()
        say(text)


def _sentence(trouble: RelaydError) -> str:
    match trouble:
        case NotConnectedError() | ConnectionLostError():
            return "the daemon is gone; waiting, nothing is lost"
        case StorageFullError():
            return "the disk has no room; waiting"
        case _:
            return f"the daemon cannot take it now ({trouble.code}); waiting"
