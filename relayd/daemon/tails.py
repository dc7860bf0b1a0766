"""How much of all relays' newest records is kept in memory together.

A tail saves its readers the files and is nothing that could be lost: over the bound, a relay that records lets its own
go, and one that nobody has used for a while does too.
"""

from relayd.journal.tail import Tail


class TailBudget:
    """Counts the bytes of all tails against `bytes_max`."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.bytes = 0

    def take_on(self, tail: Tail) -> None:
        """Counts a tail that an opening has filled."""
        self.bytes += tail.held_bytes

    def append(self, tail: Tail, first: int, count: int, payload: bytes) -> None:
        """Appends records to a tail; what it held before goes where all tails together hold too much."""
        before = tail.held_bytes
        if self.bytes > self._bytes_max:
            tail.clear()
        tail.append(first, count, payload)
        self.bytes += tail.held_bytes - before

    def let_go(self, tail: Tail) -> None:
        """Empties a tail."""
        self.bytes -= tail.held_bytes
        tail.clear()
