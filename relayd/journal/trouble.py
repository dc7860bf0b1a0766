"""What an errno of the disk means to callers: the one place (docs/reference/errors.md, "storage_full and storage_failed")."""

import errno
from typing import Final

from relayd.protocol.errors import StorageFailedError, StorageFullError

_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NO_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


def lacks_room(error: OSError) -> bool:
    """Whether the disk, a quota or a size limit has no room left; a short write counts as that."""
    return error.errno in _NO_ROOM


def lacks_descriptors(error: OSError) -> bool:
    """Whether the process or the system is out of descriptors, or of memory for them."""
    return error.errno in _NO_DESCRIPTORS


def storage_error(error: OSError, doing: str) -> StorageFullError | StorageFailedError:
    """The error that callers get for `error`; `doing` is what relayd was about, as `appending to relay demo`."""
    said = error.strerror or str(error) or type(error).__name__
    unsure = "What was asked for was not answered as done, there or not: what carries an id, key or sequence can be sent again"
    if lacks_room(error):
        return StorageFullError(
            f"{doing}: the disk has no room ({said}). {unsure}; make room, service resumes by itself."
        )
    return StorageFailedError(f"{doing}: the disk failed ({said}). {unsure} as it was.")
