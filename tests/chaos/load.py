"""Clients that go on through every crash: each knows what it sent, and keeps what it was told."""

import random
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from pathlib import Path

from chaos.hearing import hear_acknowledged, hear_page, hear_recorded, hear_stands
from chaos.history import Said
from support.wire import GENESIS, Wire

ANSWER_SECONDS = 10.0
PIPELINED = 6


class Client(threading.Thread, ABC):
    """One client of one relay; `stop` ends it at its next step."""

    def __init__(self, name: str, socket: Path, relay: str, seed: int) -> None:
        super().__init__(name=name, daemon=True)
        self.said = Said(name, relay)
        self.relay = relay
        self.random = random.Random(f"{seed} {name}")
        self._socket = socket
        self._told_to_stop = threading.Event()
        self.steps = 0
        self.failed: BaseException | None = None

    def stop(self) -> None:
        self._told_to_stop.set()

    @property
    def stopping(self) -> bool:
        return self._told_to_stop.is_set()

    def run(self) -> None:
        try:
            while not self.stopping:
                try:
                    with self.connect() as wire:
                        self.serve(wire)
                except TimeoutError:
                    self.waited_too_long()
                except OSError:
                    time.sleep(0.01)
        except BaseException as error:
            self.failed = error
            raise

    def connect(self) -> Wire:
        """A connection. Raises OSError where there is none to be had."""
        return Wire(str(self._socket), timeout=ANSWER_SECONDS)

    @abstractmethod
    def serve(self, wire: Wire) -> None:
        """One connection's life. Raises OSError where it breaks."""

    def waited_too_long(self) -> None:
        """No answer in ANSWER_SECONDS."""
        self.said.wrong.append("no answer in time")

    def refused(self, response: dict) -> None:
        """An error where there is no reason for one."""
        if response["code"] != "shutting_down":
            self.said.wrong.append(f"{response['code']}: {response['message']}")
        raise ConnectionError

    def make(self, number: int) -> str:
        """A text of its own for an event."""
        text = f"{number}:" + self.random.randbytes(self.random.choice((8, 60, 300))).hex()
        self.said.sent[number] = text
        return text


class Producer(Client):
    """Sends batches by sequence, several on their way at once, and after a crash all unanswered ones again."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)
        self._next = 1
        self._unanswered: deque[tuple[int, list]] = deque()

    def serve(self, wire: Wire) -> None:
        self._ask(wire)
        on_their_way: deque[tuple[int, int, list]] = deque()
        for first, events in self._unanswered:
            on_their_way.append((self._send(wire, first, events), first, events))
        while not self.stopping:
            while len(on_their_way) < PIPELINED:
                first, events = self._batch()
                self._unanswered.append((first, events))
                on_their_way.append((self._send(wire, first, events), first, events))
            self._take(wire, *on_their_way.popleft())
        while on_their_way:
            self._take(wire, *on_their_way.popleft())

    def _batch(self) -> tuple[int, list]:
        first, count = self._next, self.random.choice((1, 1, 2, 5, 20))
        self._next += count
        return first, [["work", [self.name, number, self.make(number)]] for number in range(first, first + count)]

    def _send(self, wire: Wire, first: int, events: list) -> int:
        return wire.send("record", relay=self.relay, events=events, producer=self.name, sequence=first)

    def _ask(self, wire: Wire) -> None:
        stands = wire.call("record", relay=self.relay, producer=self.name)
        if stands["re"] == "error":
            self.refused(stands)
        answered = self._unanswered[0][0] - 1 if self._unanswered else self._next - 1
        hear_stands(self.said, answered, self._next - 1, stands)

    def _take(self, wire: Wire, request: int, first: int, events: list) -> None:
        response = wire.answer(request)
        if response["re"] == "error":
            self.refused(response)
        self._unanswered.popleft()
        hear_recorded(self.said, first, len(events), response)
        self.steps += not response.get("duplicate")


class Recorder(Client):
    """Records without a sequence: what was not answered is not sent again."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)
        self._next = 1

    def serve(self, wire: Wire) -> None:
        on_their_way: deque[tuple[int, int, int]] = deque()
        while not self.stopping:
            while len(on_their_way) < PIPELINED:
                first, count = self._next, self.random.choice((1, 1, 3))
                self._next += count
                request = wire.send("record", relay=self.relay, events=self._events(first, count))
                on_their_way.append((request, first, count))
            self._take(wire, *on_their_way.popleft())
        while on_their_way:
            self._take(wire, *on_their_way.popleft())

    def _events(self, first: int, count: int) -> list:
        return [["note", [self.name, number, self.make(number)]] for number in range(first, first + count)]

    def _take(self, wire: Wire, request: int, first: int, count: int) -> None:
        response = wire.answer(request)
        if response["re"] == "error":
            self.refused(response)
        hear_recorded(self.said, first, count, response, sequenced=False)
        self.steps += 1


class Reader(Client):
    """Follows from its own cursor, across every crash; `acknowledges`: says that it has what it read."""

    def __init__(self, *arguments: object, acknowledges: bool = False) -> None:
        super().__init__(*arguments)
        self._acknowledges = acknowledges
        self.cursor: list = GENESIS
        self.latest = 0

    def serve(self, wire: Wire) -> None:
        pages = 0
        while not self.stopping:
            response = wire.call(
                "attach",
                relay=self.relay,
                after=self.cursor,
                wait_ms=500,
                max_bytes=self.random.choice((1, 4096, 1 << 20)),
            )
            if response["re"] == "error":
                self._take_gap(response)
                continue
            self._take(response)
            pages += 1
            if self._acknowledges and pages % 4 == 0 and self.cursor[0]:
                self._acknowledge(wire)

    def _take(self, page: dict) -> None:
        self.cursor = hear_page(self.said, self.cursor, self.latest, page)
        self.latest = page["latest"][0]
        self.steps += 1

    def _take_gap(self, response: dict) -> None:
        """Only bounded retention takes events away from one who has not acknowledged them."""
        if response["code"] != "desynchronized" or response["detail"]["reason"] != "evicted":
            self.refused(response)
        self.said.gaps += 1
        self.cursor = response["detail"]["earliest"]

    def _acknowledge(self, wire: Wire) -> None:
        response = wire.call("acknowledge", relay=self.relay, through=self.cursor, consumer=self.name)
        if response["re"] == "error":
            self.refused(response)
        hear_acknowledged(self.said, self.cursor, response)


def make_clients(socket: Path, seed: int) -> list[Client]:
    """Eight clients: on `kept` nothing is ever let go, `read` lets go of what was read, `short` of what is old."""
    plan: list[tuple[Callable[..., Client], str, str]] = [
        (Producer, "producer-1", "kept"),
        (Producer, "producer-2", "read"),
        (Producer, "producer-3", "short"),
        (Recorder, "recorder-1", "kept"),
        (Recorder, "recorder-2", "read"),
        (Reader, "reader-1", "kept"),
        (Reader, "reader-2", "short"),
    ]
    clients = [kind(name, socket, relay, seed) for kind, name, relay in plan]
    return [*clients, Reader("reader-3", socket, "read", seed, acknowledges=True)]


RELAYS = {"kept": "checkpointed", "read": "acknowledged", "short": {"bytes": 120_000}}
"""Retention by relay."""
