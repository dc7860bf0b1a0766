"""What one open relay is in memory. Its host owns and changes it; reading and upkeep look at it."""

from dataclasses import dataclass

from relayd.daemon.output_commit import OutputCommit
from relayd.journal.catalogue import Catalogue
from relayd.journal.pages import PageReader
from relayd.journal.tail import Tail
from relayd.protocol.cursor import Cursor, History
from relayd.relay.acknowledged import Acknowledgements
from relayd.relay.retention import base, retained
from relayd.relay.state import Execution, RelayState


@dataclass
class RelayMemory:
    """`state` is folded as far as has been decided; `synced` is how far that is durable.

    `acknowledgements` are those on disk. `execution` is what is durable of the state's own. `base` is the cursor of the
    last event that may be gone.
    """

    name: str
    state: RelayState
    synced: Cursor
    evicted: Cursor
    base: Cursor
    acknowledgements: Acknowledgements
    output: OutputCommit
    tail: Tail
    catalogue: Catalogue
    reader: PageReader
    execution: Execution

    @property
    def history(self) -> History:
        """What can be shown: what is durable and not gone."""
        return History(self.base, self.synced)

    @property
    def retained(self) -> Cursor:
        """The cursor up to which nobody needs the events any more."""
        return retained(self.state, self.acknowledgements)

    def raise_base(self) -> None:
        """Lets go of what nobody needs any more, and of what a durable eviction gave up; it never moves back."""
        risen = base(self.state, self.evicted, self.acknowledgements)
        if risen.ordinal > self.base.ordinal:
            self.base = risen

    def digest_of(self, ordinal: int) -> bytes | None:
        """The digest of the durable event at `ordinal`; None where only the files know it."""
        for cursor in (self.synced, self.base):
            if cursor.ordinal == ordinal:
                return cursor.digest
        return self.tail.digest_of(ordinal) if ordinal < self.synced.ordinal else None
