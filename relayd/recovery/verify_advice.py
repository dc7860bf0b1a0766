"""What `relayd verify` advises: for whose files, and what salvage would make of damage to them."""

import shlex
from pathlib import Path
from typing import NamedTuple

from relayd.journal.names import JOURNAL
from relayd.recovery.places import RELAYS


class Owner(NamedTuple):
    """Whose files they are, as far as it is known. `store`: its id.

    `salvage`: the arguments of `relayd salvage` that name it. Nothing up to `base` is needed; its newest usable
    snapshot stands at `frontier`, 0 without one. `live`: a daemon has it open.
    """

    store: bytes | None = None
    salvage: str | None = None
    base: int = 0
    frontier: int = 0
    live: bool = False

    def mend(self, first: int | None, last: int | None) -> str:
        """What to do about damage that costs the ordinals `first` to `last`; None: none that are known."""
        if last is not None and last <= self.base:
            return "nothing: no reader is owed these any more, and the file goes when old events are collected next"
        command = self._command("")
        if first is None or last is None:
            return f"{command} keeps every record that is intact; a backup may have the others"
        if last <= self.frontier:
            return f"{command} gives up what of these is damaged, and nothing else; a backup may have them"
        return f"{command} keeps what is before these, and writes what is intact behind them to a file of JSON lines"

    def accept_tail(self) -> str:
        """What to do about an end of which nobody knows whether it was answered."""
        return f"{self._command('--tail ')} accepts the loss"

    def replace_missing(self, first: int, last: int) -> str:
        """What to do about files that are gone."""
        return f"put the missing files back; or {self.mend(first, last)}"

    def _command(self, option: str) -> str:
        if self.salvage is None:
            return f"`relayd salvage {option}STATE RELAY`, for the relay in its state directory,"
        command = f"`relayd salvage {option}{self.salvage}`"
        return f"with the daemon stopped, {command}" if self.live else command


def salvage_arguments(relay: Path) -> str | None:
    """STATE and RELAY for the relay's directory `relay`; None where that is in no state directory."""
    at = relay.resolve()
    return shlex.join((str(at.parents[1]), at.name)) if at.parent.name == RELAYS else None


def relay_of_segment(path: Path) -> Path:
    """The directory of the relay whose journal the file `path` stands in; any other where it stands elsewhere."""
    above = path.resolve().parent
    return above.parent if above.name == JOURNAL else above / path.name
