"""A daemon's clocks, shifted at any moment while it runs: a small library built by the machine's compiler (clock.c)."""

import shutil
import struct
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest
from support.daemon import Daemon

needs_compiler = pytest.mark.skipif(
    shutil.which("gcc") is None, reason="builds a library that shifts clocks: needs gcc"
)
DAY = 86_400.0


@cache
def _build() -> Path:
    # Kept for the life of the test process, which every test that shifts a clock shares.
    _build.directory = tempfile.TemporaryDirectory(prefix="relayd-clock-")
    library = Path(_build.directory.name) / "clock.so"
    source = Path(__file__).with_name("clock.c")
    command = ["gcc", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True, timeout=60)
    return library


class Clocks:
    """Shifts in seconds, of the wall clock and of the monotonic one."""

    def __init__(self, place: Path) -> None:
        self._file = place / "clock"
        self._shift = [0.0, 0.0]
        self._write()

    def rule(self, daemon: Daemon) -> Daemon:
        daemon.prefix = ["env", f"LD_PRELOAD={_build()}", f"CHAOS_CLOCK={self._file}", *daemon.prefix]
        return daemon

    def set_wall(self, seconds: float) -> None:
        """From now on the wall clock is so much ahead of the real one."""
        self._shift[0] = seconds
        self._write()

    def pass_time(self, seconds: float) -> None:
        """So much time passes at once, on both clocks."""
        self._shift = [shift + seconds for shift in self._shift]
        self._write()

    def _write(self) -> None:
        content = struct.pack("=qq", *(int(shift * 1_000_000_000) for shift in self._shift))
        if self._file.exists():
            with self._file.open("r+b", buffering=0) as file:
                file.write(content)
        else:
            self._file.write_bytes(content)
