"""The demo's daemon: a process of its own, killed and started again."""

import os
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from typing import Final

import trio

from relayd.cli.demo_steps import DemoError, step
from relayd.client.aclient import connect
from relayd.client.errors import ConnectionLostError, NotConnectedError

SEGMENT_BYTES: Final = 64 * 1024
"""Far below the default, so that a few thousand lines are enough to see segments sealed."""
_TAIL_LINES: Final = 15
_WATCH_SECONDS: Final = 0.05


class DemoDaemon:
    """`relayd serve` on a state directory below `place`; its log is in `place`, too."""

    def __init__(self, place: Path) -> None:
        self.state = place / "state"
        self.socket = str(place / "socket")
        self.log = place / "daemon.log"
        self._process: trio.Process | None = None
        self._ending: trio.Process | None = None

    async def start(self) -> float:
        """Starts it; the seconds until it said welcome. Raises DemoError."""
        began = time.monotonic()
        # A process group of its own: ^C is for the demo, which ends the daemon itself.
        with self.log.open("ab") as log:
            self._process = await trio.lowlevel.open_process(
                self._command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=_environment(), process_group=0
            )
        with step("starting the daemon"):
            while not await self._answers():  # noqa: ASYNC110 - another process tells nobody
                await trio.sleep(0.01)
        return time.monotonic() - began

    async def kill(self) -> None:
        """SIGKILL; returns when it is gone."""
        if self._process is not None:
            self._ending = self._process
            self._process.kill()
            await self._process.wait()

    async def stop(self) -> None:
        """A clean stop. Raises DemoError where it is none."""
        if self._process is None:
            return
        self._ending = self._process
        self._process.terminate()
        with step("stopping the daemon"):
            status = await self._process.wait()
        if status:
            raise DemoError(f"the daemon was asked to stop and ended with status {status}")

    async def end(self) -> None:
        """Whatever has happened, it is gone after this."""
        with trio.CancelScope(shield=True):
            await self.kill()

    async def watch(self) -> None:
        """For as long as it is wanted. Raises DemoError where it ends without having been asked to."""
        while True:
            process = self._process
            if process is not None and process is not self._ending and process.returncode is not None:
                raise DemoError(f"the daemon ended by itself, with status {process.returncode}")
            await trio.sleep(_WATCH_SECONDS)

    def log_tail(self) -> list[str]:
        """The last lines that it said."""
        try:
            with self.log.open(encoding="utf-8", errors="replace") as log:
                return [line.rstrip("\n") for line in deque(log, _TAIL_LINES)]
        except OSError:
            return []

    def _command(self) -> list[str]:
        return [
            *(sys.executable, "-m", "relayd", "serve"),
            *("--state", str(self.state), "--socket", self.socket),
            *("--segment-bytes", str(SEGMENT_BYTES), "--log-format", "console"),
        ]

    async def _answers(self) -> bool:
        try:
            async with connect(self.socket, reconnect=False):
                return True
        except (NotConnectedError, ConnectionLostError):
            return False


def _environment() -> dict[str, str]:
    """The caller's, without what is meant for a daemon of the caller's own."""
    return {name: value for name, value in os.environ.items() if not name.startswith("RELAYD_")}
