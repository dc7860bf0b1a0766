"""Shows one history of the simulated disk again.

python tests/chaos/simulated/replay.py --seed 12345 --trace
python tests/chaos/simulated/replay.py --seed 2 --plan "kill=12;end=cut;left=3" --everything
"""

import argparse
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from chaos.simulated.figures import what_was_wrong
from chaos.simulated.lies import Lie
from chaos.simulated.plans import from_text
from chaos.simulated.world import History


def command(history: History, *, drawn: bool) -> str:
    """The one command that shows `history` again; `drawn`: its lives came from its seed."""
    plan = "" if drawn else f' --plan "{history.plan}"'
    flags = (" --everything" if history.everything else "") + (" --lied-to" if isinstance(history, Lie) else "")
    return f"python tests/chaos/simulated/replay.py --seed {history.seed}{plan}{flags}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, required=True, help="what the history is made from")
    parser.add_argument("--plan", help="its lives, where they do not come from the seed (plans.py)")
    parser.add_argument("--everything", action="store_true", help="every kind of client acts (a sweep's workload)")
    parser.add_argument("--lied-to", action="store_true", help="a history of lies.py")
    parser.add_argument("--trace", action="store_true", help="print every call, request and answer")
    arguments = parser.parse_args()
    lives = None if arguments.plan is None else from_text(arguments.plan)
    trace = print if arguments.trace else None
    if arguments.lied_to:
        history = Lie(arguments.seed, trace=trace)
    else:
        history = History(arguments.seed, lives, everything=arguments.everything, trace=trace)
    print(f"seed {history.seed}, lives: {history.plan}")  # noqa: T201 - it is a command
    try:
        print(history.run())  # noqa: T201
    except BaseException as error:
        print(f"WRONG: {what_was_wrong(error)}", file=sys.stderr)  # noqa: T201
        raise


if __name__ == "__main__":
    main()
