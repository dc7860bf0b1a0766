"""Sending once per turn: what one step of the daemon answers leaves with one call per connection.

A turn is everything done without waiting: the frames of one read, the replies of one synced group, the deadlines of one
moment. Whoever begins one calls `flush` at its end.
"""

from typing import Protocol


class Flushable(Protocol):
    """A connection with answers to send."""

    def flush(self) -> None:
        """Sends what can be sent without waiting. Raises nothing."""
        ...


class Outbox:
    """The connections that have been answered in this turn.

    `unsent_bytes`: what all connections still have to send; `reading_bytes`: what is being read from files for them.
    """

    def __init__(self) -> None:
        self._waiting: list[Flushable] = []
        self.unsent_bytes = 0
        self.reading_bytes = 0

    @property
    def pages_bytes(self) -> int:
        """What is on its way to all connections together."""
        return self.unsent_bytes + self.reading_bytes

    def add(self, connection: Flushable) -> None:
        """`connection` has something to send; it is added once until it is flushed."""
        self._waiting.append(connection)

    def flush(self) -> None:
        """Ends the turn."""
        while self._waiting:
            waiting, self._waiting = self._waiting, []
            for connection in waiting:
                connection.flush()
