"""Trying whether the disk has room again (docs/reference/journal.md, "When a write or a sync fails")."""

import contextlib
from typing import Final

from relayd.journal.active import open_fresh
from relayd.journal.names import PROBE
from relayd.journal.storage import Directory
from relayd.journal.trouble import lacks_descriptors, lacks_room
from relayd.protocol.limits import KIB

_PATTERN: Final = bytes(range(1, 256)) * 257
_PIECE_BYTES: Final = 64 * KIB
"""Not zeros, which some file systems keep without room."""


def has_room(relay: Directory, size: int) -> bool:
    """Whether `size` bytes can be written and synced in a relay's directory. Raises OSError for other trouble."""
    try:
        file = open_fresh(relay, PROBE)
        try:
            for offset in range(0, size, _PIECE_BYTES):
                file.write((memoryview(_PATTERN)[: min(_PIECE_BYTES, size - offset)],), offset)
            file.sync()
        finally:
            file.close()
    except OSError as error:
        if not (lacks_room(error) or lacks_descriptors(error)):
            raise
        return False
    finally:
        with contextlib.suppress(OSError):
            relay.unlink(PROBE)
    return True
