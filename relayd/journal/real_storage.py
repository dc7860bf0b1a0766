"""The real files behind relayd/journal/storage.py, which documents the methods.

Names are opened relative to an open directory, never through a link.
"""

# ruff: noqa: D102 - each method is documented where the seam states it

import contextlib
import errno
import fcntl
import os
import shutil
import stat as modes
import threading
from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeVar

from relayd.journal.storage import Entry, ForeignFileError, Identity, ShortWriteError
from relayd.protocol.event import Buffer
from relayd.protocol.limits import MIB

_T = TypeVar("_T")

FILE_MODE: Final = 0o600
DIRECTORY_MODE: Final = 0o700
RESERVE_DESCRIPTORS: Final = 16
"""Spare descriptors per state directory: a rotation, a page read and a sealing each take few, and give them back."""

_READ_BYTES_MAX: Final = 8 * MIB
_BUFFERS_MAX: Final = os.sysconf("SC_IOV_MAX")
# Without O_NONBLOCK, opening a fifo that was put in a file's place would wait for its other end.
_SAFELY: Final = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_FLAGS: Final = {
    "read": os.O_RDONLY | _SAFELY,
    "update": os.O_RDWR | _SAFELY,
    "create": os.O_RDWR | os.O_CREAT | os.O_EXCL | _SAFELY,
}
_DIRECTORY_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NO_DESCRIPTOR: Final = frozenset({errno.EMFILE, errno.ENFILE})
_NOT_A_FILE: Final = {
    errno.ELOOP: "is a link",
    errno.EISDIR: "is a directory",
    errno.ENXIO: "is no regular file",
    errno.ENOTDIR: "is no directory",
}


class Reserve:
    """Descriptors held back, so that storage still opens files when clients have used up the rest. Thread-safe."""

    def __init__(self, size: int = RESERVE_DESCRIPTORS) -> None:
        self._size = size
        self._spare: list[int] = []
        self._lock = threading.Lock()
        self.refill()

    def refill(self) -> None:
        """Takes back what was given up, as far as the system lets it."""
        with self._lock:
            while len(self._spare) < self._size:
                try:
                    self._spare.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
                except OSError:
                    return

    def opening(self, call: Callable[[], _T]) -> _T:
        """What `call` returns; each time it finds no descriptor, one of the reserve is given up for it first."""
        while True:
            try:
                return call()
            except OSError as error:
                if error.errno not in _NO_DESCRIPTOR or not self._give_up():
                    raise

    def _give_up(self) -> bool:
        with self._lock:
            if not self._spare:
                return False
            os.close(self._spare.pop())
            return True

    def close(self) -> None:
        """Gives the whole reserve up for good."""
        with self._lock:
            self._size = 0
            while self._spare:
                os.close(self._spare.pop())


def _checked(descriptor: int, path: str, *, directory: bool) -> Identity:
    """The identity of what was opened. Raises ForeignFileError, OSError; then the descriptor is closed."""
    try:
        status = os.fstat(descriptor)
        if not (modes.S_ISDIR if directory else modes.S_ISREG)(status.st_mode):
            raise ForeignFileError(path, "is no directory" if directory else "is no regular file")
        if status.st_uid != os.geteuid():
            foreign = f"belongs to user {status.st_uid}, not to {os.geteuid()}, whom relayd runs as"
            raise ForeignFileError(path, foreign)
        return Identity(status.st_dev, status.st_ino)
    except OSError:
        os.close(descriptor)
        raise


class RealFile:
    """An open regular file of ours."""

    def __init__(self, descriptor: int, identity: Identity, reserve: Reserve) -> None:
        self._descriptor = descriptor
        self._reserve = reserve
        self.identity = identity

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def read(self, size: int, offset: int) -> bytes:
        parts: list[bytes] = []
        while size > 0:
            # A size may come from the disk: memory is taken as the file proves to have the bytes.
            part = os.pread(self._descriptor, min(size, _READ_BYTES_MAX), offset)
            if not part:
                break
            parts.append(part)
            size -= len(part)
            offset += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def write(self, buffers: Sequence[Buffer], offset: int) -> None:
        if len(buffers) > _BUFFERS_MAX:
            buffers = (b"".join(buffers),)
        wanted = sum(map(len, buffers))
        written = os.pwritev(self._descriptor, buffers, offset)
        if written != wanted:
            raise ShortWriteError(written, wanted)

    def sync(self) -> None:
        os.fdatasync(self._descriptor)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
            self._reserve.refill()


