"""What an errno of the disk means to callers: the one place (docs/reference/errors.md, "Storage")."""

import errno
from typing import Final

from relayd.protocol.errors import StorageFailedError, StorageFullError

_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NO_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})

_UNSURE: Final = "what was asked for was not answered as done and may be there or not; what has an id, key or sequence"


def lacks_room(error: OSError) -> bool:
    """Whether the disk, a quota or a size limit has no room left; a short write counts as that."""
    return error.errno in _NO_ROOM


def lacks_descriptors(error: OSError) -> bool:
    """Whether the process or the system is out of descriptors, or of memory for them."""
    return error.errno in _NO_DESCRIPTORS


def storage_error(error: OSError, doing: str) -> StorageFullError | StorageFailedError:
    """The error that callers get for `error`; `doing` is what relayd was about, as `appending to relay demo`."""
    if lacks_room(error):
        return StorageFullError(f"{doing}: no room ({_said(error)}); {_UNSURE} can be sent again once there is room")
    return storage_failed_error(error, doing)


def storage_failed_error(error: OSError, doing: str) -> StorageFailedError:
    """The error where the disk failed for whatever reason: a sync that found no room has lost bytes as any other."""
    return StorageFailedError(f"{doing}: the disk failed ({_said(error)}); {_UNSURE} can be sent again")


def _said(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
