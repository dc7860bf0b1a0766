"""Law 1 read off the log: between the write of an event and the send that tells of it stands a sync of that file.

The sync began after the write had returned, and returned 0 before the send began.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from chaos.syscalls.machine import Machine, Step
from chaos.syscalls.recording import Recording
from chaos.syscalls.said import Answer, Dialogue
from chaos.syscalls.strace_log import Call
from support.wire import records


class Early(NamedTuple):
    """An answer that told of an event no sync had covered."""

    place: int
    relay: str
    ordinal: int
    said: str


class Checked(NamedTuple):
    answers: int
    early: list[Early]


def check_order(recording: Recording) -> Checked:
    """Every answer and page of a recording."""
    return _Law(recording).run()


class _Law:
    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._machine = Machine(recording.place)
        self._dialogue = Dialogue(self._machine)
        self._unsynced: dict[int, dict[int, dict[int, int]]] = {}
        """By relay, file and ordinal: the place where its write had returned."""

    def run(self) -> Checked:
        answers = 0
        early: list[Early] = []
        for step in self._machine.run(self._recording.calls):
            if step.what == "sync":
                self._synced(step)
            for answer in self._dialogue.take(step):
                told = _told(answer)
                answers += bool(told)
                early += self._early(step.call, answer, told)
            if step.what == "change" and step.call.name.startswith("pwrite"):
                self._wrote(step)
        return Checked(answers, early)

    def _wrote(self, step: Step) -> None:
        file = self._machine.node(step.call.descriptor())
        for relay in step.relays:
            unsynced = self._unsynced.setdefault(relay.number, {}).setdefault(file.number, {})
            unsynced.update(dict.fromkeys(ordinals_in(b"".join(step.call.strings())), step.call.returned))

    def _synced(self, step: Step) -> None:
        file = self._machine.node(step.call.descriptor())
        for relay in step.relays:
            unsynced = self._unsynced.get(relay.number, {}).get(file.number, {})
            for ordinal in [ordinal for ordinal, written in unsynced.items() if written < step.call.began]:
                del unsynced[ordinal]

    def _early(self, call: Call, answer: Answer, told: range | list[int]) -> Iterator[Early]:
        relay = self._machine.standing.get(answer.relay)
        files = {} if relay is None else self._unsynced.get(relay.number, {})
        for ordinal in told:
            if any(ordinal in unsynced for unsynced in files.values()):
                yield Early(call.began, answer.relay, ordinal, answer.response["re"])


def _told(answer: Answer) -> range | list[int]:
    """The ordinals of which an answer says that they are there."""
    response = answer.response
    if response["re"] == "recorded" and "through" in response:
        last = response["through"][0]
        return range(response.get("first", last), last + 1)
    if response["re"] == "page":
        return [one.ordinal for one in records(response["records"])]
    return []


def ordinals_in(written: bytes) -> Iterator[int]:
    """The ordinals in the groups of one write."""
    at = 48 if written.startswith(b"RLYSEG01") else 0
    while written[at : at + 4] == b"RLYG":
        first, count, length = struct.unpack_from("<QII", written, at + 32)
        yield from range(first, first + count)
        at += 64 + length
