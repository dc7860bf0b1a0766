"""What clients ask of the daemon while its calls are recorded; everything is drawn from one seed.

One thing after the other, a few requests of one connection on their way at once. When the daemon dies, it is started
again, and what carries a sequence and was not answered is sent again.
"""

import random
from collections import deque
from typing import NamedTuple

from support.daemon import Daemon, until
from support.wire import Wire

RELAYS = {"kept": "checkpointed", "read": "acknowledged", "short": {"bytes": 9000}}
PIPELINED = 3


class Asked(NamedTuple):
    op: str
    fields: dict


class Workload:
    def __init__(self, daemon: Daemon, seed: int) -> None:
        self._daemon = daemon
        self._random = random.Random(f"workload {seed}")
        self._wire: Wire | None = None
        self._sequences = dict.fromkeys(RELAYS, 0)
        self._numbers = 0
        self._made = 0
        self.stores: dict[str, bytes] = {}
        self._left: deque[Asked] = deque()
        """Not answered yet, in the order sent."""
        self.cursors: dict[str, list] = {}

    def run(self, rounds: int) -> None:
        """So many rounds."""
        for relay, retention in RELAYS.items():
            self.ask(Asked("open", {"relay": relay, "create": True, "retention": retention}))
        for _ in range(rounds):
            chance = self._random.random()
            if chance < 0.02:
                self._make_and_delete()
            elif chance < 0.03:
                self.until_idle(self._random.choice([*RELAYS]))
            elif chance < 0.15:
                self._acknowledge()
            elif chance < 0.2:
                self._read()
            else:
                self._record()

    def until_collected(self, relay: str) -> None:
        """Waits until the first segment of a relay is gone."""
        journal = self._daemon.relay(relay) / "journal"
        first = f"{1:020}-"
        gone = lambda: not any(path.name.startswith(first) for path in journal.iterdir())  # noqa: E731
        until(gone, 10, f"nothing of {relay} is collected")

    def until_idle(self, relay: str) -> None:
        """Waits until a relay is closed because nobody uses it."""
        hint = self._daemon.relay(relay) / "idle"
        until(hint.exists, 60, f"{relay} is not closed")

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()

    def _record(self) -> None:
        relay = self._random.choice([*RELAYS, "read"])
        asked = [self._next_record(relay) for _ in range(self._random.randint(1, PIPELINED))]
        self.ask(*asked)

    def _next_record(self, relay: str) -> Asked:
        count = self._random.choice((1, 1, 2, 4))
        events = [["work", [relay, self._next_number(), self._text()]] for _ in range(count)]
        fields = {"relay": relay, "events": events}
        if self._random.random() < 0.7:
            fields |= {"producer": f"p-{relay}", "sequence": self._sequences[relay] + 1}
            self._sequences[relay] += count
        return Asked("record", fields)

    def _next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _text(self) -> str:
        return self._random.randbytes(self._random.choice((8, 60, 200, 330))).hex()

    def _acknowledge(self) -> None:
        relay = self._random.choice(["read", "read", "kept", "short"])
        if relay in self.cursors:
            self.ask(Asked("acknowledge", {"relay": relay, "through": self.cursors[relay]}))

    def _read(self) -> None:
        relay = self._random.choice([*RELAYS])
        self.ask(Asked("attach", {"relay": relay, "after": "earliest", "max_bytes": 4096}))
        self.ask(Asked("status", {"relay": relay}))

    def _make_and_delete(self) -> None:
        self._made += 1
        relay = f"made-{self._made // 2}"
        self.ask(Asked("open", {"relay": relay, "create": True, "retention": "checkpointed"}))
        self.ask(Asked("record", {"relay": relay, "events": [["work", [relay, self._next_number(), self._text()]]]}))
        if self._random.random() < 0.7:
            self.ask(Asked("delete_relay", {"relay": relay, "store": self.stores[relay]}))

    # Asking

    def ask(self, *asked: Asked) -> None:
        """Sends all, then takes their answers; through as many deaths of the daemon as there are."""
        self._left.extend(asked)
        while self._left:
            try:
                self._exchange()
            except OSError:
                self._start_again()

    def _exchange(self) -> None:
        if self._wire is None:
            self._wire = self._daemon.connect()
        requests = [(self._wire.send(one.op, **one.fields), one) for one in self._left]
        for request, one in requests:
            response = self._wire.answer(request)
            # The request may have been done before the daemon died.
            gone = one.op == "delete_relay" and response.get("code") == "not_found"
            assert response["re"] != "error" or gone, response
            self._left.popleft()
            self._take(one, response)

    def _take(self, asked: Asked, response: dict) -> None:
        relay = asked.fields["relay"]
        if response["re"] == "opened":
            self.stores[relay] = response["store"]
        if response["re"] == "recorded":
            self.cursors[relay] = response["through"]

    def _start_again(self) -> None:
        """What carries no sequence is not sent again: it may be there."""
        self._wire.close()
        self._wire = None
        until(lambda: not self._daemon.running, 10, "the connection broke, and the daemon lives")
        self._daemon.wait()
        self._left = deque(one for one in self._left if one.op != "record" or "producer" in one.fields)
        self._daemon.start()
