"""What a relay may let go of (docs/reference/journal.md, "Retention and collection"). Pure."""

from relayd.protocol.cursor import GENESIS, Cursor
from relayd.protocol.kinds import Retention
from relayd.relay.acknowledged import Acknowledgements


def retained(retention: Retention, floor: Cursor | None, acknowledgements: Acknowledgements) -> Cursor:
    """The cursor up to which nobody needs the events any more.

    `checkpointed`: the smaller of acknowledged and floor, where no floor yet counts as genesis. The others: what is
    acknowledged.
    """
    if retention != "checkpointed":
        return acknowledgements.acknowledged
    return min(acknowledgements.acknowledged, floor or GENESIS, key=lambda cursor: cursor.ordinal)


def base(retained: Cursor, evicted: Cursor) -> Cursor:
    """The cursor of the last event that may be gone: it rises to retained, or to an eviction that is durable."""
    return max(retained, evicted, key=lambda cursor: cursor.ordinal)
