"""How far consumers have acknowledged: the one fact of a relay that is no event.

Pure (docs/internals/architecture.md, "The seven laws", 2). The file that keeps it is relayd/recovery/acknowledged.py;
what becomes of it for collection is in relayd/relay/retention.py.
"""

import msgspec

from relayd.protocol.cursor import GENESIS, Cursor


class Acknowledgements(msgspec.Struct, frozen=True):
    """Each consumer's own cursor, and `acknowledged`: the least of them, which never moves back."""

    acknowledged: Cursor = GENESIS
    consumers: dict[str, Cursor] = {}

    def cursor_of(self, consumer: str) -> Cursor:
        """Where `consumer` stands; genesis where it was never heard of."""
        return self.consumers.get(consumer, GENESIS)

    def acknowledge(self, consumer: str, through: Cursor) -> "Acknowledgements":
        """After `consumer` said it has everything through `through`. An older cursor than its own changes nothing."""
        if through.ordinal <= self.cursor_of(consumer).ordinal and consumer in self.consumers:
            return self
        return self._settled({**self.consumers, consumer: through})

    def forget(self, consumer: str) -> "Acknowledgements":
        """Without `consumer`, and what it alone pinned."""
        if consumer not in self.consumers:
            return self
        return self._settled({name: cursor for name, cursor in self.consumers.items() if name != consumer})

    def _settled(self, consumers: dict[str, Cursor]) -> "Acknowledgements":
        least = min(consumers.values(), key=lambda cursor: cursor.ordinal, default=self.acknowledged)
        highest = least if least.ordinal > self.acknowledged.ordinal else self.acknowledged
        return Acknowledgements(highest, consumers)
