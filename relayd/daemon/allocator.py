"""Keeps memory flat while many threads read pages (docs/internals/architecture.md, "Memory").

glibc gives threads heaps of their own; pages of up to a MiB, made in one thread and freed in another, then stay. Ten
readers side by side, of any history: 132 MiB before, 67 MiB with one heap and these thresholds. Lower ones (blocks of
128 KiB back to the system at once) give 57 MiB and cost a replay a third of its rate, in page faults.
"""

import ctypes
from typing import Final

from relayd.protocol.limits import MIB

_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8


def keep_memory_flat() -> None:
    """Sets the limits for this process, before it has threads; does nothing where the C library has none."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    for parameter, value in ((_ARENA_MAX, 1), (_MMAP_THRESHOLD, 4 * MIB), (_TRIM_THRESHOLD, 16 * MIB)):
        mallopt(parameter, value)
