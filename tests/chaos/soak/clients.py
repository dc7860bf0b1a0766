"""The clients of a soak: those of tests/chaos/load.py and more kinds, all of their history logged.

What they are told is judged from the log afterwards (heard.py), not by them; an error ends a connection, and what has a
sequence is sent again on the next one.
"""

import hashlib
import time
from collections import deque
from pathlib import Path

from chaos.load import ANSWER_SECONDS, Client, Producer, Reader, Recorder
from chaos.soak.log import Log, LoggedWire
from support.wire import Wire

PAUSE_SECONDS_MAX = 0.06
AGAIN = 0.08
"""How often a producer sends something again that was answered."""


def text_of(sender: str, number: int) -> str:
    """The same for all who send under one name."""
    made = hashlib.shake_128(f"{sender} {number}".encode())
    return f"{number}:{made.hexdigest((8, 60, 300)[made.digest(1)[0] % 3])}"


class Logged(Client):
    """Mixed into a client of load.py. `log` is set before it is started."""

    log: Log

    def connect(self) -> Wire:
        return LoggedWire(str(self._socket), self.log, self.name, self._pause, timeout=ANSWER_SECONDS)

    def _pause(self) -> None:
        time.sleep(self.random.uniform(0, PAUSE_SECONDS_MAX))

    def refused(self, response: dict) -> None:
        time.sleep(0.02)
        raise ConnectionError(response["message"])

    def waited_too_long(self) -> None:
        self.log.found_wrong(f"{self.name}: no answer in {ANSWER_SECONDS:g} s")

    @property
    def sender(self) -> str:
        """What its events say who sent them."""
        return self.name

    def make(self, number: int) -> str:
        text = text_of(self.sender, number)
        self.said.sent[number] = text
        return text


class LoggedProducer(Logged, Producer):
    """Now and then sends again, on purpose, what was answered."""

    def _take(self, wire: Wire, request: int, first: int, events: list) -> None:
        super()._take(wire, request, first, events)
        # An answer gets it on, also where its events were there: a twin's can be for a long time.
        self.steps += 1
        if self.random.random() < AGAIN:
            again = wire.answer(self._send(wire, first, events))
            if again["re"] == "error":
                self.refused(again)


class Twin(LoggedProducer):
    """One of two that number the same events as one producer, each in its own time."""

    @property
    def sender(self) -> str:
        return self.name.partition("/")[0]

    def _send(self, wire: Wire, first: int, events: list) -> int:
        return wire.send("record", relay=self.relay, events=events, producer=self.sender, sequence=first)

    def _batch(self) -> tuple[int, list]:
        first, events = super()._batch()
        return first, [[kind, [self.sender, number, text]] for kind, (_, number, text) in events]

    def _ask(self, wire: Wire) -> None:
        """Goes on where the other one stands, or behind, so that both are ahead of each other by turns."""
        stands = wire.call("record", relay=self.relay, producer=self.sender)
        if stands["re"] == "error":
            self.refused(stands)
        sequence = stands.get("sequence") or 0
        if sequence >= self._next and self.random.random() < 0.5:
            self._unanswered.clear()
            self._next = sequence + 1


class LoggedRecorder(Logged, Recorder):
    """What it sends on one connection has its own sender: of another connection's requests nobody knows the order."""

    connection = 0

    @property
    def sender(self) -> str:
        return f"{self.name}.{self.connection}"

    def serve(self, wire: Wire) -> None:
        self.connection, self._next = wire.number, 1
        super().serve(wire)

    def _events(self, first: int, count: int) -> list:
        return [["note", [self.sender, number, self.make(number)]] for number in range(first, first + count)]


class LoggedReader(Logged, Reader):
    """As it is."""


class Maker(Logged):
    """Makes a relay, records, reads all of it, deletes it, and makes it anew."""

    RELAYS = 2

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)
        self._store = b""
        self._unanswered: dict[str, deque[tuple[int, int]]] = {}
        self._next: dict[str, int] = {}

    @property
    def sender(self) -> str:
        return f"producer-{self.name}.{self._store.hex()[:12]}"

    def serve(self, wire: Wire) -> None:
        while not self.stopping:
            relay = f"{self.name}-{self.random.randrange(self.RELAYS)}"
            self._store = self._done(wire, "open", relay=relay, create=True)["store"]
            for _ in range(self.random.randrange(4)):
                self._record(wire, relay)
            self._read(wire, relay)
            if self.random.random() < 0.6:
                self._done(wire, "delete_relay", relay=relay, store=self._store)
                if self.random.random() < 0.5:
                    wire.call("status", relay=relay)
            self.steps += 1

    def _record(self, wire: Wire, relay: str) -> None:
        """Sends what was not answered before, and one more batch."""
        unanswered = self._unanswered.setdefault(self.sender, deque())
        first = self._next.get(self.sender, 1)
        count = self.random.choice((1, 3, 12))
        self._next[self.sender] = first + count
        unanswered.append((first, count))
        while unanswered:
            first, count = unanswered[0]
            events = [["work", [self.sender, at, self.make(at)]] for at in range(first, first + count)]
            self._done(wire, "record", relay=relay, events=events, producer=self.sender, sequence=first)
            unanswered.popleft()

    def _read(self, wire: Wire, relay: str) -> None:
        after: object = "earliest"
        while True:
            page = self._done(wire, "attach", relay=relay, after=after, max_bytes=4096)
            after = page["through"]
            if after[0] >= page["latest"][0]:
                return

    def _done(self, wire: Wire, op: str, /, **fields: object) -> dict:
        response = wire.call(op, **fields)
        if response["re"] == "error":
            self.refused(response)
        return response


PLAN = (
    (LoggedProducer, "producer-{}", "kept", {}),
    (Twin, "producer-twins/{}", "read", {}),
    (Twin, "producer-twins/{}", "read", {}),
    (LoggedProducer, "producer-{}", "short", {}),
    (LoggedReader, "reader-{}", "read", {"acknowledges": True}),
    (LoggedRecorder, "recorder-{}", "kept", {}),
    (LoggedReader, "reader-{}", "kept", {}),
    (Maker, "maker-{}", "made", {}),
    (LoggedReader, "reader-{}", "short", {}),
    (LoggedRecorder, "recorder-{}", "read", {}),
)
"""Kind, name and relay of each client; where there are more than these, it begins again."""


def make_clients(count: int, socket: Path, seed: int, log: Log) -> list[Client]:
    """`count` clients of the plan's kinds, not started."""
    clients = []
    for number in range(count):
        kind, name, relay, more = PLAN[number % len(PLAN)]
        client = kind(name.format(number + 1), socket, relay, seed, **more)
        client.log = log
        clients.append(client)
    return clients
