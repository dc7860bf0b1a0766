"""A naive model of the command lane, from the rules of the reference alone: lists, dicts, everything looked up anew.

A request gives its answer into `pending`, with the ordinal that has to be durable before it may leave; what it records
stands in `events`: kind, command_id, data, producer, in order. `At(n)` in either stands for the cursor of event n.

    model = LaneModel(max_active=2)
    model.submit((1, 7), "task-0001", {"type": "task"})      # request 7 of connection 1
    model.claim((2, 1), "w1", capacity=1, wait_ms=0)
    model.events[-1]                                         # ("command.claimed", "task-0001", {…}, None)

After a crash `restore(n)` goes back to when n events were recorded, which has to be between two requests' groups.
"""

import copy
from dataclasses import dataclass

from support.lane_ledger import TERMINAL, At, Known, Recorded
from support.lane_words import RefusedError, normal, same

Key = tuple[int, int]
"""A connection and the id of its request."""


@dataclass
class Answer:
    """`waited`: the request waited by wait_ms, and is still `cancelled` while its answer is on its way."""

    key: Key
    frontier: int
    response: dict
    waited: bool = False


@dataclass
class Waiter:
    """A claim, or an asker of `command`, that waits."""

    key: Key
    until: float
    command_id: str = ""
    worker: str = ""
    capacity: int = 0


@dataclass
class HandOver:
    """Recorded, and not told yet."""

    answer: Answer
    names: list[str]
    cancelled: bool = False


