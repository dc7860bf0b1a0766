"""The soak: `python tests/chaos/soak/long.py --seconds 600 --clients 8 --seed 1`.

Clients of many kinds, and a nemesis that takes a fault at random, again and again; the whole history is logged, judged
against a model and the files at the end, and everything that carries a sequence sent again.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from chaos.layer import Budget, Result, Violation, main
from chaos.soak.soak import run_soak

CLIENTS = 8
AT_THE_END = ("killed", "crowd", "slow reader", "half closed", "few descriptors", "mutated frames", "paused")
"""The last process has met all that may leave something behind in one that lives on."""
TOLD = 20
"""So many violations are told one by one; check.py tells all."""
JUDGING_SHARE = 0.15
"""Of the time, what sending again and judging take."""


def run(budget: Budget, result: Result, clients: int = CLIENTS) -> None:
    """As tests/chaos/layer.py has it."""

    def wounds() -> Iterator[str | None]:
        made = 0
        while budget.left > budget.seconds * JUDGING_SHARE:
            budget.tell(f"{made} faults")
            made += 1
            yield None
        yield from AT_THE_END

    outcome = run_soak(wounds(), clients, budget.seed)
    for name, count in sorted(outcome.wounds.items()):
        result.count(f"faults: {name}", count)
    heard = outcome.verdict.heard
    result.counts |= heard.counts
    result.count("refusals that a fault explains", len(heard.refusals))
    result.count("events on disk or collected", sum(one.events for one in outcome.verdict.relays))
    result.count("events collected", sum(one.collected for one in outcome.verdict.relays))
    result.count("answered as duplicates", sum(one.duplicates for one in outcome.verdict.relays))
    if outcome.why_not_full is not None:
        result.left_out.append(f"a full disk: {outcome.why_not_full}")
    replay = f"python tests/chaos/soak/check.py {outcome.kept}/history.jsonl {outcome.kept}/state"
    wrong = outcome.verdict.wrong
    told = [*wrong[:TOLD], f"and {len(wrong) - TOLD} more"] if len(wrong) > TOLD else wrong
    result.violations += [Violation(what, replay) for what in told]


def parse_clients(arguments: list[str]) -> int:
    """Takes `--clients N` out of a command line."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--clients", type=int, default=CLIENTS)
    own, rest = parser.parse_known_args(arguments)
    arguments[:] = rest
    return own.clients


if __name__ == "__main__":
    count = parse_clients(sys.argv)
    main("soak", lambda budget, result: run(budget, result, count))
