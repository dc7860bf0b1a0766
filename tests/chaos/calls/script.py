"""What the daemon is asked for while calls fail: the clients of load.py in one thread, one request after the other.

The order of the requests is fixed, so that the n-th call of a name is the same one in each run. Each client knows what
it sent and was told, and goes on after a refusal or a crash as its kind has to: a producer sends again what was not
answered, a recorder does not, a reader reads on from its cursor.
"""

import contextlib
import functools
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from chaos import load
from chaos.history import Said
from support.daemon import until
from support.wire import GENESIS, Wire

RELAYS = {"kept": "checkpointed", "taken": "acknowledged", "short": {"bytes": 12_000}}
SETTINGS = {"segment_bytes": 4096, "snapshot_bytes": 8192, "snapshot_events": 40, "tail_bytes": 4096, "idle_relay": 600}
ROUNDS = 5
SERVICE_SECONDS_MAX = 10.0
ANSWER_SECONDS = 20.0


class RefusedError(Exception):
    """An answer that is an error; `response` has its code."""

    def __init__(self, response: dict) -> None:
        super().__init__(f"{response['code']}: {response['message']}")
        self.response = response


class Steps(load.Client):
    """A client of load.py that is told when to do what. `refusals`: the errors it was answered, by request."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)
        self.refusals: list[tuple[str, str, str]] = []
        self._wire: Wire | None = None

    def serve(self, wire: Wire) -> None:
        raise NotImplementedError

    @property
    def wire(self) -> Wire:
        """Its connection; a new one where it had none, or left it."""
        if self._wire is None:
            self._wire = Wire(str(self._socket), timeout=ANSWER_SECONDS)
        return self._wire

    def leave(self) -> None:
        """Closes its connection; answers on their way are lost."""
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    def refused(self, response: dict) -> None:
        self.leave()
        reason = response.get("detail", {}).get("reason", "") if response.get("detail") else ""
        self.refusals.append((self.name, response["code"], reason))
        raise RefusedError(response)


class Producer(Steps, load.Producer):
    def record(self, batches: int = 1) -> None:
        """New batches, sent with one write and no answer between; with `batches` 0, what was not answered before."""
        for _ in range(batches):
            self._unanswered.append(self._batch())
        batches_now, wire = list(self._unanswered), self.wire
        asked = {"op": "record", "relay": self.relay, "producer": self.name}
        requests = wire.send_many([asked | {"events": events, "sequence": first} for first, events in batches_now])
        for request, (first, events) in zip(requests, batches_now, strict=True):
            self._take(wire, request, first, events)

    def again(self) -> None:
        """As after a crash: asks where it stands, and sends again what was not answered."""
        self._ask(self.wire)
        self.record(0)

    def repeat(self) -> None:
        """Everything once more, answered or not: nothing is stored, and it stands where it stood."""
        if not self.said.sent:
            return
        last = max(self.said.sent)
        for first in range(1, last + 1, 50):
            events = [
                ["work", [self.name, number, self.said.sent[number]]]
                for number in range(first, min(last, first + 49) + 1)
            ]
            response = self.wire.call("record", relay=self.relay, events=events, producer=self.name, sequence=first)
            if response["re"] == "error":
                self.refused(response)
            assert response.get("duplicate") is True, f"{self.name}: sent again, stored again: {response}"
            assert response["sequence"] == last, f"{self.name} stands at {response['sequence']}, not at {last}"
            self.said.duplicates += 1
            self.said.stood.append((last, *response["through"]))


class Recorder(Steps, load.Recorder):
    def record(self, count: int = 2) -> None:
        """New events; what is refused is not sent again."""
        first, self._next = self._next, self._next + count
        events = [["note", [self.name, number, self.make(number)]] for number in range(first, first + count)]
        self._take(self.wire, self.wire.send("record", relay=self.relay, events=events), first, count)

    def again(self) -> None:
        """What was not answered is left."""


class Reader(Steps, load.Reader):
    def read(self) -> None:
        """Up to the latest, page by page."""
        while True:
            response = self.wire.call("attach", relay=self.relay, after=self.cursor, max_bytes=2048)
            if response["re"] == "error":
                self._take_gap(response)
                continue
            gap = response.get("gap")
            if gap is not None:
                self.said.gaps += 1
                self.cursor = [gap["last"], None]
            self._take(response)
            if self.cursor[0] >= response["latest"][0]:
                return

    def acknowledge(self) -> None:
        if self.cursor[0]:
            self._acknowledge(self.wire)

    def again(self) -> None:
        """From the beginning: what it was shown, it is shown again."""
        before, self.cursor, self.latest = dict(self.said.shown), list(GENESIS), 0
        self.read()
        for ordinal, digest in before.items():
            assert self.said.shown[ordinal] == digest, f"{self.relay}: {ordinal} is shown otherwise after a crash"


class Asker(Steps):
    """Asks anything; `again` says nothing."""

    def ask(self, op: str, /, **fields: object) -> dict:
        """The answer, or RefusedError."""
        response = self.wire.call(op, **fields)
        if response["re"] == "error":
            self.refused(response)
        return response

    def again(self) -> None:
        """It has nothing to send again."""


class Script:
    """Ten clients and the order they act in. `lost`: connections that broke while `insist` went on."""

    def __init__(self, socket: Path, seed: int = 1) -> None:
        make: Callable = lambda kind, name, relay: kind(name, socket, relay, seed)  # noqa: E731
        self.producers = [make(Producer, f"producer-{at}", relay) for at, relay in enumerate(RELAYS, 1)]
        self.recorders = [make(Recorder, f"recorder-{at}", relay) for at, relay in enumerate(RELAYS, 1)]
        self.readers = [make(Reader, f"reader-{at}", relay) for at, relay in enumerate(RELAYS, 1)]
        self.asker = make(Asker, "asker", "")
        self.clients: list[Steps] = [*self.producers, *self.recorders, *self.readers, self.asker]
        self.lost = 0
        self._produces: dict[Callable[[], None], Producer] = {}

    def said(self, relay: str) -> list[Said]:
        return [client.said for client in self.clients if client.relay == relay]

    def leave(self) -> None:
        for client in self.clients:
            client.leave()

    @property
    def refusals(self) -> list[tuple[str, str, str]]:
        """Who was refused, with which code and reason."""
        return [one for client in self.clients for one in client.refusals]

    # What is done

    def make(self, wire: Wire) -> None:
        for relay, retention in RELAYS.items():
            response = wire.call("open", relay=relay, create=True, retention=retention)
            if response["re"] == "error":
                raise RefusedError(response)

    def serve(self, rounds: int = ROUNDS) -> None:
        """The whole life: appending, following, acknowledging; rotation, sealing, snapshots, collection follow."""
        for step in self.steps(rounds):
            step()

    def steps(self, rounds: int = ROUNDS) -> Iterator[Callable[[], None]]:
        """The same, one request or a few of one client at a time."""
        for at in range(rounds):
            for producer, recorder, reader in zip(self.producers, self.recorders, self.readers, strict=True):
                step = functools.partial(producer.record, 2)
                self._produces[step] = producer
                yield step
                yield recorder.record
                yield reader.read
                if at % 2 and reader.relay == "taken":
                    yield reader.acknowledge

    def insist(self, step: Callable[[], None]) -> None:
        """One step, in the end: what a recorder was refused stays away, and new events are recorded."""
        deadline = time.monotonic() + SERVICE_SECONDS_MAX
        while not self.attempt(step):
            assert time.monotonic() < deadline, f"no service after {SERVICE_SECONDS_MAX:g} s: {self.refusals[-1:]}"
            time.sleep(0.02)
            if step in self._produces:
                step = self._produces[step].again
        self._produces.clear()

    def attempt(self, step: Callable[[], None]) -> bool:
        """One step, once; whether it was answered as done."""
        try:
            step()
        except RefusedError:
            return False
        except ConnectionError:
            self.lost += 1
            self.leave()
            return False
        return True

    def again(self) -> None:
        """As clients do after a crash."""
        for client in self.clients:
            client.again()


def quiet(state: Path, seconds: float = 5) -> None:
    """Returns when nothing is left to be sealed, and no file is being made."""
    until(lambda: not leftovers(state, rotated=True), seconds, f"left over: {leftovers(state, rotated=True)}")


def leftovers(state: Path, *, rotated: bool = False) -> list[str]:
    """Names that no quiet relay has: unfinished files and relays, deleted ones, with `rotated` what is to be sealed."""
    found = []
    for folder, folders, files in os.walk(state):
        found += [name for name in folders if name.startswith(".")]
        found += [name for name in files if name.endswith(".new")]
        if rotated and folder.endswith("/journal"):
            found += [name for name in files if name.endswith(".log") and name != "active.log"]
    return found


@contextlib.contextmanager
def script(socket: Path, seed: int = 1) -> Iterator[Script]:
    """One whose connections are closed at the end."""
    made = Script(socket, seed)
    try:
        yield made
    finally:
        made.leave()