class LaneModel(Recorded):
    """`digests` are those of the events by ordinal, as far as somebody has seen them; the caller fills it."""

    def __init__(self, *, max_active: int = 1, queue: int = 10_000, lease: float = 30, barrier: float = 600) -> None:
        super().__init__(max_active, queue)
        self.lease, self.barrier_seconds = lease, barrier
        self.now = 0.0
        self.pending: list[Answer] = []
        self.gone: set[int] = set()
        """Connections that have ended."""
        self._forget_connections()

    def _forget_connections(self) -> None:
        self.holders: dict[str, int] = {}
        self.orphans: dict[str, float] = {}
        self.claims: list[Waiter] = []
        self.askers: list[Waiter] = []
        self.held: list[tuple] = []
        self.handed: list[HandOver] = []
        self.owner: int | None = None
        self.barrier_until = 0.0
        self._releasing = self._serving = False

    def _changed(self) -> None:
        """Something was recorded: what was held goes on where the cut is no longer exact, and waiters are served."""
        if self.ledger.barrier is None:
            self.owner = None
        if self.held and not self.exact:
            self._release()
        self._serve()
        for asker in list(self.askers):
            if asker in self.askers and self._settled(asker.command_id):
                self.askers.remove(asker)
                self._tell_command(asker.key, asker.command_id, waited=True)

    def _serve(self) -> None:
        if self._serving:
            return
        self._serving = True
        for claim in list(self.claims):
            if self.ledger.closed:
                self.claims.remove(claim)
                self._refuse(claim.key, "invalid_state", waited=True)
            elif self._hand_over(claim, waited=True):
                self.claims.remove(claim)
        self._serving = False

    def _answer(self, key: Key, response: dict, *, waited: bool = False, frontier: int | None = None) -> Answer:
        answer = Answer(key, self.frontier if frontier is None else frontier, response, waited)
        if key[0] not in self.gone:
            self.pending.append(answer)
        return answer

    def _refuse(self, key: Key, code: str, *, waited: bool = False, frontier: int | None = None) -> None:
        self._answer(key, {"re": "error", "code": code}, waited=waited, frontier=frontier)

    # Submitting

    def submit(self, key: Key, command_id: str, command: object) -> None:
        try:
            said = normal(command)
        except RefusedError as refused:
            self._refuse(key, refused.code)
            return
        if self.exact and not self._releasing and (said["type"] == "notice" or command_id in self._held_ids()):
            self.held.append(("submit", key, (command_id, said)))
            return
        try:
            first = self._accept(command_id, said, key[0])
        except RefusedError as refused:
            self._refuse(key, refused.code)
        else:
            self._answer(key, {"re": "accepted", "command_id": command_id, **first})

    def _accept(self, command_id: str, said: dict, connection: int) -> dict:
        ledger = self.ledger
        known = ledger.commands.get(command_id)
        if known is not None:
            if not same(known.command, said):
                raise RefusedError("conflict")
            return {"ordinal": known.ordinal, "duplicate": True}
        self._check(said)
        if self.held and said["type"] not in ("close", "complete_checkpoint", "release_checkpoint"):
            self._release()
            self._check(said)
        ordinal = self.frontier + 1
        with self._group():
            self._event("command.queued", command_id, {"command": said})
            ledger.commands[command_id] = Known(command_id, said, ordinal)
            self._take_up(command_id, said)
        if ledger.barrier == command_id:
            self.owner, self.barrier_until = connection, self.now + self.barrier_seconds
        self._changed()
        return {"ordinal": ordinal}

    # Holding

    @property
    def exact(self) -> bool:
        """Whether a cut is ready and nothing was recorded after it."""
        return self.ledger.cut is not None and self.ledger.cut == self.frontier

    def _held_ids(self) -> set[str]:
        return {said[0] for op, _, said in self.held if op == "submit"}

    def _release(self) -> None:
        """All that is held is decided, in order; nothing is held until the next cut."""
        if self._releasing:
            return
        self._releasing = True
        while self.held:
            op, key, said = self.held.pop(0)
            getattr(self, op)(key, *said)
        self._releasing = False

    def record(self, key: Key, events: list, producer: str | None, sequence: int | None) -> None:
        asks_held = any(op == "record" and said[1] == producer for op, _, said in self.held)
        if self.exact and not self._releasing and (events or asks_held):
            self.held.append(("record", key, (events, producer, sequence)))
            return
        try:
            answer = self._record(events, producer, sequence)
        except RefusedError as refused:
            self._refuse(key, refused.code)
        else:
            self._answer(key, {"re": "recorded", **answer})

    def _record(self, events: list, producer: str | None, sequence: int | None) -> dict:
        ledger = self.ledger
        mark = ledger.producers.get(producer)
        if not events:
            return {} if mark is None else {"sequence": mark[0], "through": At(mark[1])}
        skip = 0
        if producer is not None and mark is not None:
            if sequence > mark[0] + 1:
                raise RefusedError("invalid_state")
            skip = mark[0] + 1 - sequence
            if skip >= len(events):
                return {"duplicate": True, "sequence": mark[0], "through": At(mark[1])}
        if ledger.closed:
            raise RefusedError("invalid_state")
        first = self.frontier + 1
        for at, (kind, data) in enumerate(events[skip:], skip):
            self._event(kind, None, data, None if producer is None else [producer, sequence + at])
        last = {}
        if producer is not None:
            last = {"sequence": sequence + len(events) - 1}
            ledger.producers[producer] = (last["sequence"], self.frontier)
        self.points[self.frontier] = copy.deepcopy(ledger)
        return {"first": first, "through": At(self.frontier), **last}

    # Asking

    def command(self, key: Key, command_id: str, wait_ms: int) -> None:
        if self.exact and not self._releasing and command_id in self._held_ids():
            self.held.append(("command", key, (command_id, wait_ms)))
        elif command_id not in self.ledger.commands:
            self._refuse(key, "not_found")
        elif wait_ms == 0 or self._settled(command_id):
            self._tell_command(key, command_id)
        else:
            self.askers.append(Waiter(key, self.now + wait_ms / 1000, command_id))

    def _settled(self, command_id: str) -> bool:
        known = self.ledger.commands[command_id]
        return known.state in TERMINAL or (command_id == self.ledger.barrier and self.ledger.cut is not None)

    def _tell_command(self, key: Key, command_id: str, *, waited: bool = False) -> None:
        known = self.ledger.commands[command_id]
        told = {"command_id": command_id, "type": known.type, "state": known.state, "ordinal": known.ordinal}
        if command_id == self.ledger.barrier and self.ledger.cut is not None:
            told["cut"] = At(self.ledger.cut)
        self._answer(key, {"re": "command", **told, **known.end}, waited=waited)

    # Working

    def claim(self, key: Key, worker: str | None, capacity: int, wait_ms: int) -> None:
        if worker is None:
            self._refuse(key, "forbidden")
            return
        if self.ledger.closed:
            self._refuse(key, "invalid_state")
            return
        claim = Waiter(key, self.now + wait_ms / 1000, worker=worker, capacity=capacity)
        if self._hand_over(claim, waited=False):
            return
        if wait_ms == 0:
            self._answer(key, {"re": "claimed", "commands": []})
        else:
            self.claims.append(claim)

    def _hand_over(self, claim: Waiter, *, waited: bool) -> bool:
        """Whether there was something for it."""
        ledger, mine = self.ledger, claim.key[0]
        started = sorted((ledger.commands[name] for name in ledger.started), key=lambda known: known.ordinal)
        again = [
            known
            for known in started
            if known.state == "in_flight" and known.worker == claim.worker and known.id in self.orphans
        ]
        chosen = [*again, *(known for known in started if known.state == "pending")][: claim.capacity]
        theirs = {known.id for known in chosen} | {name for name, holder in self.holders.items() if holder == mine}
        cancels = [
            ledger.commands[name]
            for name in ledger.cancels
            if ledger.commands[name].command["target"] in theirs and self.holders.get(name) != mine
        ]
        handed = [*cancels, *chosen]
        if not handed:
            return False
        with self._group():
            for known in handed:
                known.state, known.worker, known.delivery = "in_flight", claim.worker, known.delivery + 1
                self._event("command.claimed", known.id, {"worker": claim.worker, "delivery": known.delivery})
                self.holders[known.id] = mine
                self.orphans.pop(known.id, None)
        told = [
            {"command_id": one.id, "ordinal": one.ordinal, "command": one.command, "delivery": one.delivery}
            for one in handed
        ]
        answer = self._answer(claim.key, {"re": "claimed", "commands": told}, waited=waited)
        self.handed.append(HandOver(answer, [known.id for known in handed]))
        self._changed()
        return True

    def durable(self, ordinal: int) -> list[Answer]:
        """Everything through `ordinal` is synced: the answers that leave, and hand-overs that reached nobody."""
        for hand_over in [one for one in self.handed if one.answer.frontier <= ordinal]:
            self.handed.remove(hand_over)
            if hand_over.cancelled:
                self._orphan([name for name in hand_over.names if self.holders.get(name) == hand_over.answer.key[0]])
                self._serve()
        self.points = {at: ledger for at, ledger in self.points.items() if at >= ordinal}
        leave = [answer for answer in self.pending if answer.frontier <= ordinal]
        self.pending = [answer for answer in self.pending if answer.frontier > ordinal]
        return leave

    def _orphan(self, names: list[str]) -> None:
        for name in names:
            del self.holders[name]
            if name in self.ledger.started:
                self.orphans[name] = self.now + self.lease

    def finish(self, key: Key, command_id: str, outcome: str, result: object, message: str | None) -> None:
        known = self.ledger.commands.get(command_id)
        if known is None:
            self._refuse(key, "not_found")
        elif known.state in TERMINAL:
            end = known.end
            equal = known.state == outcome and same(end.get("result"), result) and end.get("message") == message
            if equal:
                self._answer(key, {"re": "finished", "ordinal": end["terminal"], "duplicate": True})
            else:
                self._refuse(key, "conflict")
        elif known.type in ("cancel", "begin_checkpoint"):
            self._refuse(key, "forbidden")
        elif known.state == "queued":
            self._refuse(key, "invalid_state")
        elif self.holders.get(command_id) != key[0]:
            self._refuse(key, "forbidden")
        else:
            reason = None if outcome == "completed" else "by_worker"
            with self._group():
                ordinal = self._end(command_id, outcome, reason=reason, message=message, result=result)
            self._changed()
            self._answer(key, {"re": "finished", "ordinal": ordinal})

    # Connections and time

    def cancel_request(self, key: Key, request: int) -> None:
        self._answer(key, {"re": "done"}, frontier=0)
        taken = (key[0], request)
        for waiters in (self.claims, self.askers):
            for waiter in [one for one in waiters if one.key == taken]:
                waiters.remove(waiter)
                self._refuse(taken, "cancelled", frontier=0)
        for held in [one for one in self.held if one[1] == taken]:
            self.held.remove(held)
            self._refuse(taken, "cancelled", frontier=0)
            self._no_longer_held()
        for answer in [one for one in self.pending if one.key == taken and one.waited]:
            self.pending.remove(answer)
            self._refuse(taken, "cancelled", frontier=0)
            for hand_over in self.handed:
                hand_over.cancelled = hand_over.cancelled or hand_over.answer is answer

    def _no_longer_held(self) -> None:
        """A request that waited for another's end of being held, which was taken out, is decided."""
        kept, free = [], []
        for op, key, said in self.held:
            notice = op == "submit" and said[1]["type"] == "notice"
            events = op == "record" and said[0]
            ids = {one[2][0] for one in kept if one[0] == "submit"}
            asks = said[0] in ids if op != "record" else any(one[0] == op and one[2][1] == said[1] for one in kept)
            (kept if notice or events or asks else free).append((op, key, said))
        self.held = kept
        for op, key, said in free:
            getattr(self, op)(key, *said)

    def disconnect(self, connection: int) -> None:
        self.gone.add(connection)
        self.pending = [answer for answer in self.pending if answer.key[0] != connection]
        self.claims = [one for one in self.claims if one.key[0] != connection]
        self.askers = [one for one in self.askers if one.key[0] != connection]
        self._orphan([name for name, holder in self.holders.items() if holder == connection])
        self._serve()
        if self.owner == connection:
            self._interrupt("owner_lost")

    def _interrupt(self, reason: str) -> None:
        with self._group():
            self._end(self.ledger.barrier, "interrupted", reason=reason)
        self._changed()

    def next_time(self) -> float:
        """When time alone will change something."""
        times = [*self.orphans.values(), *(one.until for one in (*self.claims, *self.askers))]
        if self.owner is not None:
            times.append(self.barrier_until)
        return min(times, default=float("inf"))

    def time_comes(self, now: float) -> None:
        """It is `now`, and nothing was due before."""
        self.now = now
        for asker in [one for one in self.askers if one.until <= now]:
            self.askers.remove(asker)
            self._refuse(asker.key, "timeout", waited=True)
        for claim in [one for one in self.claims if one.until <= now]:
            self.claims.remove(claim)
            self._answer(claim.key, {"re": "claimed", "commands": []}, waited=True)
        due = [name for name, until in self.orphans.items() if until <= now]
        for name in due:
            del self.orphans[name]
        for name in sorted(due, key=lambda one: self.ledger.commands[one].ordinal):
            self._lose(name)
        if self.owner is not None and self.barrier_until <= now:
            self._interrupt("expired")

    def _lose(self, name: str) -> None:
        ledger, known = self.ledger, self.ledger.commands[name]
        with self._group():
            if self._cancels_of(name):
                self._end(name, "rejected", reason="cancelled")
            elif known.type == "side_task":
                self._end(name, "completed", reason="lease_expired", result={"status": "interrupted"})
            elif known.command.get("on_loss") == "requeue":
                self._event("command.requeued", name, {"reason": "lease_expired"})
                known.state = "queued"
                ledger.started.remove(name)
                ledger.queue = sorted([name, *ledger.queue], key=lambda one: ledger.commands[one].ordinal)
            else:
                self._end(name, "interrupted", reason="lease_expired")
        self._changed()

    # Crashes and openings

    def died(self, count: int) -> None:
        """The daemon was killed; nobody will be answered."""
        self.restore(count)
        self.pending = []
        self._forget_connections()

    def failed(self, durable: int, code: str) -> None:
        """A sync failed: whatever was not durable is told so, and the relay opens anew."""
        held, handed, waiting = self.held, self.handed, [*self.claims, *self.askers]
        holders = self.holders
        lost = [answer for answer in self.pending if answer.frontier > durable]
        self.pending = [answer for answer in self.pending if answer.frontier <= durable]
        self.restore(durable)
        self._forget_connections()
        for key in [*(one.key for one in (*lost, *waiting)), *(one[1] for one in held)]:
            self._refuse(key, code, frontier=0)
        untold = {name for one in handed for name in one.names}
        self.holders = {name: one for name, one in holders.items() if name not in untold}

    def opened(self) -> None:
        """The relay has opened: the checkpoint is interrupted, leases get their fresh period, heads start."""
        ledger = self.ledger
        in_flight = [one for one in (*ledger.started, *ledger.cancels) if ledger.commands[one].state == "in_flight"]
        self.holders = {name: one for name, one in self.holders.items() if name in in_flight}
        self.orphans = {
            name: self.now + self.lease for name in in_flight if name in ledger.started and name not in self.holders
        }
        if ledger.barrier is not None:
            self._interrupt("owner_lost")
        else:
            with self._group():
                pass
