"""A daemon of its own for a measurement: started on a temporary directory, watched, stopped."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import relayd


class Daemon:
    """One `relayd serve` over `directory`, which may hold state already."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.socket = str(directory / "s")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> float:
        """Starts it; gives the seconds until it answered."""
        began = time.perf_counter()
        command = [
            sys.executable,
            "-m",
            "relayd",
            "serve",
            "--state",
            str(self.directory / "state"),
            "--socket",
            self.socket,
        ]
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        while True:
            with contextlib.suppress(relayd.RelaydError), relayd.Client(self.socket, reconnect=False):
                return time.perf_counter() - began
            if self._process.poll() is not None:
                raise SystemExit((self.directory / "log").read_text())
            time.sleep(0.002)

    @property
    def rss_bytes(self) -> int:
        """What it has of memory now."""
        assert self._process is not None
        for line in Path(f"/proc/{self._process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no VmRSS")

    def kill(self) -> None:
        """SIGKILL."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM, and waits."""
        self._end(signal.SIGTERM)

    def _end(self, number: int) -> None:
        if self._process is not None:
            os.kill(self._process.pid, number)
            self._process.wait(30)
            self._process = None


@contextlib.contextmanager
def serving(directory: Path) -> Iterator[Daemon]:
    """A started daemon, stopped at the end."""
    daemon = Daemon(directory)
    daemon.start()
    try:
        yield daemon
    finally:
        daemon.stop()
