"""Files that the offline tools write for their user, outside of any state directory.

Written as FILE.new, synced, renamed, the directory synced: FILE is there whole, or as it was.
"""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from relayd.journal.names import NEW

_MODE: Final = 0o600
_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def write_file(path: str, chunks: Iterable[bytes]) -> int:
    """Writes the file whole, over one that is there; its bytes. Raises OSError, and whatever `chunks` raises."""
    target = Path(path)
    unfinished = target.with_name(target.name + NEW)
    unfinished.unlink(missing_ok=True)
    size = 0
    try:
        with os.fdopen(os.open(unfinished, _FLAGS, _MODE), "wb") as file:
            for chunk in chunks:
                file.write(chunk)
                size += len(chunk)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        raise
    _sync_directory(target.parent)
    return size


def holds_other(path: str, chunks: Iterable[bytes]) -> bool:
    """Whether a file is there whose bytes are not those of `chunks`. Raises OSError."""
    try:
        with Path(path).open("rb") as file:
            return any(file.read(len(chunk)) != chunk for chunk in chunks) or file.read(1) != b""
    except FileNotFoundError:
        return False


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
