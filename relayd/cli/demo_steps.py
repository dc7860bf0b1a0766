"""How the demo talks about its steps, bounds them, and ends one that fails."""

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Final

import trio

from relayd.cli.output import Progress, say

STEP_SECONDS: Final = 30.0
"""A step that takes longer has failed."""
_LOOK_SECONDS: Final = 0.002


class DemoError(Exception):
    """A step of the demo failed; the message says which, and how. `log`: the end of the daemon's log."""

    def __init__(self, message: str, log: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.log = log


class Narrator:
    """Lines for whoever watches, each with the seconds since the beginning; use as a context manager."""

    def __init__(self) -> None:
        self._progress = Progress()
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self._began

    def tell(self, text: str) -> None:
        """What happens now."""
        self._progress.clear()
        say(f"{self.seconds:5.1f} s  {text}")

    async def show(self, describe: Callable[[], str]) -> None:
        """On a terminal, keeps a last line up to date until cancelled."""
        try:
            while True:
                if self._progress.due:
                    self._progress.show(f"{self.seconds:5.1f} s  {describe()}")
                await trio.sleep(0.1)
        finally:
            self._progress.clear()


@contextmanager
def step(what: str, seconds: float = STEP_SECONDS) -> Generator[None]:
    """Bounds a step. Raises DemoError where it takes longer than `seconds`."""
    with trio.move_on_after(seconds) as scope:
        yield
    if scope.cancelled_caught:
        raise DemoError(f"{what}: that did not happen within {seconds:g} s")


async def until(happened: Callable[[], bool]) -> None:
    """Waits for something that another task or process does."""
    while not happened():  # noqa: ASYNC110 - much of it happens in other processes
        await trio.sleep(_LOOK_SECONDS)
