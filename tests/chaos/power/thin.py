"""A disk that promises more than it has: its image lies in a small memory file system, and takes room as data comes.

When that is full, a write into the page cache still succeeds, and the sync that would bring it to the disk fails: once.
The next one finds the page marked clean, and says that all is well. Only data takes room: the file system's own tables
and journal have theirs from the beginning.

A write that begins where there is room and ends where there is none the loop device takes for done; what is to fail
therefore begins on a page of its own.
"""

import fcntl
import os
import struct
from pathlib import Path

from chaos.power.machine import Machine, mount_memory

_CHECKPOINT = 0x4004662B
_TRIM = 0xC0185879
_DISK = 16 << 20
_ROOM = 20 << 20


class ThinMachine(Machine):
    """`fill` takes the room that is left, `free` gives it back."""

    def __init__(self, place: Path, *, options: str = "") -> None:
        self._memory = place / "memory"
        mount_memory(self._memory, _ROOM)
        super().__init__(place, options=options, disk=self._memory, mib=_DISK >> 20)

    def make(self) -> None:
        super().make()
        self.unmount()
        with self.image.open("r+b") as image:
            os.posix_fallocate(image.fileno(), 0, _DISK)
        self.mount()
        self._ask(_TRIM, struct.pack("QQQ", 0, 1 << 60, 0))  # what is free in it takes no room of the image's

    def _ask(self, request: int, argument: bytes) -> None:
        root = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(root, request, argument)
        finally:
            os.close(root)

    def fill(self) -> None:
        """Nothing is left of the room. What was made so far has its own, and is brought there: directories too."""
        self._ask(_CHECKPOINT, struct.pack("I", 0))
        with (self._memory / "ballast").open("wb", buffering=0) as ballast:
            try:
                while True:
                    ballast.write(bytes(4096))
            except OSError:
                return

    def free(self) -> None:
        (self._memory / "ballast").unlink()
