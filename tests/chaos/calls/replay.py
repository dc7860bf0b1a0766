"""Makes one trial of this layer again, as a violation of long.py names it.

python tests/chaos/calls/replay.py --workload serve --kill 137
python tests/chaos/calls/replay.py --workload serve --kill 'fdatasync kept/journal/active.log#3' --again 12
python tests/chaos/calls/replay.py --before 'a torn group' --kill 9
python tests/chaos/calls/replay.py --workload open --errno EIO --at 'pread kept/snapshot#1'
python tests/chaos/calls/replay.py --torn 70
python tests/chaos/calls/replay.py --short 70 --no-cut
"""

import argparse
import errno
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from chaos.calls.errnos import Trial
from chaos.calls.faults import At
from chaos.calls.jobs import Job, cut_short, fail, forget, kill, kill_opening, tear
from chaos.calls.kills import BEFORE
from chaos.calls.stopping import zygote


def chosen(given: argparse.Namespace) -> Job:
    """The trial that the arguments name."""
    if given.torn is not None:
        return tear(given.torn)
    if given.short is not None:
        return cut_short(given.short, cut_back=not given.no_cut)
    if given.before is not None:
        return kill_opening(given.before, int(given.kill), given.again)
    if given.errno is not None:
        return fail(Trial(given.workload, At.parse(given.at), getattr(errno, given.errno)))
    at = At(nth=int(given.kill)) if given.kill.isdigit() else At.parse(given.kill)
    return kill(given.workload, at, given.again)


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", choices=("serve", "stop", "make", "delete", "open"))
    parser.add_argument("--before", choices=tuple(BEFORE), help="the state to be opened")
    parser.add_argument("--kill", help="the call's number, or its name and `#` and which of them")
    parser.add_argument("--again", type=int, help="the number of a call of the opening that follows: killed there too")
    parser.add_argument("--errno", help="as EIO")
    parser.add_argument("--at", help="the call that fails; `+` at its end: and all behind it")
    parser.add_argument("--torn", type=int, metavar="BYTES")
    parser.add_argument("--short", type=int, metavar="BYTES")
    parser.add_argument("--no-cut", action="store_true", help="the cut after a short write fails too")
    return parser.parse_args(arguments)


def main() -> None:
    job = chosen(parsed())
    with zygote() as started:
        try:
            done = job.do(started)
        finally:
            forget()
    print(f"nothing wrong: {done}" if done is not None else "the call was not made")  # noqa: T201 - it is a command


if __name__ == "__main__":
    main()
