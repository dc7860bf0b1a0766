"""What a random history of the lane does next. Knows the model, so that most of what it asks for has a meaning."""

from random import Random

from support.lane_model import LaneModel

VALUES = [None, 0, 1, 1.0, True, "text", b"bytes", [], {}, {"b": [1, {"y": None, "x": 2}], "a": 1.5}, [None, -0.0]]
WRONG = [
    None, 7, "task", [], {}, {"type": None}, {"type": "nothing"}, {"type": 3}, {"type": "task", "more": 1},
    {"type": "task", "on_loss": "never"}, {"type": "configure", "key": "k"}, {"type": "configure", "value": 1},
    {"type": "configure", "key": " ", "value": 1}, {"type": "configure", "key": "k", "value": "\t"},
    {"type": "configure", "key": 1, "value": 1}, {"type": "side_task", "on_loss": "requeue"}, {"type": "cancel"},
    {"type": "cancel", "target": "short"}, {"type": "cancel", "target": None}, {"type": "remove_queued"},
    {"type": "remove_queued", "command_id": "no spaces"}, {"type": "clear_queue", "command_id": "task-0001"},
    {"type": "complete_checkpoint"}, {"type": "release_checkpoint", "barrier": 8}, {"type": "advance_floor"},
    {"type": "advance_floor", "cursor": [1, None]}, {"type": "advance_floor", "cursor": 1},
    {"type": "close", "barrier": "task-0001"}, {"type": "close", "barrier": "task-0001", "cut": [1, b"short"]},
    {"type": "notice"}, {"type": "notice", "text": "\n "}, {"type": "notice", "text": 1},
]  # fmt: skip
WEIGHTS = {
    "task": 14, "side_task": 6, "configure": 4, "cancel": 9, "remove_queued": 3, "clear_queue": 1, "barrier": 10,
    "advance_floor": 3, "notice": 6, "again": 6, "wrong": 3, "ask": 7, "claim": 16, "finish": 16, "record": 9,
    "cancel_request": 5, "disconnect": 4, "connect": 8, "time": 7, "gate": 7, "sync_fails": 2, "killed_soon": 2,
    "die": 1, "burst": 8,
}  # fmt: skip


