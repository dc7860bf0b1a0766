"""A computer whose power can be cut: an ext4 file system on a sparse file, and the kernel's own way to stop it dead.

    with a_machine() as machine:
        (machine.root / "file").write_bytes(b"never synced")
        machine.cut(NOTHING_FLUSHED)
        machine.restart()           # unmounted and mounted again: the file is not there

What was written and not synced is in the page cache, which the unmounting drops. About 10 ms a cut.
"""

import contextlib
import ctypes
import fcntl
import os
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

LOG_FLUSHED = 1
"""What ext4's own journal (names, sizes, blocks) held in memory is still written; data is not."""
NOTHING_FLUSHED = 2

_SHUTDOWN = 0x8004587D
_WAIT_AND_WRITE = 7
_DETACH = 2
_PREFIX = "relayd-power"
_libc = ctypes.CDLL(None, use_errno=True)


def why_not() -> str | None:
    """Why no machine can be made here; None where it can."""
    if os.geteuid() != 0:
        return "only root mounts file systems"
    for tool in ("mkfs.ext4", "mount", "umount", "losetup"):
        if shutil.which(tool) is None:
            return f"there is no {tool}"
    try:
        with a_machine():
            return None
    except (OSError, subprocess.CalledProcessError) as error:
        return f"no ext4 on a loop device here: {getattr(error, 'stderr', None) or error}"


class Machine:
    """`root` is where the file system's own directory stands, `image` the file that is its disk.

    `disk`: where the image is made, a directory of its own otherwise. `options` are mount options.
    """

    def __init__(self, place: Path, *, options: str = "", disk: Path | None = None, mib: int = 64) -> None:
        self.image = (disk or place) / "disk.ext4"
        self.root = place / "root"
        self.options = options
        self.cuts = 0
        self._mib = mib

    def make(self) -> None:
        """A fresh, empty file system, mounted."""
        self.root.mkdir(exist_ok=True)
        with self.image.open("wb") as image:
            image.truncate(self._mib << 20)
        # All of its tables and its journal are written now, so that later only data takes new room of the image.
        _run("mkfs.ext4", "-q", "-F", "-b", "4096", "-N", "4096", "-J", "size=4", "-O", "^resize_inode",
             "-E", "lazy_itable_init=0,lazy_journal_init=0", str(self.image))  # fmt: skip
        self.mount()

    def take(self, image: Path) -> None:
        """A copy of this disk, mounted."""
        self.root.mkdir(exist_ok=True)
        _run("cp", "--sparse=always", str(image), str(self.image))
        self.mount()

    def restore(self, image: Path) -> None:
        """Another disk in its place: a copy of this one."""
        self.unmount()
        self.take(image)

    def mount(self) -> None:
        _run("mount", "-t", "ext4", "-o", ",".join(filter(None, ("loop", self.options))), str(self.image), self.root)

    def cut(self, flag: int) -> None:
        """The power is gone: nothing that is not on the disk by now will ever be, whoever goes on writing."""
        descriptor = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(descriptor, _SHUTDOWN, struct.pack("I", flag))
        finally:
            os.close(descriptor)
        self.cuts += 1

    def unmount(self) -> None:
        """Drops everything that was in memory only. Nobody may have a file of it open any more."""
        deadline = time.monotonic() + 10
        while _libc.umount2(os.fsencode(self.root), 0) != 0:
            if time.monotonic() > deadline:
                raise OSError(ctypes.get_errno(), "the file system cannot be unmounted", str(self.root))
            time.sleep(0.005)
        # A loop device still there would give the old, stopped file system to the next mount.
        while _loops_under(self.image.parent):
            if time.monotonic() > deadline:
                raise OSError(f"the loop device of {self.image} stays")
            time.sleep(0.002)

    def restart(self) -> None:
        """The power is back."""
        self.unmount()
        self.mount()

    def copy_image(self, target: Path) -> Path:
        """A copy of the disk as it is; only between `unmount` and `mount`."""
        _run("cp", "--sparse=always", str(self.image), str(target))
        return target


def write_out(file: Path, offset: int, size: int) -> None:
    """Has the kernel write these bytes of a file to the disk, and none of its others: what it may do at any time."""
    descriptor = os.open(file, os.O_RDWR)
    try:
        arguments = ctypes.c_int(descriptor), ctypes.c_int64(offset), ctypes.c_int64(size), _WAIT_AND_WRITE
        if _libc.sync_file_range(*arguments) != 0:
            raise OSError(ctypes.get_errno(), "sync_file_range", str(file))
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def a_machine(**how: object) -> Iterator[Machine]:
    """A machine with an empty disk; whatever happens, nothing of it stays."""
    with a_place() as place:
        machine = Machine(place, **how)
        machine.make()
        yield machine


@contextlib.contextmanager
def a_place() -> Iterator[Path]:
    """A directory below which anything may be mounted."""
    place = make_place()
    try:
        yield place
    finally:
        clear_place(place)


def make_place() -> Path:
    """One that is cleared by whoever makes the next, where its maker, whom its name names, is gone."""
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}-*-*-*"):
        pid, born = left.name.removeprefix(f"{_PREFIX}-").split("-")[:2]
        if _born(int(pid)) != born:
            clear_place(left)
    return Path(tempfile.mkdtemp(prefix=f"{_PREFIX}-{os.getpid()}-{_born(os.getpid())}-"))


def mount_memory(where: Path, size: int) -> None:
    """A tmpfs of so many bytes, on a directory below a place."""
    where.mkdir()
    _run("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(where))


def _run(*command: object) -> None:
    subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True, timeout=60)


def _born(pid: int) -> str | None:
    """When a process was started, in the kernel's ticks: with its number, that names it for ever."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
    except OSError:
        return None


def clear_place(place: Path) -> None:
    """Unmounts what is mounted below a place, the last first, gives its loop devices back, removes it."""
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    mounts = [mounted.encode().decode("unicode_escape") for mounted in mounts]  # a space is \\040 there
    for mounted in reversed(mounts):
        if mounted.startswith(f"{place}/") and _libc.umount2(os.fsencode(mounted), 0) != 0:
            _libc.umount2(os.fsencode(mounted), _DETACH)
    for loop in _loops_under(place):
        subprocess.run(["losetup", "-d", f"/dev/{loop}"], check=False, capture_output=True, timeout=60)
    shutil.rmtree(place, ignore_errors=True)


def _loops_under(place: Path) -> list[str]:
    """The loop devices whose files are below a place."""
    found = []
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):  # it may go at any time
            if backing.read_text().startswith(f"{place}/"):
                found.append(backing.parts[3])
    return found
