"""The long run of "frames and peers": a million mutated frames in memory, and a real daemon among 10,000 peers.

    python tests/chaos/peers/long.py --seconds 330 --seed 1

Over sockets first, in shares of the time; then mutated frames, as many as a million of them.
"""

import gc
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from chaos.layer import Budget, Result, Violation, main
from chaos.peers.crowds import flood_of_connects, mutated_over_sockets, never_complete, ten_thousand
from chaos.peers.mutated import Counts, FoundError, run_epoch

FRAMES = 1_000_000
FRAMES_OVER_SOCKETS = 100_000
SETTLED_EPOCHS = 20
"""After so many a process has all that it needs for one."""
BLOCKS_MAX = 20_000
"""A million frames may leave so many of Python's memory blocks in use: 0.02 for each. How much memory a process has for
them is bounded where it is a daemon's own (chaos/peers/crowds.py): this one also draws the frames, and compares.
"""


def run(budget: Budget, result: Result) -> None:
    """Every part; one that breaks is a violation, and the others go on."""
    seconds = budget.seconds
    parts = [lambda: mutated_over_sockets(budget, result, seconds * 0.12, FRAMES_OVER_SOCKETS)]
    if seconds >= 120:
        parts += [lambda part=part: part(budget, result) for part in (ten_thousand, flood_of_connects, never_complete)]
    else:
        result.left_out.append("10,000 connections, floods, half frames: they need --seconds 120")
    for part in parts:
        try:
            part()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a violation that is told
            replay = f"python tests/chaos/peers/long.py --seconds {seconds:.0f} --seed {budget.seed}"
            result.violations.append(Violation(f"{type(error).__name__}: {error}", replay))
    mutated(budget, result)


def mutated(budget: Budget, result: Result) -> None:
    """Epoch after epoch in memory, until there were a million frames or time is over."""
    counts, epoch, settled = Counts(), 0, 0
    while counts.frames < FRAMES and not budget.over:
        try:
            counts.add(run_epoch(budget.seed, epoch))
        except FoundError as found:
            replay = f"python tests/chaos/peers/mutated.py --seed {budget.seed} --frame {found.number}"
            result.violations.append(Violation(found.why, replay))
        epoch += 1
        if epoch == SETTLED_EPOCHS:
            gc.collect()
            settled = sys.getallocatedblocks()
        budget.tell(f"{counts.frames} mutated frames in memory")
    result.counts |= {
        "mutated frames in memory": counts.frames,
        "connections that sent them": counts.batches,
        "events stored by those that were allowed, compared byte for byte": counts.events,
    }
    result.counts |= {f"mutation: {name}": count for name, count in sorted(counts.mutations.items())}
    result.counts |= {f"answer: {name}": count for name, count in sorted(counts.outcomes.items())}
    if counts.frames < FRAMES:
        result.left_out.append(f"{FRAMES - counts.frames:,} of {FRAMES:,} mutated frames: no time was left")
    if settled:
        gc.collect()
        grown = sys.getallocatedblocks() - settled
        result.counts["memory blocks in use, more than after the first epochs"] = grown
        if grown > BLOCKS_MAX:
            replay = f"python tests/chaos/peers/long.py --seconds {budget.seconds:.0f} --seed {budget.seed}"
            result.violations.append(Violation(f"{grown} blocks of memory were kept by mutated frames", replay))


if __name__ == "__main__":
    main("frames and peers", run)
