"""Which connection holds which command of a relay, and the leases of those whose connection has ended.

Connections leave no event, so this is no part of the relay's state. It outlives a host: a connection that lives through
the relay's new opening keeps what it holds.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

import trio

from relayd.daemon.deadlines import Deadline, Deadlines
from relayd.daemon.reply import Answering


class Holders:
    """Of one relay, as long as the daemon knows it. `lost` is told what a connection held that has ended."""

    def __init__(self) -> None:
        self._holders: dict[str, Answering] = {}
        self.lost: Callable[[Answering, list[str]], None] | None = None

    def take(self, command_ids: Iterable[str], connection: Answering) -> None:
        """The connection holds these from now on."""
        connection.at_end(self, lambda: self._ended(connection))
        for command_id in command_ids:
            self._holders[command_id] = connection

    def watch(self, connection: Answering) -> None:
        """`lost` is told of this connection's end, whatever it holds then."""
        connection.at_end(self, lambda: self._ended(connection))

    def drop(self, command_ids: Iterable[str]) -> None:
        """Nobody holds these any more."""
        for command_id in command_ids:
            self._holders.pop(command_id, None)

    def retain(self, command_ids: Collection[str]) -> None:
        """Only these can be held."""
        self.drop([command_id for command_id in self._holders if command_id not in command_ids])

    def holder(self, command_id: str) -> Answering | None:
        """The connection that holds it."""
        return self._holders.get(command_id)

    def _ended(self, connection: Answering) -> None:
        held = [command_id for command_id, holder in self._holders.items() if holder is connection]
        self.drop(held)
        if self.lost is not None:
            self.lost(connection, held)


@dataclass
class ConnectionHands:
    """What one connection has and what nobody has, as a decision sees it."""

    holders: Holders
    leases: "Leases"
    connection: Answering

    def holds(self, command_id: str) -> bool:
        """Whether this connection holds it."""
        return self.holders.holder(command_id) is self.connection

    def orphaned(self, command_id: str) -> bool:
        """Whether no connection holds it."""
        return command_id in self.leases


@dataclass
class Leases:
    """Commands whose connection has ended, until `run_out` is told that their time is over, all at once."""

    deadlines: Deadlines
    run_out: Callable[[list[str]], None]
    _until: dict[str, float] = field(default_factory=dict[str, float])
    _timer: Deadline | None = None

    def __contains__(self, command_id: str) -> bool:
        return command_id in self._until

    def __len__(self) -> int:
        return len(self._until)

    def names(self) -> list[str]:
        """All of them."""
        return list(self._until)

    def begin(self, command_ids: Iterable[str], seconds: float) -> None:
        """Their identity has so long to come back."""
        until = trio.current_time() + seconds
        for command_id in command_ids:
            self._until[command_id] = until
        self._arm()

    def end(self, command_ids: Iterable[str]) -> None:
        """Somebody has them again, or they have ended."""
        for command_id in command_ids:
            self._until.pop(command_id, None)
        self._arm()

    def end_all(self) -> None:
        """The host ends; the next opening gives a fresh period."""
        self._until.clear()
        self._arm()

    def _arm(self) -> None:
        first = min(self._until.values(), default=None)
        if self._timer is not None:
            if self._timer.call is not None and self._timer.at == first:
                return
            self._timer.cancel()
            self._timer = None
        if first is not None:
            self._timer = self.deadlines.after(max(0.0, first - trio.current_time()), self._time_is_up)

    def _time_is_up(self) -> None:
        now = trio.current_time()
        due = [command_id for command_id, until in self._until.items() if until <= now]
        self._timer = None
        if due:
            self.end(due)
            self.run_out(due)
        else:
            self._arm()
