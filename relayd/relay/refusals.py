"""What a reader whose cursor is not served is told (docs/reference/protocol.md, "Cursors and resuming"). Pure."""

from relayd.protocol.cursor import Cursor, Gap, History, Refused, format_cursor
from relayd.protocol.errors import DesynchronizedError, PositionDetail


def gap_error(gap: Gap, requested: Cursor) -> DesynchronizedError:
    """Events are lost to this reader; the detail's `earliest` is a cursor that is served completely from there."""
    first, last = gap.lost
    if gap.reason == "evicted":
        text = f"events {first} to {last} are no longer kept"
    else:
        text = f"events {first} to {last} cannot be read: their file is damaged (`relayd verify` shows where)"
    message = f"{text}; what is still there begins after cursor {format_cursor(gap.resume)}: go on from it"
    detail = PositionDetail(gap.reason, requested, gap.resume, gap.latest, (first, last))
    return DesynchronizedError(message, detail)


def refused_error(refused: Refused, requested: Cursor, history: History) -> DesynchronizedError:
    """The cursor is no place in this history."""
    latest = history.latest
    if refused.reason == "ahead":
        message = (
            f"cursor {requested.ordinal} is ahead of this relay, whose latest event is {latest.ordinal}: this is not"
            " the history that the cursor came from, or a part of it was lost; begin again from `earliest`"
        )
    else:
        message = (
            f"event {requested.ordinal} of this relay is another than the cursor's: it came from another history"
            " (a relay that was deleted or restored?); begin again from `earliest`"
        )
    return DesynchronizedError(message, PositionDetail(refused.reason, requested, history.evicted, latest))
