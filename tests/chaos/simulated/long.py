"""The long run of the simulated disk: random histories, sweeps, and disks that lie, in two processes.

    python tests/chaos/simulated/long.py --seconds 600 --seed 1

A violation names the command that shows its history again (replay.py).
"""

import itertools
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from chaos.layer import Budget, Result, Violation, main
from chaos.simulated.figures import what_was_wrong
from chaos.simulated.lies import Lie
from chaos.simulated.replay import command
from chaos.simulated.sweep import sweeps
from chaos.simulated.world import History

PROCESSES = 2
HISTORIES, LIES = 20, 10
"""As many in one portion of work."""
STRIDE = 48
"""A portion of a sweep strikes at every so many-th call; as many portions are the whole of it."""
VIOLATIONS_MAX = 20

WORDS = {
    "calls": "calls of the disk",
    "lives": "lives of the daemon",
    "crashes": "crashes",
    "cuts": "power cuts",
    "met": "lives that met their fault",
    "opened": "openings of a relay",
    "torn": "openings that cut a torn group",
    "rewritten": "openings that wrote bytes over themselves",
    "quarantined": "pieces set aside in quarantine",
    "unavailable": "openings that the disk failed",
    "answered": "events answered, each found at its ordinal",
    "shown": "events shown",
    "duplicates": "answers `duplicate`",
    "sealed": "sealed files on disk at the end",
    "collected": "events collected",
    "survived": "a power cut left of a file or directory: ",
    "sources": "openings began from: ",
}
"""How the figures of an Outcome are told."""


@dataclass
class Portion:
    """What one portion of work came to."""

    counts: Counter = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)
    cpu_seconds: float = 0.0

    def run(self, what: str, run: Callable[[], object], replay: Callable[[], str]) -> None:
        if len(self.violations) >= VIOLATIONS_MAX // 5:
            return
        began = time.process_time()
        self.counts[what] += 1
        try:
            outcome = run()
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is a finding
            self.violations.append(Violation(what_was_wrong(error), replay()))
        else:
            self._add(outcome)
        self.cpu_seconds += time.process_time() - began

    def _add(self, outcome: object) -> None:
        if isinstance(outcome, Counter):
            self.counts.update({f"lied to, then told: {word}": number for word, number in outcome.items()})
            return
        for each in fields(outcome):
            value = getattr(outcome, each.name)
            if isinstance(value, Counter):
                self.counts.update({f"{WORDS[each.name]}{word}": number for word, number in value.items()})
            else:
                self.counts[WORDS[each.name]] += value


def random_histories(first: int) -> Portion:
    portion = Portion()
    for seed in range(first, first + HISTORIES):
        history = History(seed)
        portion.run("random histories", history.run, partial(command, history, drawn=True))
    return portion


def lies(first: int) -> Portion:
    portion = Portion()
    for seed in range(first, first + LIES):
        lie = Lie(seed)
        portion.run("histories on a disk that lies", lie.run, partial(command, lie, drawn=True))
    return portion


def sweep(number: int, first: int) -> Portion:
    portion = Portion()
    for history in sweeps()[number].histories(first, STRIDE):
        portion.run("histories of sweeps", history.run, partial(command, history, drawn=False))
    return portion


def _work(seed: int) -> Iterator[tuple]:
    """Portions without end: half of the time goes to random histories."""
    slices = itertools.cycle((number, first) for first in range(1, STRIDE + 1) for number in range(len(sweeps())))
    for at in itertools.count():
        yield random_histories, seed * 10_000_000 + at * HISTORIES
        yield sweep, *next(slices)
        if at % 4 == 0:
            yield lies, seed * 10_000_000 + at * LIES


def run(budget: Budget, result: Result) -> None:
    """Until time is up; then what is under way is finished."""
    work, cpu_seconds = _work(result.seed), 0.0
    with ProcessPoolExecutor(PROCESSES) as pool:
        running: set[Future[Portion]] = set()
        while running or not budget.over:
            while not budget.over and len(running) <= PROCESSES and len(result.violations) < VIOLATIONS_MAX:
                running.add(pool.submit(*next(work)))
            if not running:
                break
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for portion in (future.result() for future in done):
                cpu_seconds += portion.cpu_seconds
                result.violations += portion.violations
                for what, number in portion.counts.items():
                    result.count(what, number)
            budget.tell(f"{_histories(result):,} histories, {len(result.violations)} wrong")
    result.counts = dict(sorted(result.counts.items()))
    result.counts["histories a minute"] = round(_histories(result) / budget.passed * 60, 1)
    result.counts["histories a minute of one processor's time"] = round(_histories(result) / cpu_seconds * 60, 1)
    result.left_out.append("two jobs of file work at once: each runs to its end before the next begins")


def _histories(result: Result) -> int:
    return sum(number for what, number in result.counts.items() if "histories" in what and "minute" not in what)


if __name__ == "__main__":
    main("simulated disk", run)
