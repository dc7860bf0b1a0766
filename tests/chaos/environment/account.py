"""One producer of one relay that survives every fault: what it sent, what it was told, and the proof that both hold."""

import random
import time
from collections.abc import Container
from pathlib import Path

from chaos.history import Checked, Said, Sent, check, read_relay
from support.daemon import Daemon
from support.wire import GENESIS, Wire, records

RETRY_SECONDS = 0.02
REPEATED_AT_ONCE = 500


class Account:
    """Sends numbered events in batches; what was not answered is sent again as it was, in the same order."""

    def __init__(self, relay: str = "a", name: str = "producer-1", seed: int = 1) -> None:
        self.relay = relay
        self.said = Said(name, relay)
        self.refusals: list[dict] = []
        self._random = random.Random(f"{seed} {name}")
        self._next = 1
        self._unanswered: dict[int, list] = {}
        self._asked: dict[int, int] = {}
        self._cursor = GENESIS

    @property
    def answered(self) -> int:
        """How many events it was told are recorded."""
        return min(self._unanswered, default=self._next) - 1

    def open(self, wire: Wire, **settings: object) -> "Account":
        wire.done("open", relay=self.relay, create=True, **settings)
        return self

    def send(self, wire: Wire, size: int = 40, count: int = 1) -> int:
        """One batch of new events; its answer belongs into `take`."""
        first, self._next = self._next, self._next + count
        numbers = range(first, self._next)
        self._unanswered[first] = [["work", [self.said.client, at, self._text(at, size)]] for at in numbers]
        return self._ask(wire, first)

    def take(self, answer: dict) -> dict:
        """Remembers what it was told."""
        if answer["re"] == "error":
            self.refusals.append(answer)
            return answer
        first = self._asked[answer["id"]]
        events = self._unanswered.pop(first)
        ordinal, digest = answer["through"]
        last = first + len(events) - 1
        if answer.get("duplicate"):
            assert answer["sequence"] >= last, f"a duplicate of {last} stands at {answer['sequence']}"
            self.said.duplicates += 1
            self.said.stood.append((answer["sequence"], ordinal, digest))
        else:
            assert ordinal - answer["first"] + 1 == len(events), answer
            self.said.answered |= {answer["first"] + at: first + at for at in range(len(events))}
            self.said.through[ordinal] = digest
        return answer

    def record(self, wire: Wire, size: int = 40, count: int = 1) -> dict:
        """The first batch that was not answered, or a new one; the answer, a refusal too."""
        request = self._ask(wire, min(self._unanswered)) if self._unanswered else self.send(wire, size, count)
        return self.take(wire.answer(request))

    def insist(self, wire: Wire, size: int = 40, count: int = 1, seconds: float = 10) -> dict:
        """Records, again and again while the daemon says that it may help, until nothing is left unanswered."""
        deadline = time.monotonic() + seconds
        while (answer := self.record(wire, size, count))["re"] == "error" or self._unanswered:
            assert answer["re"] != "error" or answer["retryable"], answer
            assert time.monotonic() < deadline, f"service is not back in {seconds} s: {answer}"
            if answer["re"] == "error":
                time.sleep(RETRY_SECONDS)
        return answer

    def _ask(self, wire: Wire, first: int) -> int:
        fields = {"relay": self.relay, "events": self._unanswered[first], "producer": self.said.client}
        request = wire.send("record", sequence=first, **fields)
        self._asked[request] = first
        return request

    def read(self, wire: Wire, refused: Container[str] = ()) -> int:
        """Reads on from where it stands to the latest, or until one of `refused` is met; how many events came."""
        before = self._cursor[0]
        while True:
            page = wire.call("attach", relay=self.relay, after=self._cursor)
            if page["re"] == "error":
                assert page["code"] in refused, page
                return self._cursor[0] - before
            for stored in records(page["records"]):
                assert stored.ordinal == self._cursor[0] + 1, "a page without a hole"
                self._cursor = stored.cursor
                self._see(stored)
            if self._cursor[0] >= page["latest"][0]:
                return self._cursor[0] - before

    def repeat(self, wire: Wire) -> None:
        """Sends everything that was answered once more, then reads all from the beginning: I6, I5."""
        latest = wire.done("status", relay=self.relay)["latest"]
        for first in range(1, self.answered + 1, REPEATED_AT_ONCE):
            numbers = range(first, min(first + REPEATED_AT_ONCE, self.answered + 1))
            events = [["work", [self.said.client, at, self.said.sent[at]]] for at in numbers]
            fields = {"relay": self.relay, "events": events, "producer": self.said.client, "sequence": first}
            answer = wire.done("record", **fields)
            assert answer.get("duplicate") is True, f"sent again, stored again: {answer}"
            assert answer["sequence"] >= self.answered
            self.said.duplicates += 1
            self.said.stood.append((answer["sequence"], *answer["through"]))
        assert wire.done("status", relay=self.relay)["latest"] == latest
        for stored in wire.read_all(self.relay):
            self._see(stored)

    def check(self, relay: Path) -> Checked:
        """I1 to I6 against the files of a relay that nobody writes any more."""
        return check(self.relay, read_relay(relay), [self.said])

    def _text(self, number: int, size: int) -> str:
        text = f"{number}:" + self._random.randbytes(max(0, size // 2)).hex()
        self.said.sent[number] = text
        return text

    def _see(self, stored) -> None:
        digest = self.said.shown.setdefault(stored.ordinal, stored.digest)
        assert digest == stored.digest, f"{stored.ordinal} is shown otherwise than before"
        if not stored.kind.startswith("relay."):
            self.said.shown_events[stored.ordinal] = Sent(*stored.data)


def settle(daemon: Daemon, *accounts: Account) -> list[Checked]:
    """Kills the daemon as it is, starts it, sends everything again, reads all of it, and checks the files."""
    if daemon.running:
        daemon.kill()
    else:
        daemon.end()
    daemon.start()
    with daemon.connect() as wire:
        for account in accounts:
            account.insist(wire)
            account.repeat(wire)
    daemon.kill()
    return [account.check(daemon.relay(account.relay)) for account in accounts]


def trouble(daemon: Daemon) -> list[dict]:
    """Lines that only a bug writes."""
    bugs = ("request_failed", "relay_entry_failed", "connection_failed", "text")
    return [line for line in daemon.log if line.get("event") in bugs or line.get("level") == "critical"]
