"""Shows a violation again: from the disk that was kept of it, or from its seed.

$ python tests/chaos/power/replay.py --image FILE
$ python tests/chaos/power/replay.py --tail 17
$ python tests/chaos/power/replay.py --lie 17
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from chaos.power.kept import replay
from chaos.power.lies import any_lie
from chaos.power.tails import any_tail


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--image", type=Path, help="the disk; what was told lies beside it")
    which.add_argument("--tail", type=int, help="the seed of an unanswered group, parts of which reached the disk")
    which.add_argument("--lie", type=int, help="the seed of a story with lying syncs")
    arguments = parser.parse_args()
    wrong = replay(arguments.image) if arguments.image else []
    try:
        if arguments.tail is not None:
            print(any_tail(arguments.tail))  # noqa: T201
        if arguments.lie is not None:
            print(any_lie(arguments.lie))  # noqa: T201
    except AssertionError as error:
        wrong.append(str(error))
    for what in wrong:
        print(f"WRONG: {what}")  # noqa: T201
    print(f"violations: {len(wrong)}")  # noqa: T201
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