class RealDirectory:
    """An open directory of ours; `path` is absolute. The one that `holds_reserve` ends it when it is closed."""

    def __init__(
        self, descriptor: int, path: str, identity: Identity, reserve: Reserve, *, holds_reserve: bool = False
    ) -> None:
        self._descriptor = descriptor
        self._reserve = reserve
        self._holds_reserve = holds_reserve
        self.path = path
        self.identity = identity

    def _inside(self, name: str) -> str:
        if "/" in name or name in {"", ".", ".."}:
            raise ValueError(f"{name!r} is no name of a directory's entry")
        return os.path.join(self.path, name)  # noqa: PTH118 - a name is a str all the way

    def entries(self) -> list[Entry]:
        with self._reserve.opening(lambda: os.scandir(self._descriptor)) as listing:
            return sorted(Entry(entry.name, _kind(entry)) for entry in listing)

    def open(self, name: str, mode: Literal["read", "update", "create"]) -> RealFile:
        path = self._inside(name)
        descriptor = self._open(path, name, _FLAGS[mode])
        identity = _checked(descriptor, path, directory=False)
        if mode == "update":
            # A sync that failed leaves pages that look clean. ext4 takes a write over such a page for one to a place
            # that the page has, and syncs it: the file goes on reading as zeros there after a power cut.
            with contextlib.suppress(OSError):
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        return RealFile(descriptor, identity, self._reserve)

    def directory(self, name: str) -> "RealDirectory":
        path = self._inside(name)
        descriptor = self._open(path, name, _DIRECTORY_FLAGS | os.O_NOFOLLOW)
        return RealDirectory(descriptor, path, _checked(descriptor, path, directory=True), self._reserve)

    def _open(self, path: str, name: str, flags: int) -> int:
        try:
            return self._reserve.opening(lambda: os.open(name, flags, FILE_MODE, dir_fd=self._descriptor))
        except OSError as error:
            foreign = _NOT_A_FILE.get(error.errno or 0)
            if foreign is None:
                raise
            raise ForeignFileError(path, foreign) from error

    def make_directory(self, name: str) -> None:
        self._inside(name)
        os.mkdir(name, DIRECTORY_MODE, dir_fd=self._descriptor)

    def stat(self, name: str) -> tuple[Identity, int] | None:
        try:
            status = os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return None
        return Identity(status.st_dev, status.st_ino), status.st_size

    def replace(self, name: str, target: str) -> None:
        self._inside(name)
        self._inside(target)
        os.replace(name, target, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)

    def unlink(self, name: str) -> None:
        self._inside(name)
        os.unlink(name, dir_fd=self._descriptor)

    def remove_tree(self, name: str) -> None:
        self._inside(name)
        self._reserve.opening(lambda: shutil.rmtree(name, dir_fd=self._descriptor))

    def sync(self) -> None:
        os.fsync(self._descriptor)

    def lock(self) -> bool:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    @property
    def reserve(self) -> Reserve:
        """What all that is opened from here shares."""
        return self._reserve

    @property
    def is_writable_by_others(self) -> bool:
        """Whether its mode lets anybody but its owner make, rename and remove names in it."""
        return bool(os.fstat(self._descriptor).st_mode & (modes.S_IWGRP | modes.S_IWOTH))

    def still_there(self) -> bool:
        try:
            status = os.stat(self.path)  # noqa: PTH116 - as in _inside
        except (FileNotFoundError, NotADirectoryError):
            return False
        return Identity(status.st_dev, status.st_ino) == self.identity

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
            if self._holds_reserve:
                self._reserve.close()
            self._reserve.refill()


def _kind(entry: os.DirEntry[str]) -> Literal["file", "directory", "other"]:
    if entry.is_file(follow_symlinks=False):
        return "file"
    return "directory" if entry.is_dir(follow_symlinks=False) else "other"


def open_state_directory(path: str, *, make: bool = False) -> RealDirectory:
    """Opens the directory at `path`, which may itself be a link; all below it is opened without following any.

    `make`: where nothing stands there it is made first, mode 0700, with the parents it lacks, and their names synced.
    Every directory and file opened from it shares one reserve of descriptors, until this directory is closed.
    Raises ForeignFileError (no directory, another owner), FileNotFoundError, OSError.
    """
    path = os.path.abspath(path)  # noqa: PTH100 - Path.resolve would follow links, and `still_there` must ask by this path
    if make:
        _make_directories(path)
    reserve = Reserve()
    try:
        descriptor = os.open(path, _DIRECTORY_FLAGS)
        identity = _checked(descriptor, path, directory=True)
        return RealDirectory(descriptor, path, identity, reserve, holds_reserve=True)
    except NotADirectoryError as error:
        reserve.close()
        raise ForeignFileError(path, "is no directory") from error
    except OSError:
        reserve.close()
        raise


def _make_directories(path: str) -> None:
    parent = os.path.dirname(path)  # noqa: PTH120 - as in open_state_directory
    if os.path.isdir(path) or parent == path:  # noqa: PTH112 - as in open_state_directory
        return
    _make_directories(parent)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, DIRECTORY_MODE)  # noqa: PTH102 - as in open_state_directory
    descriptor = os.open(parent, _DIRECTORY_FLAGS)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
