"""Cuts the power at every step of a recording, in every way that may be, and opens what is left."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from chaos.syscalls.disk import Directory
from chaos.syscalls.judging import Judge
from chaos.syscalls.machine import Machine, Step
from chaos.syscalls.openings import states_within_opening
from chaos.syscalls.recording import Recording
from chaos.syscalls.said import Dialogue
from chaos.syscalls.states import Bounds, State, states_of
from chaos.syscalls.trial import Bench, Outcome


class Wrong(NamedTuple):
    """What may not be, and where: a cut after step `prefix` of the log, in the way that `choice` says.

    `second`: the opening of that state was cut off in turn, after its call `second`, in the way `second_choice`.
    """

    what: str
    prefix: int
    choice: str
    second: int = 0
    second_choice: str = ""


@dataclass
class Figures:
    """`steps`: places of the log at which it was cut; `complete`: those of which every state there is was tried."""

    calls: int = 0
    kills: int = 0
    answers: int = 0
    steps: int = 0
    complete: int = 0
    states: int = 0
    distinct: int = 0
    openings: int = 0
    second_cuts: int = 0
    """Distinct states that a second cut, in the opening of one of the others, may leave."""
    by_call: dict[str, int] = field(default_factory=dict)


Picked = Callable[[Step], bool]

SECOND = Bounds(states=24, contents=6, unread=2, watermarks=2)
"""What is tried after each call of an opening."""


class Cutting:
    """One recording. Of every `twice_every`-th distinct state the opening is cut off too, at each of its calls."""

    def __init__(self, recording: Recording, bench: Bench, bounds: Bounds, twice_every: int = 0) -> None:
        self.machine = Machine(recording.place)
        self.dialogue = Dialogue(self.machine)
        self.judge = Judge(self.machine, self.dialogue)
        self.figures = Figures(calls=len(recording.calls), kills=recording.kills)
        self._recording = recording
        self._bench = bench
        self._bounds = bounds
        self._twice_every = twice_every
        self._outcomes: dict[bytes, Outcome] = {}

    def steps(self) -> Iterator[tuple[Step, tuple[Directory, ...]]]:
        """Every step after which a cut is to be tried, and the relays it may hurt."""
        for step in self.machine.run(self._recording.calls):
            answers = self.dialogue.take(step)
            relays = step.relays
            if step.what == "sent":
                self.figures.answers += len(answers)
                standing = (self.machine.standing.get(answer.relay) for answer in answers if answer.relay)
                relays = tuple(dict.fromkeys(relay for relay in standing if relay is not None))
            if relays:
                yield step, relays

    def run(self, picked: Picked = lambda _: True) -> Iterator[Wrong]:
        """What is wrong, as it is found; only the steps that are `picked` are cut at."""
        for step, relays in self.steps():
            if picked(step):
                yield from self.cut(step, relays)

    def cut(self, step: Step, relays: tuple[Directory, ...]) -> Iterator[Wrong]:
        found = states_of(self.machine.root, relays, self._bounds, step.number)
        figures = self.figures
        figures.steps += 1
        figures.complete += found.complete
        figures.states += len(found.states)
        figures.by_call[step.call.name] = figures.by_call.get(step.call.name, 0) + 1
        for state in found.states:
            relay = relays[state.choice[0]]
            known = figures.distinct
            wrong = self.judge.judge(relay, self._outcome(state))
            if wrong is not None:
                yield Wrong(f"{self._name(relay)}: {wrong}", step.number, state.text)
            elif figures.distinct > known and self._is_cut_twice(state):
                yield from self._cut_opening(step, relay, state)

    def _name(self, relay: Directory) -> str:
        return f"relay {self.machine.standing_name(relay) or '(without a name)'}"

    def _is_cut_twice(self, state: State) -> bool:
        is_relay = state.name is not None and not state.name.startswith(".")
        return is_relay and bool(self._twice_every) and self.figures.distinct % self._twice_every == 0

    def _cut_opening(self, step: Step, relay: Directory, first: State) -> Iterator[Wrong]:
        for call, state in states_within_opening(self._bench, first, SECOND):
            known = self.figures.distinct
            wrong = self.judge.judge(relay, self._outcome(state))
            self.figures.second_cuts += self.figures.distinct - known
            self.figures.distinct = known
            if wrong is not None:
                what = f"{self._name(relay)}, cut off in its opening too: {wrong}"
                yield Wrong(what, step.number, first.text, call, state.text)

    def _outcome(self, state: State) -> Outcome:
        """Each distinct state is opened once."""
        key = state.key
        outcome = self._outcomes.get(key)
        if outcome is None:
            before = self._bench.openings
            outcome = self._outcomes[key] = self._bench.try_state(state)
            self.figures.distinct += 1
            self.figures.openings += self._bench.openings - before
        return outcome
