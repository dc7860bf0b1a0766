"""Daemons from a zygote (tests/chaos/power/zygote.py), which look to tests as tests/support/daemon.py's."""

import atexit
import contextlib
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

from chaos.power.shim import Shim, library
from support.daemon import Daemon, until


@functools.cache
def _zygote() -> socket.socket:
    """Where the one of this process is asked; it ends with this process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("zygote.py")), str(theirs.fileno())],
            env={**os.environ, "LD_PRELOAD": str(library())},
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
    atexit.register(process.wait, 20)
    atexit.register(ours.close)
    return ours


def _fork(arguments: list[str], environment: dict[str, str], control: Path) -> "Forked":
    """A process that runs relayd with these arguments, under the shim that obeys `control`."""
    log, their_log = os.pipe()
    told, their_told = os.pipe()
    wanted = {"arguments": arguments, "environment": environment, "control": str(control)}
    socket.send_fds(_zygote(), [json.dumps(wanted).encode()], [their_log, their_told])
    os.close(their_log)
    os.close(their_told)
    return Forked(log, told)


class Forked:
    """What is used of subprocess.Popen."""

    def __init__(self, log: int, told: int) -> None:
        self.stderr = os.fdopen(log, errors="replace")
        self._told = os.fdopen(told)
        self.pid = int(self._told.readline())
        self._process = os.pidfd_open(self.pid)
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._told], [], [], 0)[0]:
            self._take()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._told], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("relayd", timeout)
            self._take()
        return self.returncode

    def _take(self) -> None:
        self.returncode = os.waitstatus_to_exitcode(int(self._told.readline()))
        self._told.close()
        os.close(self._process)

    def send_signal(self, number: int) -> None:
        if self.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError):  # it has ended, and its keeper is about to tell
            signal.pidfd_send_signal(self._process, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


class ForkedDaemon(Daemon):
    """A daemon of the zygote's."""

    def __init__(self, place: Path, shim: Shim, **settings: object) -> None:
        super().__init__(place, **settings)
        self.state = Path(self.settings["state"])
        self._shim = shim

    def spawn(self, flags: list[str], environment: dict[str, str]) -> Forked:
        return _fork(["serve", *flags], environment, self._shim.control)

    def until_serving_or_gone(self) -> bool:
        """Whether it came to serve."""
        assert self._serving.wait(20), "neither served nor ended"
        return bool(self.said("serving"))

    def process_kill(self) -> None:
        """Kills it, and does not wait for its end."""
        self.process.kill()

    def freeze(self) -> None:
        """Stops it: when this returns, no thread of it does anything more, but end a system call that it is in."""
        self.signal(signal.SIGSTOP)
        tasks = Path(f"/proc/{self.process.pid}/task")
        until(lambda: all(_is_still(task) for task in tasks.iterdir()), 10, "the daemon does not stop")


def _is_still(task: Path) -> bool:
    """Stopped, or in a call that cannot be interrupted, after which it stops."""
    try:
        return (task / "stat").read_text().rsplit(")", 1)[1].split()[0] in "TDZX"
    except OSError:
        return True
