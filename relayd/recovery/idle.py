"""The hint that a relay was closed with nothing pending, so that nobody needs to open it before its first use.

The writer removes it before the first write (relayd/journal/writer.py); losing it costs one opening in the background.
"""

from relayd.journal.names import IDLE
from relayd.journal.storage import Directory


def is_idle(relay: Directory) -> bool:
    """Whether the hint is there. Raises OSError."""
    return relay.stat(IDLE) is not None


def mark_idle(relay: Directory) -> None:
    """Leaves the hint. The relay's writer is closed and its owner knows of nothing pending. Raises OSError."""
    if relay.stat(IDLE) is None:
        relay.open(IDLE, "create").close()
