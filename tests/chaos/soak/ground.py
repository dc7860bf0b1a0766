"""Where a soak's state lies: on a tmpfs of its own, which can be made full, where that can be mounted."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from chaos.environment.mounts import Tmpfs, tmpfs

SIZE_MIB = 384


class Ground(NamedTuple):
    """A directory; `room` makes it full and frees it, None where it cannot be."""

    path: Path
    room: Tmpfs | None

    @property
    def why_not_full(self) -> str | None:
        return None if self.room is not None else "only root can mount the tmpfs that is made full"


@contextlib.contextmanager
def a_ground(path: Path) -> Iterator[Ground]:
    """A directory at `path`; nothing of it stays."""
    path.mkdir(mode=0o700)
    if os.geteuid() != 0 or shutil.which("mount") is None:
        yield Ground(path, None)
        return
    with tmpfs(path, f"size={SIZE_MIB}m") as room:
        yield Ground(path, room)
