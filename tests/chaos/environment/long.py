"""The long run of hostile environments: what of them has chance in it, drawn again and again.

python tests/chaos/environment/long.py --seconds 300 --seed 1
"""

import os
import sys
from pathlib import Path
from random import Random

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from chaos.environment.cgroup import limits_memory
from chaos.environment.hardships import NEEDS_ROOT, SHARES
from chaos.environment.replay import live_through
from chaos.layer import Budget, Result, Violation, main

MINUTE_FROM_SECONDS = 150
"""A run of so much time has room for the minute of SIGSTOP."""


def run(budget: Budget, result: Result) -> None:
    chance = Random(budget.seed)
    shares = _possible(result)
    result.counts["histories"] = 0
    if budget.left >= MINUTE_FROM_SECONDS:
        _live("stopped_for_a_minute", f"{budget.seed}:0", result)
    else:
        result.left_out.append("a minute of SIGSTOP: there is too little time for it")
    while not budget.over:
        (hardship,) = chance.choices(list(shares), list(shares.values()))
        _live(hardship, f"{budget.seed}:{result.counts['histories']}", result)
        budget.tell(f"{result.counts['histories']:,} histories, {len(result.violations)} violations")


def _possible(result: Result) -> dict[str, int]:
    left_out = {}
    if os.geteuid() != 0:
        left_out = dict.fromkeys(NEEDS_ROOT, "needs root")
    elif not limits_memory():
        left_out = {"slow_readers": "needs cgroup version 1's memory controller"}
    result.left_out += [f"{hardship}: {reason}" for hardship, reason in left_out.items()]
    return {hardship: share for hardship, share in SHARES.items() if hardship not in left_out}


def _live(hardship: str, number: str, result: Result) -> None:
    try:
        counts = live_through(hardship, number)
    except Exception as error:  # noqa: BLE001 - whatever is wrong is told with the command that shows it again
        replay = f"python tests/chaos/environment/replay.py {hardship} {number}"
        result.violations.append(Violation(f"{hardship}: {type(error).__name__}: {error}"[:600], replay))
        counts = {}
    result.count("histories")
    for what, count in counts.items():
        result.count(what, count)


if __name__ == "__main__":
    main("hostile environment", run)
