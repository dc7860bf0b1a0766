"""What one open relay is in memory. Its host owns and changes it; reading and upkeep look at it."""

from dataclasses import dataclass
from typing import NamedTuple

from relayd.daemon.output_commit import OutputCommit
from relayd.journal.catalogue import Catalogue
from relayd.journal.pages import PageReader
from relayd.journal.tail import Tail
from relayd.protocol.cursor import Cursor, History
from relayd.relay.acknowledged import Acknowledgements
from relayd.relay.retention import base, retained
from relayd.relay.state import Execution, RelayState


class Durable(NamedTuple):
    """What others act on before they are answered, and so must not see before it is synced."""

    execution: Execution
    floor: Cursor | None
    evicted: Cursor

    @classmethod
    def of(cls, state: RelayState) -> "Durable":
        """These facts of the state, which will be durable when its frontier is."""
        return cls(state.execution, state.floor, state.evicted)


@dataclass
class RelayMemory:
    """`state` is folded as far as has been decided; `synced` is how far that is durable.

    `acknowledgements` are those on disk. `durable` is what of the state can be acted on. `base` is the cursor of the
    last event that may be gone.
    """

    name: str
    state: RelayState
    synced: Cursor
    base: Cursor
    acknowledgements: Acknowledgements
    output: OutputCommit
    tail: Tail
    catalogue: Catalogue
    reader: PageReader
    durable: "Durable"

    @property
    def history(self) -> History:
        """What can be shown: what is durable and not gone."""
        return History(self.base, self.synced)

    @property
    def retained(self) -> Cursor:
        """The cursor up to which nobody needs the events any more."""
        return retained(self.state.retention, self.durable.floor, self.acknowledgements)

    def raise_base(self) -> None:
        """Lets go of what nobody needs any more, and of what a durable eviction gave up; it never moves back."""
        risen = base(self.retained, self.durable.evicted)
        if risen.ordinal > self.base.ordinal:
            self.base = risen

    def digest_of(self, ordinal: int) -> bytes | None:
        """The digest of the durable event at `ordinal`; None where only the files know it."""
        for cursor in (self.synced, self.base):
            if cursor.ordinal == ordinal:
                return cursor.digest
        return self.tail.digest_of(ordinal) if ordinal < self.synced.ordinal else None
