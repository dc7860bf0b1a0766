"""Every call boundary of the real process: all kills, all errnos, a group torn at each byte.

    python tests/chaos/calls/long.py --seconds 900 --seed 1

The seed is the order in which the trials are made; with time enough for all of them (some 15 minutes on two cores) it
does not matter. What there was no time for is said.
"""

import random
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from chaos.calls import notify
from chaos.calls.jobs import Job, every, forget
from chaos.calls.life import begin, life, until_quiet_or_killed
from chaos.calls.stopping import Zygote, zygote
from chaos.calls.tries import SIDE_BY_SIDE
from chaos.layer import Budget, Result, Violation, main

NOT_MADE = "trials whose call did not come again"


def boundaries_of(zygote: Zygote) -> list[str]:
    """The calls of a whole life that change something, in their order."""
    with life(zygote) as (daemon, clients):
        before = begin(daemon, clients)
        clients.serve()
        until_quiet_or_killed(daemon)
        return daemon.supervisor.names(before)


def run(budget: Budget, result: Result) -> None:
    reason = notify.unsupported()
    if reason is not None:
        result.left_out.append(f"everything: {reason}")
        return
    with zygote() as started:
        boundaries = boundaries_of(started)
        jobs = list(every(started, boundaries))
        random.Random(budget.seed).shuffle(jobs)
        result.counts |= {"boundaries of serving": len(boundaries), "names of calls": len(set(boundaries)), "trials": 0}
        try:
            with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
                list(pool.map(lambda job: _make(started, job, budget, result), jobs))
        finally:
            forget()
        left = len(jobs) - result.counts["trials"]
        if left:
            result.left_out.append(f"{left} of {len(jobs)} trials, for want of time")


def _make(zygote: Zygote, job: Job, budget: Budget, result: Result) -> None:
    if budget.over:
        return
    try:
        done = job.do(zygote)
    except Exception as error:  # noqa: BLE001 - whatever is wrong is told with the command that shows it again
        result.violations.append(Violation(f"{type(error).__name__}: {error}"[:600], job.replay))
        done = error
    result.count("trials")
    result.count(job.counted if done is not None else NOT_MADE)
    budget.tell(f"{result.counts['trials']:,} trials, {len(result.violations)} violations")


if __name__ == "__main__":
    main("every call boundary", run)