class Choices:
    """Draws steps: the name of what the machine does, and its arguments."""

    def __init__(self, chance: Random, model: LaneModel) -> None:
        self.chance, self.model = chance, model
        self.made = 0
        self.numbers: dict[int, int] = {}
        self.requests: dict[int, list[int]] = {}
        self.submitted: list[tuple[str, object]] = []
        self.finished: list[tuple] = []
        self.sequences: dict[str, int] = {}

    def sent(self, number: int, request: int) -> None:
        self.requests.setdefault(number, []).append(request)

    def step(self, numbers: dict[int, int]) -> tuple:
        """`numbers`: the connection at each place that has one."""
        self.numbers, alive = numbers, list(numbers)
        kind = self.chance.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        if not alive:
            return ("connect", self.chance.randrange(5))
        return getattr(self, f"_{kind}")(self.chance.choice(alive))

    def _id(self, of: list[str] | None = None) -> str:
        """One that is known, or none has; mostly of `of`."""
        known = of or list(self.model.ledger.commands)
        return self.chance.choice(known) if known and self.chance.random() < 0.93 else "nobody-has-it"

    def _submit(self, at: int, command: object, command_id: str | None = None) -> tuple:
        if command_id is None:
            self.made += 1
            command_id = f"{str(command.get('type'))[:6] if isinstance(command, dict) else 'wrong'}-{self.made:06}"
            self.submitted.append((command_id, command))
        return ("request", at, "submit", {"command_id": command_id, "command": command}, (command_id, command))

    def _task(self, at: int) -> tuple:
        command = {"type": "task", "payload": self.chance.choice(VALUES)}
        loss = self.chance.choice([None, "interrupt", "requeue", "requeue"])
        return self._submit(at, command | ({} if loss is None else {"on_loss": loss}))

    def _side_task(self, at: int) -> tuple:
        return self._submit(at, {"type": "side_task", "payload": self.chance.choice(VALUES)})

    def _configure(self, at: int) -> tuple:
        value = self.chance.choice([value for value in VALUES if value is not None])
        return self._submit(at, {"type": "configure", "key": self.chance.choice("abc"), "value": value})

    def _cancel(self, at: int) -> tuple:
        ledger = self.model.ledger
        live = [*ledger.queue, *ledger.side, *ledger.started, *ledger.started, *ledger.cancels]
        if ledger.barrier is not None and self.chance.random() < 0.2:
            live.append(ledger.barrier)
        return self._submit(at, {"type": "cancel", "target": self._id(live if self.chance.random() < 0.85 else None)})

    def _remove_queued(self, at: int) -> tuple:
        return self._submit(at, {"type": "remove_queued", "command_id": self._id(self.model.ledger.queue)})

    def _clear_queue(self, at: int) -> tuple:
        return self._submit(at, {"type": "clear_queue"})

    def _cursor(self, ordinal: int) -> list:
        digests = self.model.digests
        if not 0 <= ordinal < len(digests) or self.chance.random() < 0.15:
            return [max(0, ordinal), bytes(range(16))]
        return [ordinal, digests[ordinal]]

    def _barrier(self, at: int) -> tuple:
        """Whatever has to do with checkpoints."""
        ledger, draw = self.model.ledger, self.chance.random()
        if ledger.barrier is None and draw < 0.85:
            return self._submit(at, {"type": "begin_checkpoint"})
        barrier = self._id([ledger.barrier] if ledger.barrier is not None else None)
        if draw < 0.15:
            cut = self._cursor((ledger.cut or self.model.frontier) - (self.chance.random() < 0.1))
            return self._submit(at, {"type": "close", "barrier": barrier, "cut": cut})
        if draw > 0.9:
            return self._submit(at, {"type": "begin_checkpoint"})
        if ledger.barrier is not None and draw > 0.7:
            return ("request", at, "command", {"command_id": barrier, "wait_ms": 900}, (barrier, 900))
        word = self.chance.choice(["complete_checkpoint", "release_checkpoint"])
        return self._submit(at, {"type": word, "barrier": barrier})

    def _advance_floor(self, at: int) -> tuple:
        ordinal = (self.model.ledger.floor or 0) + self.chance.choice([-1, 0, 1, 4, 1000])
        return self._submit(at, {"type": "advance_floor", "cursor": self._cursor(ordinal)})

    def _notice(self, at: int) -> tuple:
        return self._submit(at, {"type": "notice", "text": self.chance.choice(["a", "b"])})

    def _wrong(self, at: int) -> tuple:
        return self._submit(at, self.chance.choice(WRONG))

    def _again(self, at: int) -> tuple:
        """A repeat: as it was, written otherwise, or with other content."""
        if not self.submitted:
            return self._notice(at)
        command_id, command = self.chance.choice(self.submitted[-12:])
        draw = self.chance.random()
        if isinstance(command, dict) and draw < 0.35:
            command = {**dict(reversed(command.items())), "on_loss": None, "barrier": command.get("barrier")}
        elif draw < 0.5:
            command = {"type": "task", "payload": "another"}
        return self._submit(at, command, command_id)

    def _ask(self, at: int) -> tuple:
        held = [said[0] for op, _, said in self.model.held if op == "submit"]
        name = self._id(held if held and self.chance.random() < 0.5 else None)
        wait_ms = self.chance.choice([0, 0, 700, 40_000])
        return ("request", at, "command", {"command_id": name, "wait_ms": wait_ms}, (name, wait_ms))

    def _claim(self, at: int) -> tuple:
        at = self.chance.choice([2, 3, 4, at]) if self.chance.random() < 0.9 else at
        capacity, wait_ms = self.chance.choice([0, 1, 1, 2, 3]), self.chance.choice([0, 0, 0, 1300, 50_000])
        if at not in self.numbers:
            return ("connect", at)
        return ("request", at, "claim", {"capacity": capacity, "wait_ms": wait_ms}, (capacity, wait_ms))

    def _finish(self, at: int) -> tuple:
        ledger, draw = self.model.ledger, self.chance.random()
        mine = [name for name in ledger.started if name in self.model.holders]
        if mine and draw < 0.75:
            name = self.chance.choice(mine)
            number = self.model.holders[name]
            at = next((place for place, holder in self.numbers.items() if holder == number), at)
        elif self.finished and draw < 0.9:
            name, *said = self.chance.choice(self.finished[-6:])
            if self.chance.random() < 0.7:
                return self._say_finished(at, name, *said)
        else:
            name = self._id()
        outcome = self.chance.choice(["completed", "completed", "rejected", "interrupted"])
        result, message = self.chance.choice(VALUES), self.chance.choice([None, None, "said", ""])
        self.finished.append((name, outcome, result, message))
        return self._say_finished(at, name, outcome, result, message)

    def _say_finished(self, at: int, name: str, outcome: str, result: object, message: str | None) -> tuple:
        wire = {"command_id": name, "outcome": outcome}
        if result is not None or self.chance.random() < 0.5:
            wire["result"] = result
        if message is not None or self.chance.random() < 0.5:
            wire["message"] = message
        return ("request", at, "finish", wire, (name, outcome, result, message))

    def _record(self, at: int) -> tuple:
        events = [["x", self.chance.choice(VALUES)] for _ in range(self.chance.randint(1, 3))]
        draw = self.chance.random()
        if draw < 0.4:
            return ("request", at, "record", {"events": events}, (events, None, None))
        producer = self.chance.choice(["p", "q"])
        if draw < 0.55:
            return ("request", at, "record", {"events": [], "producer": producer}, ([], producer, None))
        last = self.sequences.get(producer, 0)
        sequence = max(1, last + 1 + self.chance.choice([0, 0, 0, 0, -1, -2, -5, 2]))
        self.sequences[producer] = max(last, sequence + len(events) - 1)
        wire = {"events": events, "producer": producer, "sequence": sequence}
        return ("request", at, "record", wire, (events, producer, sequence))

    def _cancel_request(self, at: int) -> tuple:
        requests = self.requests.get(self.numbers[at]) or [1]
        request = self.chance.choice(requests[-4:])
        return ("request", at, "cancel_request", {"request": request}, (request,))

    def _disconnect(self, at: int) -> tuple:
        return ("disconnect", at)

    def _connect(self, _at: int) -> tuple:
        return ("connect", self.chance.randrange(5))

    def _time(self, _at: int) -> tuple:
        return ("time", self.chance.choice([0.8, 5.0, 20.0, 31.0, 70.0]))

    def _gate(self, _at: int) -> tuple:
        return ("gate",)

    def _sync_fails(self, _at: int) -> tuple:
        return ("sync_fails",)

    def _killed_soon(self, _at: int) -> tuple:
        return ("killed_soon", self.chance.randint(1, 12), self.chance.choice(["before", "after", "torn"]))

    def _burst(self, at: int) -> tuple:
        return ("burst", at, self.chance.randint(2, 5))

    def _die(self, _at: int) -> tuple:
        return ("die",)
