"""The long run: records the daemon again and again, each time with other requests and kills, and cuts everywhere.

    python tests/chaos/syscalls/long.py --seconds 600 --seed 1

Two processes, each with a recording of its own. What is wrong keeps its recording.
"""

import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).resolve().parents[level]) for level in (2, 3)]

from chaos.layer import Budget, Result, Violation, main
from chaos.syscalls.cutting import Cutting, Figures
from chaos.syscalls.keeping import keep
from chaos.syscalls.law import check_order
from chaos.syscalls.recording import STRACE_MISSING, WITHOUT_STRACE, Kill, record
from chaos.syscalls.states import Bounds
from chaos.syscalls.trial import Bench

PROCESSES = 2
ROUNDS = 40
KILLS = (("fdatasync", 80), ("pwritev2", 120), ("fsync", 70), ("renameat", 60), ("unlinkat", 20), ("openat", 900))
"""A call, and up to which one of it in a thread the daemon may be killed."""
BOUNDS = Bounds()
CUT_TWICE_EVERY = 60
WRONG_MOST = 5


class Done(NamedTuple):
    """What one recording gave."""

    figures: Figures
    ordered: int
    wrong: list[Violation]


def cut_one_recording(seed: int, deadline: float) -> Done:
    """Records once, and cuts until all is done or time is over."""
    chance = random.Random(f"syscalls {seed}")
    kills = [Kill(call, chance.randint(5, most)) for call, most in chance.choices(KILLS, k=chance.randint(0, 3))]
    directory = Path(tempfile.mkdtemp(prefix="recorded-calls-"))
    wrong: list[Violation] = []
    figures, ordered = Figures(), 0
    try:
        recording = record(directory, lambda workload: workload.run(ROUNDS), *kills, seed=seed)
        checked = check_order(recording)
        ordered = checked.answers
        wrong += [
            Violation(f"told before a sync had covered it: {one}", keep(directory, BOUNDS)) for one in checked.early
        ]
        with Bench() as bench:
            cutting = Cutting(recording, bench, BOUNDS, CUT_TWICE_EVERY)
            figures = cutting.figures
            for one in cutting.run(lambda _: time.monotonic() < deadline):
                wrong.append(Violation(one.what, keep(directory, BOUNDS, one)))
                if len(wrong) >= WRONG_MOST:
                    break
    except AssertionError as error:
        wrong.append(Violation(f"{type(error).__name__}: {error}", keep(directory, BOUNDS)))
    if not wrong:
        shutil.rmtree(directory)
    return Done(figures, ordered, wrong)


def run(budget: Budget, result: Result) -> None:
    if STRACE_MISSING:
        result.left_out.append(f"everything: {WITHOUT_STRACE}")
        return
    deadline = time.monotonic() + budget.left
    figures: Counter[str] = Counter()
    seeds = iter(range(1000 * budget.seed, 1000 * budget.seed + 1000))
    with ProcessPoolExecutor(PROCESSES) as pool:
        running = {pool.submit(cut_one_recording, next(seeds), deadline) for _ in range(PROCESSES)}
        while running:
            done, running = wait(running, timeout=5, return_when=FIRST_COMPLETED)
            for one in done:
                _take(one, result, figures)
                if not budget.over and len(result.violations) < WRONG_MOST:
                    running.add(pool.submit(cut_one_recording, next(seeds), deadline))
            budget.tell(f"{figures['distinct']:,} distinct states")
    _show(result, figures, budget)


def _take(done: Future[Done], result: Result, figures: Counter[str]) -> None:
    found = done.result()
    figures["recordings"] += 1
    figures["ordered"] += found.ordered
    figures.update({name: value for name, value in asdict(found.figures).items() if isinstance(value, int)})
    result.violations += found.wrong


def _show(result: Result, figures: Counter[str], budget: Budget) -> None:
    result.counts |= {
        "recordings": figures["recordings"],
        "processes killed in them": figures["kills"],
        "calls recorded": figures["calls"],
        "answers and pages, each after its events' sync": figures["ordered"],
        "places of the log at which the power was cut": figures["steps"],
        "of those, with every state tried (old watermarks, .new drawn)": figures["complete"],
        "of those, with states drawn": figures["steps"] - figures["complete"],
        "disk states": figures["states"],
        "distinct disk states": figures["distinct"],
        "distinct states after a second cut, in an opening": figures["second_cuts"],
        "openings": figures["openings"],
        "openings a second": figures["openings"] / max(1.0, budget.passed),
    }


if __name__ == "__main__":
    main("syscall log", run)
