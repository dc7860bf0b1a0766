"""What the events of a command lane add up to, and what each command does, naively: the lower half of the model.

Nothing here knows connections, time or answers; support/lane_model.py does.
"""

import contextlib
import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from support.lane_words import CANCELLABLE, RefusedError

TERMINAL = ("completed", "rejected", "interrupted")
REMEMBERED = 8192
SIDE_MAX = 4


class At(NamedTuple):
    """The cursor of the event at `ordinal`."""

    ordinal: int


@dataclass
class Known:
    """A command of the ledger."""

    id: str
    command: dict
    ordinal: int
    state: str = "queued"
    worker: str | None = None
    delivery: int = 0
    end: dict = field(default_factory=dict)

    @property
    def type(self) -> str:
        return self.command["type"]


@dataclass
class Ledger:
    """All that the events add up to."""

    commands: dict[str, Known] = field(default_factory=dict)
    queue: list[str] = field(default_factory=list)
    side: list[str] = field(default_factory=list)
    started: list[str] = field(default_factory=list)
    cancels: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    barrier: str | None = None
    cut: int | None = None
    floor: int | None = None
    config: dict = field(default_factory=dict)
    closed: bool = False
    producers: dict = field(default_factory=dict)


class Recorded:
    """`events`: kind, command_id, data, producer, in order. `digests`: by ordinal, as far as somebody has seen them.

    `points`: the ledger after each group, by the number of events.
    """

    def __init__(self, max_active: int, queue_max: int) -> None:
        self.max_active, self.queue_max = max_active, queue_max
        self.events: list[tuple] = [("relay.created", None, None, None)]
        self.digests: list[bytes] = [bytes(16)]
        self.ledger = Ledger()
        self.points = {1: copy.deepcopy(self.ledger)}

    @property
    def frontier(self) -> int:
        return len(self.events)

    def _event(self, kind: str, command_id: str | None, data: object, producer: list | None = None) -> int:
        self.events.append((kind, command_id, data, producer))
        return self.frontier

    @contextlib.contextmanager
    def _group(self) -> Iterator[None]:
        """What is recorded inside is one group, with what follows from it by itself."""
        yield
        self._follow()
        self.points[self.frontier] = copy.deepcopy(self.ledger)

    def _follow(self) -> None:
        """Heads start, a checkpoint becomes ready. That side tasks start before the queue's head is nowhere said."""
        ledger = self.ledger
        while not ledger.closed:
            if ledger.barrier is not None:
                if ledger.cut is None and not ledger.started:
                    ledger.cut = self._event("checkpoint.ready", ledger.barrier, {"barrier": ledger.barrier})
                    ledger.commands[ledger.barrier].state = "pending"
                return
            name = self._side_head() or self._queue_head()
            if name is None:
                return
            (ledger.side if name in ledger.side else ledger.queue).remove(name)
            ledger.started.append(name)
            ledger.commands[name].state = "pending"
            self._event("command.started", name, None)

    def _running(self, *kinds: str) -> list[Known]:
        return [known for known in map(self.ledger.commands.get, self.ledger.started) if known.type in kinds]

    def _side_head(self) -> str | None:
        return self.ledger.side[0] if self.ledger.side and len(self._running("side_task")) < SIDE_MAX else None

    def _queue_head(self) -> str | None:
        if not self.ledger.queue:
            return None
        head = self.ledger.commands[self.ledger.queue[0]]
        if len(self._running("task", "configure")) >= self.max_active or self._running("configure"):
            return None
        return None if any(side.ordinal < head.ordinal for side in self._running("side_task")) else head.id

    # What commands do

    def _check(self, said: dict) -> None:  # noqa: C901, PLR0912 - a branch for each row of the table
        """Raises RefusedError where the relay's state forbids it; nothing has changed then."""
        ledger, kind = self.ledger, said["type"]
        if ledger.closed:
            raise RefusedError("invalid_state")
        if kind in ("task", "configure", "side_task"):
            if len(ledger.queue) + len(ledger.side) + len(ledger.started) >= self.queue_max:
                raise RefusedError("overloaded")
        elif kind == "cancel":
            target = ledger.commands.get(said["target"])
            if target is None:
                raise RefusedError("not_found")
            if target.state in TERMINAL or target.type not in CANCELLABLE:
                raise RefusedError("invalid_state")
        elif kind == "begin_checkpoint":
            if ledger.barrier is not None:
                raise RefusedError("invalid_state")
        elif kind in ("complete_checkpoint", "release_checkpoint", "close"):
            if said["barrier"] not in ledger.commands:
                raise RefusedError("not_found")
            if said["barrier"] != ledger.barrier or ledger.cut is None:
                raise RefusedError("invalid_state")
            if kind == "close" and (not self._right(said["cut"], ledger.cut) or ledger.cut != self.frontier):
                raise RefusedError("invalid_state")
        elif kind == "advance_floor":
            ordinal = said["cursor"][0]
            if not (ledger.floor or 0) <= ordinal <= self.frontier or not self._right(said["cursor"], ordinal):
                raise RefusedError("invalid_state")

    def _right(self, cursor: list, ordinal: int) -> bool:
        return cursor[0] == ordinal < len(self.digests) and cursor[1] == self.digests[ordinal]

    def _take_up(self, name: str, said: dict) -> None:  # noqa: C901, PLR0912 - as above
        """What an accepted command does at once."""
        ledger, kind = self.ledger, said["type"]
        match kind:
            case "task" | "configure":
                ledger.queue.append(name)
            case "side_task":
                ledger.side.append(name)
            case "begin_checkpoint":
                ledger.barrier, ledger.cut = name, None
            case "cancel":
                if ledger.commands[said["target"]].state == "in_flight":
                    ledger.cancels.append(name)
                else:
                    self._end(said["target"], "rejected", reason="cancelled")
                    self._end(name, "completed")
            case "remove_queued" | "clear_queue":
                removed = [one for one in ledger.queue if kind == "clear_queue" or one == said["command_id"]]
                for one in removed:
                    self._end(one, "rejected", reason="removed")
                self._end(name, "completed", result={"removed": removed})
            case "complete_checkpoint":
                ledger.floor = ledger.cut
                self._end(name, "completed", result={"floor": At(ledger.cut)})
                self._end(ledger.barrier, "completed", result={"cut": At(ledger.cut)})
            case "release_checkpoint":
                self._end(name, "completed")
                self._end(ledger.barrier, "completed", result={"cut": At(ledger.cut)})
            case "advance_floor":
                ledger.floor = said["cursor"][0]
                self._end(name, "completed", result={"floor": At(ledger.floor)})
            case "close":
                ledger.closed = True
                self._event("relay.closed", None, {"barrier": ledger.barrier, "cut": At(ledger.cut)})
                for one in [*ledger.queue, *ledger.side]:
                    self._end(one, "rejected", reason="relay_closed")
                self._end(ledger.barrier, "completed", result={"cut": At(ledger.cut)})
                self._end(name, "completed")
            case "notice":
                self._end(name, "completed")

    def _end(self, name: str, word: str, **said: object) -> int:
        """A terminal event, and those of the cancels that stood."""
        ledger, known = self.ledger, self.ledger.commands[name]
        said = {key: value for key, value in said.items() if value is not None}
        ordinal = self._event(f"command.{word}", name, {"type": known.type, **said})
        known.state, known.end = word, {"terminal": ordinal, **said}
        for names in (ledger.queue, ledger.side, ledger.started, ledger.cancels):
            if name in names:
                names.remove(name)
        if ledger.barrier == name:
            ledger.barrier = ledger.cut = None
        if known.type == "configure" and word == "completed":
            ledger.config[known.command["key"]] = known.command["value"]
        ledger.ended.append(name)
        if len(ledger.ended) > REMEMBERED:
            del ledger.commands[ledger.ended.pop(0)]
        for cancel in self._cancels_of(name):
            self._end(cancel, "completed")
        return ordinal

    def _cancels_of(self, target: str) -> list[str]:
        commands = self.ledger.commands
        return [name for name in self.ledger.cancels if commands[name].command["target"] == target]

    def restore(self, count: int) -> None:
        """Only the first `count` events were recorded."""
        self.ledger = copy.deepcopy(self.points[count])
        del self.events[count:]
        self.points = {at: ledger for at, ledger in self.points.items() if at <= count}
