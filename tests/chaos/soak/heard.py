"""From the log of a soak to what each sender and reader was told: a model of the relays, fed line by line.

It knows of a relay whether it is there, under which store, and what was sent, answered and shown there; all that an
answer may be follows from that.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from chaos.hearing import hear_acknowledged, hear_page, hear_recorded, hear_stands
from chaos.history import Said
from chaos.soak.log import as_bytes, as_cursor


class Refusal(NamedTuple):
    """An error that a client was answered with."""

    at: float
    who: str
    op: str
    relay: str
    code: str
    message: str


class Fault(NamedTuple):
    """What the nemesis did, and from when to when."""

    name: str
    at: float
    until: float


@dataclass
class Relay:
    """One life of a relay, from its making to its deletion. `said`: by sender or reader."""

    name: str
    store: bytes | None = None
    there: str = "perhaps"
    """`yes`, `no`, or `perhaps`: what was asked for and not answered is done or not."""
    said: dict[str, Said] = field(default_factory=dict)
    answered_through: dict[str, int] = field(default_factory=dict)
    """The last number that was answered, by sender."""
    latest: int = 0
    """The last ordinal that anybody was told is durable."""

    def of(self, who: str) -> Said:
        return self.said.setdefault(who, Said(who, self.name))


@dataclass
class _Asked:
    """A request in flight, and what was known when it was sent."""

    request: dict
    sender: str | None = None
    first: int = 0
    count: int = 0
    answered_before: int = 0
    latest_before: int = 0
    life: Relay | None = None


class Heard:
    """`relays`: the present life of each. `wrong`: what no answer may be."""

    def __init__(self) -> None:
        self.relays: dict[str, Relay] = {}
        self.refusals: list[Refusal] = []
        self.faults: list[Fault] = []
        self.wrong: list[str] = []
        self.counts: Counter[str] = Counter()
        self._deleted: set[bytes] = set()
        self._in_flight: dict[tuple[int, int], _Asked] = {}

    def take(self, lines: Iterable[dict]) -> "Heard":
        """All of a log."""
        for line in lines:
            if "sent" in line:
                self._sent(line["on"], line["sent"])
            elif "got" in line:
                self._got(line)
            elif "fault" in line:
                self.faults.append(Fault(line["fault"], line["at"], line["until"]))
            elif "wrong" in line:
                self.wrong.append(line["wrong"])
        for relay in self.relays.values():
            self._collect_wrong(relay)
        return self

    def _life(self, relay: str) -> Relay:
        return self.relays.setdefault(relay, Relay(relay))

    # Requests

    def _sent(self, connection: int, request: dict) -> None:
        asked = _Asked(request)
        self._in_flight[connection, request["id"]] = asked
        self.counts["requests"] += 1
        if "relay" not in request:
            return
        life = asked.life = self._life(request["relay"])
        asked.latest_before = life.latest
        if request["op"] == "record":
            self._sent_record(asked, life, request)
        elif request["op"] == "delete_relay" or (request["op"] == "open" and life.there == "no"):
            if request["op"] == "delete_relay":
                self._prove_shown(life)
            life.there = "perhaps"

    def _sent_record(self, asked: _Asked, life: Relay, request: dict) -> None:
        events = request.get("events") or []
        asked.sender = request.get("producer") or events[0][1][0]
        said = life.of(asked.sender)
        asked.answered_before = life.answered_through.get(asked.sender, 0)
        if events:
            asked.first, asked.count = events[0][1][1], len(events)
        for _, (sender, number, text) in events:
            if sender != asked.sender or said.sent.setdefault(number, text) != text:
                self.wrong.append(f"the harness itself sent {sender} {number} in two ways")
        self.counts["events sent, each time counted"] += len(events)

    # Answers

    def _got(self, line: dict) -> None:
        answer = line["got"]
        asked = self._in_flight.pop((line["on"], answer["id"]), None)
        if asked is None:
            if answer["re"] != "error" or answer["id"] != 0:
                self.wrong.append(f"{line['who']}: an answer that nobody asked for: {answer}")
            else:
                self._refused(line, {"op": "connect"}, answer)
            return
        self.counts["answers"] += 1
        if answer["re"] == "error":
            self._refused(line, asked.request, answer)
        elif asked.life is not None:
            self._answered(line, asked, answer)

    def _answered(self, line: dict, asked: _Asked, answer: dict) -> None:
        op, who, life = asked.request["op"], line["who"], asked.life
        if op == "open":
            self._opened(life, answer)
        elif op == "delete_relay":
            self._collect_wrong(life)
            self._deleted.add(as_bytes(asked.request["store"]))
            self.relays[life.name] = Relay(life.name, there="no")
        elif life is not self.relays[life.name] or life.there == "no":
            # Of a life that has ended meanwhile, or never was for those who saw its end.
            self.wrong.append(f"{who}: `{op}` of {life.name} was answered though it is deleted: {answer}")
        elif op == "record":
            self._recorded(life, asked, answer)
        elif op == "attach":
            self._page(life, who, asked, answer)
        elif op == "acknowledge":
            hear_acknowledged(life.of(who), as_cursor(asked.request["through"]), self._binary(answer))

    def _opened(self, life: Relay, answer: dict) -> None:
        store = as_bytes(answer["store"])
        if answer["created"] and life.there == "yes":
            self.wrong.append(f"{life.name} was made though it is there")
        if store in self._deleted:
            self.wrong.append(f"{life.name} is there though it is deleted")
        if life.store not in (None, store):
            if life.there == "yes":
                self.wrong.append(f"{life.name} has another store than before")
            self._collect_wrong(life)
            life = self.relays[life.name] = Relay(life.name)
        life.store, life.there = store, "yes"

    def _recorded(self, life: Relay, asked: _Asked, answer: dict) -> None:
        said = life.of(asked.sender)
        answer = self._binary(answer)
        if not asked.count:
            hear_stands(said, asked.answered_before, max(said.sent, default=0), answer)
            return
        last = asked.first + asked.count - 1
        sequenced = asked.request.get("producer") is not None
        if sequenced and last <= asked.answered_before and not answer.get("duplicate"):
            said.wrong.append(f"{asked.first} to {last} were answered before, and are stored again: {answer}")
        hear_recorded(said, asked.first, asked.count, answer, sequenced=sequenced)
        life.latest = max(life.latest, answer["through"][0])
        life.answered_through[asked.sender] = max(life.answered_through.get(asked.sender, 0), last)

    def _page(self, life: Relay, who: str, asked: _Asked, answer: dict) -> None:
        after = asked.request["after"]
        cursor = as_cursor(after) if isinstance(after, list) else None
        answer = self._binary(answer) | {"records": as_bytes(answer["records"])}
        before = len(life.of(who).shown)
        hear_page(life.of(who), cursor, asked.latest_before, answer)
        life.latest = max(life.latest, answer["latest"][0])
        self.counts["events shown"] += len(life.of(who).shown) - before

    def _refused(self, line: dict, request: dict, answer: dict) -> None:
        op, relay = request["op"], request.get("relay", "")
        detail = answer.get("detail") or {}
        if op == "attach" and answer["code"] == "desynchronized" and detail.get("reason") == "evicted":
            self._life(relay).of(line["who"]).gaps += 1
            return
        life = self.relays.get(relay)
        if answer["code"] == "not_found" and life is not None and life.there != "yes":
            return
        self.refusals.append(Refusal(line["at"], line["who"], op, relay, answer["code"], answer["message"]))

    def _collect_wrong(self, life: Relay) -> None:
        for said in life.said.values():
            self.wrong += [f"{life.name}, {said.client}: {what}" for what in said.wrong]
            said.wrong.clear()

    def _prove_shown(self, life: Relay) -> None:
        """Who deletes a relay has read all of it: what was answered there was shown."""
        shown = {ordinal: event for one in life.said.values() for ordinal, event in one.shown_events.items()}
        for said in life.said.values():
            for ordinal, number in said.answered.items():
                if shown.get(ordinal) != (said.client, number, said.sent[number]):
                    self.wrong.append(f"{life.name}: {said.client} was answered {number} at {ordinal}; shown it is not")

    @staticmethod
    def _binary(answer: dict) -> dict:
        """With its cursors as the wire had them."""
        cursors = {name: as_cursor(answer[name]) for name in ("through", "latest", "retained") if answer.get(name)}
        return answer | cursors
