"""The ledger of commands: what is known of each, and which state follows which (docs/internals/commands.md).

The containers are the state's: a command stands in exactly one of them while it is not terminal, always in order of
acceptance.
"""

from collections.abc import Iterator
from typing import Final, Literal

import msgspec

from relayd.protocol.commands import CommandState, CommandType, OutcomeWord
from relayd.protocol.cursor import Cursor
from relayd.protocol.limits import TERMINAL_IDS_REMEMBERED

LiveState = Literal["queued", "pending", "in_flight"]

TRANSITIONS: Final[dict[tuple[CommandState, str], CommandState]] = {
    ("queued", "command.started"): "pending",
    ("queued", "checkpoint.ready"): "pending",
    ("queued", "command.claimed"): "in_flight",
    ("pending", "command.claimed"): "in_flight",
    ("in_flight", "command.claimed"): "in_flight",
    ("in_flight", "command.requeued"): "queued",
    ("queued", "command.completed"): "completed",
    ("pending", "command.completed"): "completed",
    ("in_flight", "command.completed"): "completed",
    ("queued", "command.rejected"): "rejected",
    ("pending", "command.rejected"): "rejected",
    ("in_flight", "command.rejected"): "rejected",
    ("queued", "command.interrupted"): "interrupted",
    ("pending", "command.interrupted"): "interrupted",
    ("in_flight", "command.interrupted"): "interrupted",
}
"""From a state, by an event, to the next state; what is not here cannot happen."""


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A command that is not terminal; `worker` and `delivery` are its last hand-over's."""

    type: CommandType
    digest: bytes
    ordinal: int
    command: msgspec.Raw
    state: LiveState = "queued"
    worker: str | None = None
    delivery: int = 0
    target: str | None = None


class Terminal(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A command that ended.

    `ordinal` is its acceptance's, `terminal` its end's, `outcome` the digest of what was said of its end.
    """

    type: CommandType
    digest: bytes
    ordinal: int
    state: OutcomeWord
    terminal: int
    outcome: bytes
    reason: str | None = None


class Barrier(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The checkpoint that is being made; with `cut` it is ready."""

    command_id: str
    entry: Entry
    cut: Cursor | None = None


class Lane(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """All commands of a relay.

    `queue`: tasks and configures not started; `side`: side tasks not started; `started`: all of these that are;
    `cancels`: cancels that wait for their target's end. `ended`: the last terminal ids, oldest first. `live_bytes`:
    what the commands that are not terminal and `config` take.
    """

    queue: dict[str, Entry] = {}
    side: dict[str, Entry] = {}
    started: dict[str, Entry] = {}
    cancels: dict[str, Entry] = {}
    barrier: Barrier | None = None
    ended: dict[str, Terminal] = {}
    config: dict[str, msgspec.Raw] = {}
    closed: Cursor | None = None
    live_bytes: int = 0

    def capture(self) -> "Lane":
        """A copy that later folding does not touch."""
        captured = msgspec.structs.replace(self)
        captured.queue, captured.side = dict(self.queue), dict(self.side)
        captured.started, captured.cancels = dict(self.started), dict(self.cancels)
        captured.ended, captured.config = dict(self.ended), dict(self.config)
        return captured

    def live(self, command_id: str) -> Entry | None:
        """The command, where it is not terminal."""
        for entries in (self.started, self.queue, self.side, self.cancels):
            entry = entries.get(command_id)
            if entry is not None:
                return entry
        barrier = self.barrier
        return barrier.entry if barrier is not None and barrier.command_id == command_id else None

    def all_live(self) -> Iterator[tuple[str, Entry]]:
        """Every command that is not terminal, in no order across the containers."""
        for entries in (self.started, self.queue, self.side, self.cancels):
            yield from entries.items()
        if self.barrier is not None:
            yield self.barrier.command_id, self.barrier.entry

    @property
    def live_count(self) -> int:
        """How many commands are not terminal."""
        entries = (self.queue, self.side, self.started, self.cancels)
        return sum(map(len, entries)) + (self.barrier is not None)

    def cancels_of(self, target: str) -> list[str]:
        """The cancels that wait for `target` to end."""
        return [command_id for command_id, entry in self.cancels.items() if entry.target == target]

    def remember(self, command_id: str, terminal: Terminal) -> None:
        """A command has ended; past the bound the one that ended first is forgotten."""
        self.ended[command_id] = terminal
        if len(self.ended) > TERMINAL_IDS_REMEMBERED:
            del self.ended[next(iter(self.ended))]
