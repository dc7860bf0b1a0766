"""The long run of real power cuts on ext4: stories cut at exact calls, load cut at random, openings, tails, lies.

$ python tests/chaos/power/long.py --seconds 300 --seed 1

What depends on the kernel's timing is not the same twice from one seed; of a violation there, the disk is kept.
"""

import itertools
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from chaos import kills
from chaos.layer import Budget, Result, Violation, main
from chaos.power import rounds
from chaos.power.campaign import PowerCampaign
from chaos.power.lies import any_lie
from chaos.power.openings import Openings
from chaos.power.rounds import Rounds
from chaos.power.station import a_station, why_not
from chaos.power.tails import any_tail

OPTIONS = ("", "nodelalloc", "dioread_lock", "data=journal")
"""Ways to mount ext4 that bring data to the disk in other orders."""
ROUNDS = 15
CUTS = 12
SMALL = 12
"""Tails and lies each in one go."""

_REPLAY = "python tests/chaos/power/replay.py"


def run(budget: Budget, result: Result) -> None:
    missing = why_not()
    if missing is not None:
        result.left_out.append(f"everything: {missing}")
        return
    covered: Counter[str] = Counter()
    for seed in itertools.count(budget.seed * 1_000_000):
        for part in (_story, _load, _openings, _tails, _lies):
            if budget.over:
                break
            again = f"python tests/chaos/power/long.py --seed {budget.seed} --seconds {budget.seconds:.0f}"
            _try(result, again, lambda part=part, seed=seed: part(seed, covered, budget, result))
            budget.tell(f"{sum(covered[what] for what in covered if what.startswith('cuts'))} cuts")
        if budget.over:
            break
    for what, count in sorted(covered.items()):
        result.count(what, count)


def _try(result: Result, replay: str, part: Callable[[], object]) -> None:
    try:
        part()
    except AssertionError as error:
        result.violations.append(Violation(str(error) or repr(error), getattr(error, "replay", replay)))


def _story(seed: int, covered: Counter[str], budget: Budget, _: Result) -> None:
    options = OPTIONS[seed % len(OPTIONS)]
    with a_station(options=options, **rounds.SETTINGS) as station:
        story = Rounds(station, seed, covered)
        for _ in range(ROUNDS):
            if budget.over:
                break
            story.draw()
        story.finish()
        covered[f"cuts with mount options `{options}`"] += station.machine.cuts


def _load(seed: int, covered: Counter[str], _: Budget, __: Result) -> None:
    with a_station(**kills.SETTINGS) as station:
        PowerCampaign(station, CUTS, seed, covered).run_and_keep()


def _openings(seed: int, covered: Counter[str], budget: Budget, _: Result) -> None:
    with a_station(**rounds.SETTINGS) as station:
        openings = Openings(station, seed, covered)
        for call in itertools.count(1):
            if budget.over or not openings.cut_at(call):
                return


def _tails(seed: int, covered: Counter[str], budget: Budget, result: Result) -> None:
    for one in range(seed * SMALL, (seed + 1) * SMALL):
        if not budget.over:
            _try(result, f"{_REPLAY} --tail {one}", lambda one=one: covered.update([f"tails {any_tail(one)}"]))


def _lies(seed: int, covered: Counter[str], budget: Budget, result: Result) -> None:
    for one in range(seed * SMALL, (seed + 1) * SMALL):
        if not budget.over:
            _try(result, f"{_REPLAY} --lie {one}", lambda one=one: covered.update([f"lies: {any_lie(one)}"]))


if __name__ == "__main__":
    main("real power cuts on ext4", run)
