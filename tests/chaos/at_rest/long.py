"""Every bit and every shortening of every file of small relays, then whole relays damaged in several ways at once.

    python tests/chaos/at_rest/long.py --seconds 900 --seed 1

The single damages come in an order that the seed shuffles, and take up to two thirds of the time.
"""

import random
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from chaos.at_rest.judge import judge
from chaos.at_rest.mutate import mutated
from chaos.at_rest.relay import Relay, in_memory
from chaos.at_rest.sweep import every_damage, replay_mutated, try_damage, try_mutated
from chaos.layer import Budget, Result, Violation, main

SINGLE_SHARE = 2 / 3
NOUNS = {"bit": "bits flipped", "cut": "truncations"}


def run(budget: Budget, result: Result) -> None:
    """Fills `result`."""
    with in_memory() as place:
        relay = Relay(place)
        sweep(relay, budget, result)
        mutate(relay, budget, result)


def sweep(relay: Relay, budget: Budget, result: Result) -> None:
    """Single damages, each at most once."""
    for what in (*NOUNS.values(), "of these, relays that opened", "of these, relays that refused", "unnoticed"):
        result.count(what, 0)
    damages = every_damage()
    random.Random(budget.seed).shuffle(damages)
    for done, damage in enumerate(damages):
        if budget.passed > budget.seconds * SINGLE_SHARE:
            result.left_out.append(f"{len(damages) - done:,} of {len(damages):,} single damages: the time was over")
            return
        tried = try_damage(relay, damage)
        result.count(NOUNS[damage.kind])
        result.count("of these, relays that opened" if tried.opens else "of these, relays that refused")
        if tried.unnoticed:
            result.count("unnoticed")
            result.violations.append(Violation("the relay opens, and verify finds nothing", damage.replay))
        result.violations += [Violation(each, damage.replay) for each in tried.wrong]
        budget.tell(f"{done + 1:,} of {len(damages):,} single damages")


def mutate(relay: Relay, budget: Budget, result: Result) -> None:
    """Whole relays, until the time is over."""
    number = 0
    while not budget.over:
        wrong = try_mutated(relay, budget.seed, number)
        result.violations += [Violation(each, replay_mutated(budget.seed, number)) for each in wrong]
        result.count("mutated relay directories")
        result.count(f"  {getattr(judge(mutated(budget.seed, number)[0]), 'code', 'opens')}")
        number += 1
        budget.tell(f"{number:,} mutated relay directories")


if __name__ == "__main__":
    main("files at rest", run)
