"""A real daemon that stops at its calls, started by the zygote: Daemon of tests/support, with faults.

with zygote() as zygote, short_place() as place:
    daemon = StoppingDaemon(zygote, place, segment_bytes=4096)
    daemon.start(Kill(At("fdatasync *", 3)))
"""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from chaos.calls import notify
from chaos.calls.faults import Fault
from chaos.calls.supervisor import Supervisor
from support.daemon import REPOSITORY, Daemon


class Zygote:
    """The process that daemons are copies of. One at a time asks it."""

    def __init__(self) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # Its end of the channel gets number 3 in the child, whatever it has here.
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _START, str(theirs.fileno()), str(Path(__file__).with_name("zygote.py"))],
                cwd=REPOSITORY,
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        self._lock = threading.Lock()
        self._channel.settimeout(20)
        assert json.loads(self._channel.recv(1 << 16))["ready"] == self._process.pid

    def _ask(self, request: dict, descriptors: list[int]) -> dict:
        with self._lock:
            socket.send_fds(self._channel, [json.dumps(request).encode()], descriptors)
            return json.loads(self._channel.recv(1 << 16))

    def fork(self, request: dict, errors: int, control: int, go: int) -> int:
        """A new daemon's pid."""
        return self._ask(request, [errors, control, go])["pid"]

    def reap(self, pid: int) -> int:
        """The exit status of a daemon that has ended."""
        return self._ask({"reap": pid}, [])["status"]

    def close(self) -> None:
        self._channel.close()
        self._process.wait(20)


_START = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
if int(sys.argv[1]) != 3: os.close(int(sys.argv[1]))
sys.argv = sys.argv[2:]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
import runpy
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@contextlib.contextmanager
def zygote() -> Iterator[Zygote]:
    """One that is gone at the end."""
    started = Zygote()
    try:
        yield started
    finally:
        started.close()


class Copy:
    """A copy of the zygote, to be handled as a subprocess.Popen."""

    def __init__(self, zygote: Zygote, pid: int, errors: IO[str]) -> None:
        self.pid = pid
        self.stderr = errors
        self._zygote = zygote
        self._handle = os.pidfd_open(pid)
        self._status: int | None = None

    def poll(self) -> int | None:
        return self._look(0)

    def _look(self, seconds: float) -> int | None:
        if self._status is None and select.select([self._handle], [], [], seconds)[0]:
            self._status = self._zygote.reap(self.pid)
            os.close(self._handle)
        return self._status

    def wait(self, seconds: float) -> int:
        status = self._look(seconds)
        if status is None:
            raise subprocess.TimeoutExpired(f"daemon {self.pid}", seconds)
        return status

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


class StoppingDaemon(Daemon):
    """`supervisor` decides the calls of the one that runs; None where it was told to stop at none."""

    def __init__(
        self, zygote: Zygote, place: Path, *, reads: bool = False, cold: bool = False, **settings: object
    ) -> None:
        super().__init__(place, **settings)
        self.supervisor: Supervisor | None = None
        self.zygote = zygote
        self._reads = reads
        self._cold = cold
        self._faults: tuple[Fault, ...] | None = ()

    def start(self, *faults: Fault, stops: bool = True) -> "StoppingDaemon":
        """Returns when it serves. `stops`: at its calls; else it runs as ever."""
        self._faults = faults if stops else None
        super().start()
        return self

    def begin_with(self, *faults: Fault) -> None:
        """Starts it and does not wait."""
        self._faults = faults
        self.begin()

    def spawn(self, flags: list[str], environment: dict[str, str]) -> Copy:
        stops = self._faults is not None
        calls = (notify.EVERY if self._reads else notify.CHANGING) if stops else ()
        request = {
            "arguments": ["serve", *flags],
            "environment": environment,
            "calls": calls,
            "reads": self._reads,
            "cold": self._cold,
        }
        errors, errors_end = os.pipe()
        control, control_end = os.pipe()
        go_end, go = os.pipe()
        pid = self.zygote.fork(request, errors_end, control_end, go_end)
        for descriptor in (errors_end, control_end, go_end):
            os.close(descriptor)
        self.supervisor = None
        if stops:
            listener = notify.take_descriptor(pid, int(os.read(control, 20)))
            self.supervisor = Supervisor(pid, listener, self.place, self._faults or ())
            os.write(go, b"!")
        os.close(control)
        os.close(go)
        return Copy(self.zygote, pid, os.fdopen(errors, encoding="utf-8"))

    def wait(self, seconds: float = 20) -> int:
        status = super().wait(seconds)
        if self.supervisor is not None:
            self.supervisor.join()
        return status
