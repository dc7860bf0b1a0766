"""Judges a kept history again: `python tests/chaos/soak/check.py HISTORY.jsonl STATE`; exit status 1 where it lies."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from chaos.soak.judge import judge


def main() -> None:
    parser = argparse.ArgumentParser(description="Judges the history of a soak and the state it left.")
    parser.add_argument("log", type=Path, help="history.jsonl, as the soak kept it")
    parser.add_argument("state", type=Path, help="the daemon's state directory, kept beside it")
    arguments = parser.parse_args()
    verdict = judge(arguments.log, arguments.state)
    for what in verdict.wrong:
        print(f"WRONG: {what}")  # noqa: T201 - it is a command
    events = sum(one.events for one in verdict.relays)
    print(f"{events} events in {len(verdict.relays)} relays; wrong: {len(verdict.wrong)}")  # noqa: T201
    sys.exit(1 if verdict.wrong else 0)


if __name__ == "__main__":
    main()
