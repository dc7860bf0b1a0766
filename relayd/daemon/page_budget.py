"""How large a page may be: what all pages on their way hold together has a bound.

A page holds memory from when it is read until its client has taken it. While few do, a reader gets what it asked for;
the more there are, the smaller each is, so that slow readers hold cursors and no memory to speak of.
"""

from typing import Final

from relayd.daemon.outbox import Outbox
from relayd.protocol.limits import KIB, MIB

PAGES_BYTES: Final = 8 * MIB
PAGE_BYTES_SMALL: Final = 15 * KIB
"""No page is made smaller. With its frame it fits the small send buffer that connections of a crowd have."""
_SHARE: Final = 8


class PageBudget:
    """Sizes pages by what is unsent, and by what is being read."""

    def __init__(self, outbox: Outbox, bytes_max: int = PAGES_BYTES) -> None:
        self._outbox = outbox
        self._bytes_max = bytes_max

    def page_bytes(self, wanted: int) -> int:
        """How many bytes a page may have now, of the `wanted` ones."""
        free = self._bytes_max - self._outbox.pages_bytes
        return min(wanted, max(PAGE_BYTES_SMALL, free // _SHARE))

    def begin(self, size: int) -> None:
        """A page of up to `size` bytes is being read."""
        self._outbox.reading_bytes += size

    def end(self, size: int) -> None:
        """It is read, or will not be."""
        self._outbox.reading_bytes -= size
