"""A limit on the memory of one process, of files it has read and of the kernel's own for it: a cgroup below ours."""

import contextlib
import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.daemon import Daemon

MIB = 1 << 20
_numbers = itertools.count()


def _ours() -> Path | None:
    """The directory of the cgroup (version 1) that we are in, where it may have others below it."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            found = Path("/sys/fs/cgroup/memory") / path.lstrip("/")
            return found if (found / "memory.limit_in_bytes").exists() and os.access(found, os.W_OK) else None
    return None


def limits_memory() -> bool:
    return _ours() is not None


needs_cgroup = pytest.mark.skipif(not limits_memory(), reason="limits memory: needs root and cgroup version 1's memory")


class MemoryLimit:
    """A cgroup; a daemon that it `holds` begins its life there."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def hold(self, daemon: Daemon) -> Daemon:
        daemon.prefix = [*self.enter, *daemon.prefix]
        return daemon

    @property
    def enter(self) -> list[str]:
        """What a command is to be prefixed with."""
        return ["sh", "-c", f'echo $$ >"{self._path}/cgroup.procs" && exec "$@"', "sh"]

    def set(self, size: int) -> None:
        (self._path / "memory.limit_in_bytes").write_text(str(size))

    @property
    def held(self) -> int:
        """What cannot be given back at once: the process's own memory and the kernel's for it, without cached files."""
        fields = dict(line.split() for line in (self._path / "memory.stat").read_text().splitlines())
        return int(fields["total_rss"]) + self.held_by_kernel

    @property
    def held_by_kernel(self) -> int:
        """What the kernel holds for the process, sockets' buffers above all."""
        return int((self._path / "memory.kmem.usage_in_bytes").read_text())

    @property
    def kills(self) -> int:
        """How often the kernel has killed for want of memory."""
        fields = dict(line.split() for line in (self._path / "memory.oom_control").read_text().splitlines())
        return int(fields["oom_kill"])


@contextlib.contextmanager
def memory_limit(size: int) -> Iterator[MemoryLimit]:
    path = _ours() / f"relayd-chaos-{os.getpid()}-{next(_numbers)}"
    path.mkdir()
    try:
        limit = MemoryLimit(path)
        limit.set(size)
        yield limit
    finally:
        _remove(path)


def _remove(path: Path) -> None:
    """A process that was killed leaves a moment later."""
    for process in (path / "cgroup.procs").read_text().split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(process), 9)
    deadline = time.monotonic() + 10
    while True:
        try:
            path.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return
