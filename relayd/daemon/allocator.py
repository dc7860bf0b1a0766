"""Keeps memory flat while many threads read pages (docs/internals/architecture.md, "Memory").

glibc gives threads heaps of their own and raises, by itself, the size from which a block goes back to the system when
it is freed; pages of up to a MiB, made in one thread and freed in another, then stay. Ten readers side by side, of any
history: 132 MiB before, 58 MiB with these three limits.
"""

import ctypes
from typing import Final

from relayd.protocol.limits import KIB, MIB

_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8


def keep_memory_flat() -> None:
    """Sets the limits for this process, before it has threads; does nothing where the C library has none."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    for parameter, value in ((_ARENA_MAX, 1), (_MMAP_THRESHOLD, 128 * KIB), (_TRIM_THRESHOLD, MIB)):
        mallopt(parameter, value)
