"""Mounts of one's own: a tmpfs that is filled, shrunk, grown and made read-only, and a second way to a directory."""

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

KIB = 1024
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts file systems, limits and users: needs root")


def _call(*words: object) -> None:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=20, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(map(str, words))}: {done.stderr.strip()}")


class Tmpfs:
    """A mounted tmpfs; sizes are in KiB."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def remount(self, options: str) -> None:
        """Raises OSError where the system refuses: too small for what is there, or in use."""
        _call("mount", "-o", f"remount,{options}", self.path)

    @property
    def free_bytes(self) -> int:
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize

    @property
    def used_bytes(self) -> int:
        found = os.statvfs(self.path)
        return (found.f_blocks - found.f_bfree) * found.f_frsize

    def fill(self, leave: int = 0) -> None:
        """Takes all room but `leave` bytes (and what a page rounds) into a file of its own."""
        with (self.path / "filler").open("ab", buffering=0) as filler, contextlib.suppress(OSError):
            while (free := self.free_bytes - leave) > 0:
                if not filler.write(bytes(min(free, 1 << 20))):
                    break

    def free(self) -> None:
        """Gives all of that room back."""
        (self.path / "filler").unlink(missing_ok=True)

    def fill_inodes(self, leave: int = 0) -> None:
        """Takes every name that can still be made, but `leave`."""
        where = self.path / "names"
        where.mkdir(exist_ok=True)
        with contextlib.suppress(OSError):
            while os.statvfs(self.path).f_ffree > leave:
                descriptor, _ = tempfile.mkstemp(dir=where)
                os.close(descriptor)

    def free_inodes(self) -> None:
        for entry in (self.path / "names").iterdir():
            entry.unlink()


@contextlib.contextmanager
def tmpfs(path: Path, options: str) -> Iterator[Tmpfs]:
    path.mkdir(exist_ok=True)
    _call("mount", "-t", "tmpfs", "-o", f"mode=0700,{options}", "relayd-chaos", path)
    try:
        yield Tmpfs(path)
    finally:
        # A daemon that still runs is ended by its fixture; its files go when it does.
        _call("umount", "--lazy", path)


@contextlib.contextmanager
def bind_mount(source: Path, path: Path) -> Iterator[Path]:
    path.mkdir()
    _call("mount", "--bind", source, path)
    try:
        yield path
    finally:
        _call("umount", "--lazy", path)
