"""Shows a violation again, from the recording that was kept of it:

    python tests/chaos/syscalls/replay.py --log DIRECTORY --prefix N --choice 0.1.2 [--second N --second-choice 0.1.2]

Without `--prefix`: what the log shows by itself. Exit status 1 where it is still wrong.
"""

import argparse
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).resolve().parents[level]) for level in (2, 3)]

from chaos.syscalls.keeping import show_log, show_state


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--log", type=Path, required=True, help="the directory of the recording")
    parser.add_argument("--prefix", type=int, help="the step after which the power is cut")
    parser.add_argument("--choice", help="what of it is on disk")
    parser.add_argument("--second", type=int, default=0, help="the call of the opening after which it is cut again")
    parser.add_argument("--second-choice", default="", help="what is on disk then")
    asked = parser.parse_args()
    if asked.prefix is None:
        wrong = show_log(asked.log)
    else:
        found = show_state(asked.log, asked.prefix, asked.choice, asked.second, asked.second_choice)
        wrong = [] if found is None else [found]
    for what in wrong:
        print(f"WRONG: {what}")  # noqa: T201
    print(f"violations: {len(wrong)}")  # noqa: T201
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
