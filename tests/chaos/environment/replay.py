"""Lives through one hardship again: what long.py prints beside whatever was wrong.

    python tests/chaos/environment/replay.py full 1:17

The number draws the same sizes and moments; what the machine does between them is its own.
"""

import sys
from pathlib import Path
from random import Random

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from chaos.environment.hardships import HARDSHIPS, Counts
from support.daemon import short_place


def live_through(hardship: str, number: str) -> Counts:
    """Raises where anything was not as it has to be."""
    with short_place() as place:
        return HARDSHIPS[hardship](place, Random(f"{hardship} {number}"))


if __name__ == "__main__":
    print(live_through(*sys.argv[1:]))  # noqa: T201 - it is a command
