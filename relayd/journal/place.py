"""Whether an open relay is still where its path says (docs/reference/journal.md, "Layout").

Writes into a directory or file that was deleted succeed and say nothing, so what is answered is proven first.
"""

from relayd.journal.storage import Directory
from relayd.protocol.errors import RelayRemovedError


def removed(relay: Directory) -> RelayRemovedError:
    """The error for a relay that is no longer there."""
    return RelayRemovedError(f"{relay.path} was deleted, moved or replaced while open; nothing is answered into it")


def prove_place(relay: Directory) -> None:
    """Raises RelayRemovedError where the path of an open relay's directory names it no longer."""
    if not relay.still_there():
        raise removed(relay)
