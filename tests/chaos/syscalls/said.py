"""What clients asked and what they were told, as it went over the sockets; and with it what has to be on disk.

An answer counts from the moment its last byte was given to the socket.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
from chaos.history import Stored, read_groups
from chaos.syscalls.disk import File
from chaos.syscalls.machine import Machine, Step
from chaos.syscalls.strace_log import Call
from support.wire import cut_frames, records


class Answer(NamedTuple):
    """One answer, with what it answers."""

    relay: str | None
    request: dict
    response: dict


@dataclass
class Owed:
    """What the answers about one relay make necessary, and what the requests make possible.

    `through`: the greatest ordinal that anybody was told of. `acknowledged`: as answered; `asked`: as asked for.
    `is_there`: None while it is being made or deleted.
    """

    is_there: bool | None = None
    through: int = 0
    acknowledged: dict[str, int] = field(default_factory=dict)
    asked: dict[str, int] = field(default_factory=dict)
    retention: object = None
    version: int = 0
    """Rises whenever more is owed."""

    def told(self, ordinal: int) -> None:
        if ordinal > self.through:
            self.through = ordinal
            self.version += 1


class Written(dict[int, Stored]):
    """Every record that was ever written to a relay's active.log, by ordinal."""

    def take(self, content: bytes) -> list[tuple[int, Stored]]:
        """Takes a segment's; those that are new."""
        found = read_groups(content, "active.log")
        fresh = [(ordinal, stored) for ordinal, stored in found.items() if ordinal not in self]
        for ordinal, stored in found.items():
            assert self.setdefault(ordinal, stored) == stored, f"ordinal {ordinal} was given out twice"
        return fresh


class Dialogue:
    """Follows the steps of a machine."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.owed: dict[str, Owed] = {}
        self.written: dict[int, Written] = {}
        """By the number of the relay's directory."""
        self.received: dict[str, set[bytes]] = {}
        """By relay, the kind and data of each event that came to be recorded."""
        self._requests: dict[tuple[str, int], dict] = {}
        self._coming: dict[str, bytearray] = {}
        self._leaving: dict[str, bytearray] = {}

    def take(self, step: Step) -> list[Answer]:
        """Takes one step; the answers that left with it."""
        if step.what == "received":
            self._received(step.call)
        elif step.what == "change" and step.call.name.startswith("pwrite"):
            self._wrote(step)
        elif step.what == "sent":
            return self._sent(step.call)
        return []

    def written_to(self, number: int) -> Written:
        return self.written.setdefault(number, Written())

    def _wrote(self, step: Step) -> None:
        file = self.machine.node(step.call.descriptor())
        if not isinstance(file, File) or not step.relays or file.content[:8] != b"RLYSEG01":
            return
        relay = step.relays[0]
        sent = self.received.get(self.machine.standing_name(relay), set())
        for ordinal, stored in self.written_to(relay.number).take(file.content):
            kind, data = stored.fields[1:3]
            own = kind.startswith("relay.")
            assert own or msgspec.msgpack.encode([kind, data]) in sent, f"I2: {ordinal} was never sent"

    def _received(self, call: Call) -> None:
        coming = self._coming.setdefault(call.place, bytearray())
        if not call.place.startswith("socket:") or not _is_ours(coming, call):
            return
        coming += b"".join(call.strings())
        for request in cut_frames(coming):
            self._requests[call.place, request["id"]] = request
            self._asked(request)

    def _asked(self, request: dict) -> None:
        name, op = request.get("relay"), request["op"]
        if name is None:
            return
        owed = self.owed.setdefault(name, Owed())
        if op == "open" and request.get("create") and not owed.is_there:
            owed.is_there = None
            owed.retention = request.get("retention", "checkpointed")
        elif op == "delete_relay":
            owed.is_there = None
        elif op == "acknowledge":
            consumer = request.get("consumer", "controller")
            owed.asked[consumer] = max(request["through"][0], owed.asked.get(consumer, 0))
        elif op == "record":
            known = self.received.setdefault(name, set())
            known.update(msgspec.msgpack.encode(event[:2]) for event in request.get("events", []))

    def _sent(self, call: Call) -> list[Answer]:
        leaving = self._leaving.setdefault(call.place, bytearray())
        if not any(place == call.place for place, _ in self._requests):
            return []
        leaving += b"".join(call.strings())[: call.value]
        answers = []
        for response in cut_frames(leaving):
            request = self._requests.pop((call.place, response["id"]))
            answers.append(Answer(request.get("relay"), request, response))
            self._answered(answers[-1])
        return answers

    def _answered(self, answer: Answer) -> None:
        name, request, response = answer
        if name is None or response["re"] == "error":
            return
        owed = self.owed[name]
        match response["re"]:
            case "opened":
                owed.is_there = True
                owed.version += 1
                self._told(name, *response["latest"])
            case "done" if request["op"] == "delete_relay":
                self.owed[name] = Owed(is_there=False, version=owed.version + 1)
                self.received.pop(name, None)
            case "recorded" if "through" in response:
                self._told(name, *response["through"])
                self._check_events(name, request, response)
            case "page":
                self._check_page(name, response)
            case "status":
                self._told(name, *response["latest"])
            case "acknowledged":
                consumer = request.get("consumer", "controller")
                owed.acknowledged[consumer] = max(response["through"][0], owed.acknowledged.get(consumer, 0))
                owed.version += 1

    def _told(self, name: str, ordinal: int, digest: bytes) -> None:
        if ordinal:
            assert self._written(name)[ordinal].digest == digest, f"{name}: answered with a digest nobody wrote"
            self.owed[name].told(ordinal)

    def _written(self, name: str) -> Written:
        return self.written_to(self.machine.standing[name].number)

    def _check_events(self, name: str, request: dict, response: dict) -> None:
        """What was answered is what was sent, at these ordinals."""
        if response.get("duplicate") or "first" not in response:
            return
        first, last = response["first"], response["through"][0]
        events = request["events"][len(request["events"]) - (last - first + 1) :]
        for ordinal, event in enumerate(events, first):
            assert self._written(name)[ordinal].fields[1:3] == event[:2], f"{name}: {ordinal} is another event"

    def _check_page(self, name: str, response: dict) -> None:
        written = self._written(name)
        for one in records(response["records"]):
            assert written[one.ordinal].body == one.body, f"{name}: {one.ordinal} was shown otherwise than written"
            self.owed[name].told(one.ordinal)


def _is_ours(coming: bytearray, call: Call) -> bool:
    """Whether a client speaks; the daemon's own wake-up socket carries single bytes."""
    said = b"".join(call.strings())
    return bool(coming) or len(said) > 4
