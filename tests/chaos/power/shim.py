"""What stands between a daemon and the system: it stops it at an exact call, and lies of syncs."""

import atexit
import ctypes
import functools
import mmap
import shutil
import subprocess
from pathlib import Path

from chaos.power.machine import clear_place, make_place

_NUMBERS = ("stop_at", "count", "reached", "write_out", "lying", "lied")


class _Control(ctypes.Structure):
    _fields_ = [
        *[(name, ctypes.c_uint) for name in _NUMBERS],
        ("root", ctypes.c_char * 256),
        ("only", ctypes.c_char * 128),
        ("reached_before", ctypes.c_char * 128),
        ("name", ctypes.c_char * 64),
    ]


def why_not() -> str | None:
    """Why none can be built here; None where it can."""
    return None if shutil.which("gcc") else "there is no gcc to build the shim with"


@functools.cache
def library() -> Path:
    """Built once, and gone with this process."""
    place = make_place()
    atexit.register(clear_place, place)
    source, target = Path(__file__).with_name("shim.c"), place / "shim.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", target, source, "-ldl"], check=True, timeout=60)
    return target


class Shim:
    """Obeyed by daemons whose state is on the file system at `root`."""

    def __init__(self, place: Path, root: Path) -> None:
        self.control = place / "control"
        self.control.write_bytes(bytes(ctypes.sizeof(_Control)))
        with self.control.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), 0)
        self._control = _Control.from_buffer(self._shared)
        self._control.root = bytes(root)

    def reset(self) -> None:
        """Nothing is to happen."""
        for name in _NUMBERS:
            setattr(self._control, name, 0)
        self._control.only = self._control.reached_before = self._control.name = b""

    def stop_at(self, call: int, *, only: str = "", write_out: int = 0) -> None:
        """Right before the n-th changing call from now on (n-th of this text), the daemon stops.

        A call's text is its name and its file's. Where it is an fdatasync, the pages of the file that `write_out` has
        bits of, the last page's the lowest, have reached the disk by themselves.
        """
        self.reset()
        self._control.only, self._control.write_out = only.encode(), write_out
        self._control.stop_at = call

    @property
    def reached(self) -> bool:
        """It has stopped."""
        return bool(self._control.reached)

    @property
    def reached_before(self) -> str:
        """The call that it stopped at, and its file."""
        return self._control.reached_before.decode()

    def lie(self, name: str = "") -> None:
        """Syncs of files called so (of all, without) return at once, with nothing written."""
        self.reset()
        self._control.name, self._control.lying = name.encode(), 1

    @property
    def lied(self) -> int:
        """How many did."""
        return self._control.lied
