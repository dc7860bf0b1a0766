"""A real daemon under strace, the workload it serves, and what strace wrote."""

import contextlib
import re
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from chaos.syscalls import strace_log
from chaos.syscalls.machine import Machine
from chaos.syscalls.strace_log import Call, parse_files
from chaos.syscalls.workload import Workload
from support.daemon import Daemon, short_place, until

SETTINGS = {
    "segment_bytes": 6000,
    "snapshot_bytes": 9000,
    "snapshot_events": 40,
    "tail_bytes": 1024,
    "idle_relay": 0.7,
    "file_threads": 1,
}


class Kill(NamedTuple):
    """SIGKILL at the entry of the `n`-th call of a name in one thread, which is then not made."""

    call: str
    n: int


class Recording(NamedTuple):
    """`place` is where the daemon's files were; `calls` those of all its processes, one after the other."""

    place: str
    calls: list[Call]
    kills: int


def record(directory: Path, asking: Callable[[Workload], None], *kills: Kill, seed: int = 1) -> Recording:
    """Records what `asking` asks, into `directory`: a log for each process, each ended by a kill or, the last, SIGTERM.

    Fails where the model of the files does not show what the daemon's real files hold at the end.
    """
    with short_place() as place:
        daemon = TracedDaemon(place, directory, kills)
        workload = Workload(daemon, seed)
        try:
            daemon.start()
            asking(workload)
            workload.close()
            daemon.stop()
        finally:
            workload.close()
            daemon.end()
        (directory / "place").write_text(str(place))
        recording = load(directory)
        machine = Machine(recording.place)
        for _ in machine.run(recording.calls):
            pass
        machine.matches(place)
        return recording


def load(directory: Path) -> Recording:
    """A recording that was kept."""
    files = sorted(directory.glob("strace.*"))
    return Recording((directory / "place").read_text(), parse_files(files), len(files) - 1)


class TracedDaemon(Daemon):
    """Each start is traced into a file of its own; the first ones die by `kills`, in order."""

    def __init__(self, place: Path, logs: Path, kills: Iterable[Kill]) -> None:
        super().__init__(place, **SETTINGS)
        self._logs = logs
        self._kills = list(kills)
        self._starts = 0

    def start(self) -> Daemon:
        """As often as it is killed while it starts."""
        while True:
            planned = bool(self._kills)
            try:
                return super().start()
            except AssertionError:
                if not planned:
                    raise
                self.wait()

    @property
    def file(self) -> Path:
        return self._logs / f"strace.{self._starts:03}"

    def begin(self):
        self._starts += 1
        self.prefix = ["strace", "-D", "-q", "-o", str(self.file), *strace_log.ARGUMENTS]
        if self._kills:
            kill = self._kills.pop(0)
            self.prefix += ["-e", f"inject={kill.call}:signal=KILL:when={kill.n}"]
        return super().begin()

    def wait(self, seconds: float = 20) -> int:
        """Its tracer stands aside, and writes on for a moment when the daemon has gone."""
        status = super().wait(seconds)
        until(self._log_is_whole, 10, "strace does not end its log")
        return status

    def _log_is_whole(self) -> bool:
        with contextlib.suppress(FileNotFoundError):
            return re.search(rf"^{self.process.pid} +\+\+\+ ", self.file.read_text(), re.MULTILINE) is not None
        return False


STRACE_MISSING = shutil.which("strace") is None
WITHOUT_STRACE = "needs strace: apt-get install strace"
