"""The one way to files; everything above takes a `Directory` (docs/reference/journal.md, "Layout").

`Directory` and `File` are the seam: relayd/journal/real_storage.py gives the real ones, tests give simulated ones.
Every call blocks, and raises OSError as the system gave it; what an errno means to callers is decided in
relayd/journal/trouble.py. Nothing is opened through a link, and every file must be regular and owned by the daemon's
user.
"""

import errno
from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

from relayd.protocol.event import Buffer


class ShortWriteError(OSError):
    """The system took fewer bytes of a write than it was given: room ran out in the middle (errno ENOSPC)."""

    def __init__(self, written: int, wanted: int) -> None:
        super().__init__(errno.ENOSPC, f"{written} of {wanted} bytes were taken")
        self.written = written
        self.wanted = wanted


class ForeignFileError(OSError):
    """What stands under a name is a link, no regular file or directory, or another user's (errno EPERM)."""

    def __init__(self, path: str, what: str) -> None:
        super().__init__(errno.EPERM, what, path)


class Identity(NamedTuple):
    """What a name names: device and inode."""

    device: int
    inode: int


class Entry(NamedTuple):
    """One name of a directory. `kind` is what stands there, without following a link."""

    name: str
    kind: Literal["file", "directory", "other"]


class File(Protocol):
    """An open regular file; every write says where."""

    @property
    def identity(self) -> Identity:
        """Device and inode, as they were at opening."""
        ...

    def size(self) -> int:
        """Bytes in the file now."""
        ...

    def read(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes at `offset`; fewer only where the file ends."""
        ...

    def write(self, buffers: Sequence[Buffer], offset: int) -> None:
        """Writes all `buffers`, one after the other, at `offset`, with one call.

        Raises ShortWriteError (an OSError with ENOSPC) where the system took fewer bytes; what it took is in the file.
        """
        ...

    def sync(self) -> None:
        """Data, and what is needed to read it back, are on disk when this returns (fdatasync)."""
        ...

    def truncate(self, size: int) -> None:
        """Cuts the file to `size` bytes."""
        ...

    def close(self) -> None:
        """Gives the descriptor back; a second call does nothing."""
        ...


class Directory(Protocol):
    """An open directory; names are single components, never paths."""

    @property
    def path(self) -> str:
        """The absolute path it was opened by, for messages and for `still_there`."""
        ...

    @property
    def identity(self) -> Identity:
        """Device and inode, as they were at opening."""
        ...

    def entries(self) -> list[Entry]:
        """All names in it, in order of name."""
        ...

    def open(self, name: str, mode: Literal["read", "update", "create"]) -> File:
        """Opens a file.

        `read` only reads; `update` reads and writes one that exists; `create` makes it, and fails where it exists.
        For `update`, what memory holds of it and takes to be on disk is let go of: after a failed sync it is not there.
        Raises FileNotFoundError, FileExistsError, ForeignFileError (a link, no regular file, another owner), OSError.
        """
        ...

    def directory(self, name: str) -> "Directory":
        """Opens a subdirectory, never through a link."""
        ...

    def make_directory(self, name: str) -> None:
        """Makes a subdirectory, mode 0700."""
        ...

    def stat(self, name: str) -> tuple[Identity, int] | None:
        """Identity and size of what the name names now; None where nothing does."""
        ...

    def replace(self, name: str, target: str) -> None:
        """Renames within this directory; an existing target file is replaced."""
        ...

    def unlink(self, name: str) -> None:
        """Removes a file's name."""
        ...

    def remove_tree(self, name: str) -> None:
        """Removes a subdirectory and all below it, without following a link."""
        ...

    def sync(self) -> None:
        """Names made, renamed and removed in it so far are on disk when this returns."""
        ...

    def lock(self) -> bool:
        """Takes an exclusive flock on this directory's own descriptor, without waiting; False: another holds it."""
        ...

    def still_there(self) -> bool:
        """Whether `path` still names this very directory."""
        ...

    def close(self) -> None:
        """Gives the descriptor (and with it the lock) back; a second call does nothing."""
        ...
