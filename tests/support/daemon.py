"""A real daemon in a process of its own: started, killed, stopped, started again."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from support.wire import Wire

REPOSITORY = Path(__file__).resolve().parents[2]


class Daemon:
    """`settings` are flags by their settings' names. `log` holds every line said since the last start."""

    def __init__(self, place: Path, **settings: object) -> None:
        self.place = place
        self.state = place / "state"
        self.socket = place / "s"
        self.settings = {"state": self.state, "socket": self.socket, "log_format": "json", **settings}
        self.prefix: list[str] = []
        self.log: list[dict] = []
        self.process: subprocess.Popen[str] | None = None
        self.seconds_to_serve = 0.0
        self._serving = threading.Event()
        self._reader: threading.Thread | None = None

    # Its life

    def start(self) -> "Daemon":
        """Returns when it serves."""
        self.begin()
        if not self._serving.wait(20) or self.process.poll() is not None:
            raise AssertionError(f"the daemon does not serve (exit status {self.process.poll()}): {self.log}")
        return self

    def begin(self) -> subprocess.Popen:
        """Starts the process, and does not wait for it."""
        flags = [text for name, value in self.settings.items() for text in ("--" + name.replace("_", "-"), str(value))]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("RELAYD_")}
        self.log, self._serving = [], threading.Event()
        began = time.monotonic()
        self.process = self.spawn(flags, environment)
        arguments = (self.process, self.log, self._serving, began)
        self._reader = threading.Thread(target=self._read, args=arguments, daemon=True)
        self._reader.start()
        return self.process

    def spawn(self, flags: list[str], environment: dict[str, str]) -> subprocess.Popen:
        """The process of `relayd serve` with these flags."""
        return subprocess.Popen(
            [*self.prefix, sys.executable, "-m", "relayd", "serve", *flags],
            cwd=REPOSITORY,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _read(self, process: subprocess.Popen, log: list[dict], serving: threading.Event, began: float) -> None:
        for line in process.stderr:
            try:
                said = json.loads(line)
            except ValueError:
                said = {"event": "text", "text": line.rstrip()}
            log.append(said)
            if said.get("event") == "serving":
                self.seconds_to_serve = time.monotonic() - began
                serving.set()
        serving.set()

    def wait(self, seconds: float = 20) -> int:
        """Its exit status, when it has ended by itself."""
        status = self.process.wait(seconds)
        self._reader.join(5)
        self.process.stderr.close()
        return status

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL; returns when it is gone."""
        self.process.kill()
        self.wait()

    def stop(self, seconds: float = 20) -> int:
        """SIGTERM; its exit status."""
        self.process.terminate()
        return self.wait(seconds)

    def end(self) -> None:
        """Whatever state it is in, it is gone after this."""
        if self.process is not None and not self.process.stderr.closed:
            self.process.kill()
            self.wait()

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    # What it says and has

    def connect(self, **more: object) -> Wire:
        """A client."""
        return Wire(str(self.socket), **more)

    def said(self, event: str) -> list[dict]:
        """The log's lines of one event."""
        return [line for line in self.log if line.get("event") == event]

    def until_said(self, event: str, seconds: float = 10) -> dict:
        """The first line of one event, when it has come."""
        until(lambda: self.said(event), seconds, f"the log does not say `{event}`")
        return self.said(event)[0]

    def relay(self, name: str) -> Path:
        return self.state / "relays" / name

    @property
    def descriptors(self) -> int:
        return sum(1 for _ in Path(f"/proc/{self.process.pid}/fd").iterdir())

    @property
    def resident_bytes(self) -> int:
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    @property
    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def until(happened, seconds: float, otherwise: str) -> None:
    """Waits for another process to have done something."""
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.01)


@contextlib.contextmanager
def short_place() -> Iterator[Path]:
    """A directory of its own with a short path: a socket's may have 107 bytes."""
    place = Path(tempfile.mkdtemp(prefix="rd-"))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


@contextlib.contextmanager
def running_daemon(**settings: object) -> Iterator[Daemon]:
    """A daemon that serves."""
    with short_place() as place:
        daemon = Daemon(place, **settings)
        try:
            yield daemon.start()
        finally:
            daemon.end()


__all__ = ["Daemon", "Wire", "running_daemon", "short_place", "signal", "until"]
