"""Every trial of this layer by name: long.py makes all of them, replay.py one of them again."""

import errno
import shlex
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from chaos.calls.errnos import Trial, calls_of, trials_of, try_it
from chaos.calls.faults import At
from chaos.calls.groups import GROUP_BYTES, NOT_CUT_BACK, short, torn
from chaos.calls.kills import BEFORE, COURSES, Before, second_kill
from chaos.calls.outcomes import judge
from chaos.calls.stopping import Zygote

OPENING_CALLS_MAX = 75
COURSE_CALLS_MAX = {"stop": 40, "make": 40, "delete": 40}


class Job(NamedTuple):
    """`counted` says what one more of it is; `do` gives None where the call that it names was never made."""

    counted: str
    arguments: tuple[str, ...]
    do: Callable[[Zygote], object]

    @property
    def replay(self) -> str:
        """The command that makes this trial again."""
        return f"python tests/chaos/calls/replay.py {shlex.join(self.arguments)}"


def kill(course: str, at: At, again: int | None = None) -> Job:
    """Killed at a call, and `again` at one of the opening that follows."""
    arguments = ("--workload", course, "--kill", str(at), *(("--again", str(again)) if again else ()))
    counted = f"boundaries killed at: {course}" + (", and again while it opens" if again else "")
    return Job(counted, arguments, lambda zygote: COURSES[course](zygote, at, again))


def kill_opening(what: str, nth: int, again: int | None = None) -> Job:
    """Killed at a call of opening that state."""
    arguments = ("--before", what, "--kill", str(nth), *(("--again", str(again)) if again else ()))
    counted = "boundaries killed at: open" + (", and again while it opens" if again else "")
    return Job(counted, arguments, lambda zygote: _before(zygote, what).trial(At(nth=nth), again))


_made: dict[tuple[Zygote, str], Before] = {}
_making = threading.Lock()
_places: list[tempfile.TemporaryDirectory] = []


def _before(zygote: Zygote, what: str) -> Before:
    """One for each state, made when it is first asked for."""
    with _making:
        if (zygote, what) not in _made:
            place = tempfile.TemporaryDirectory(prefix="rd-")
            _places.append(place)
            _made[zygote, what] = Before(zygote, Path(place.name), what, *BEFORE[what])
        return _made[zygote, what]


def forget() -> None:
    """Removes the states that were made."""
    with _making:
        _made.clear()
        while _places:
            _places.pop().cleanup()


def fail(trial: Trial) -> Job:
    """An errno at a call, once or for ever."""
    arguments = ("--workload", trial.course, "--errno", errno.errorcode[trial.errno], "--at", str(trial.at))

    def do(zygote: Zygote) -> object:
        seen = try_it(zygote, trial)
        judge(trial, seen)
        return seen

    return Job("errnos, for ever" if trial.at.forever else "errnos, once", arguments, do)


def tear(taken: int) -> Job:
    return Job("torn writes", ("--torn", str(taken)), lambda zygote: _torn(zygote, taken))


def _torn(zygote: Zygote, taken: int) -> object:
    found = torn(zygote, taken)
    whole = taken == GROUP_BYTES
    assert found.size == (GROUP_BYTES if whole else 0), f"{found.size} bytes of the group stand"
    assert (found.torn_bytes > 0) is (0 < taken < GROUP_BYTES), f"{found.torn_bytes} torn bytes"
    return found


def cut_short(taken: int, *, cut_back: bool = True) -> Job:
    arguments = ("--short", str(taken), *(() if cut_back else ("--no-cut",)))
    return Job("short writes", arguments, lambda zygote: _short(zygote, taken, cut_back=cut_back))


def _short(zygote: Zygote, taken: int, *, cut_back: bool) -> object:
    found = short(zygote, taken, *(() if cut_back else (NOT_CUT_BACK,)))
    assert found.answer is not None, "the process lives"
    assert found.answer["code"] == "storage_full", found.answer
    assert found.size == 0, f"half a group stays: {found.size} bytes"
    return found


def every(zygote: Zygote, boundaries: list[str]) -> Iterator[Job]:
    """All of them; `boundaries`: the names of all calls of serving, in their order."""
    yield from _kills(boundaries)
    for taken in range(GROUP_BYTES + 1):
        yield tear(taken)
    for taken in range(GROUP_BYTES):
        yield cut_short(taken)
        yield cut_short(taken, cut_back=False)
    for course in ("serve", "open", "make", "delete", "stop"):
        yield from _failures(course, calls_of(zygote, course))


def _kills(boundaries: list[str]) -> Iterator[Job]:
    """At every boundary; at every third one of each course again while it opens."""
    seen: Counter[str] = Counter()
    for number, name in enumerate(boundaries, 1):
        seen[name] += 1
        yield kill("serve", At(name, seen[name]), _third(number))
    for course, calls in COURSE_CALLS_MAX.items():
        yield from (kill(course, At(nth=nth), _third(nth)) for nth in range(1, calls + 1))
    for what in BEFORE:
        yield from (kill_opening(what, nth, _third(nth)) for nth in range(1, OPENING_CALLS_MAX + 1))


def _third(number: int) -> int | None:
    return second_kill(number) if number % 3 == 0 else None


def _failures(course: str, names: list[str]) -> Iterator[Job]:
    """The first call of each name fails once, or that and all behind it; and the last one."""
    times = Counter(names)
    for trial in trials_of(course, names):
        name = trial.at.pattern
        yield fail(trial)
        yield fail(trial._replace(at=At(name, 1, forever=True)))
        if times[name] > 1:
            yield fail(trial._replace(at=At(name, times[name])))
