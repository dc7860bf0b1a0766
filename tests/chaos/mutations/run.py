"""Mutates relayd and runs its tests: each mutation takes one protection away, and some test has to fail for it.

    python tests/chaos/mutations/run.py                        all of them, two at a time
    python tests/chaos/mutations/run.py --only row_5,own_offset
    python tests/chaos/mutations/run.py --list

Each runs in a copy of the repository: first the tests that are named for it, then, where they pass, all that could know
better. Exit status 1 where a mutation is missed by all of them, or where tests fail without any mutation.
"""

import argparse
import random
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import msgspec
from chaos.layer import Budget, Result, Violation
from chaos.mutations.copies import Copy, NotRunError, copy_of, copy_repository, temporary_place
from chaos.mutations.every import MUTATIONS
from chaos.mutations.mutation import Mutation

LANES = 2
NAMED_SECONDS_MAX = 120
ALL_SECONDS_MAX = 900
LAST_SECONDS = 40
"""With less than that left, no mutation is begun."""
ALL = ("tests", "--ignore=tests/docs", "--ignore=tests/chaos/mutations")
"""Every test but those that look at the source itself."""


class Campaign:
    """Mutations in lanes. `result` has what came out."""

    def __init__(self, mutations: Sequence[Mutation], budget: Budget, result: Result) -> None:
        self._waiting = list(mutations)
        self._count = len(mutations)
        self._budget = budget
        self._result = result
        self._lock = threading.Lock()

    def run(self) -> None:
        """Returns when all are done, or time is over."""
        with temporary_place() as place:
            original = copy_repository(place / "o")
            if not self._passes_unchanged(original):
                return
            lanes = [threading.Thread(target=self._lane, args=(original, place / str(lane))) for lane in range(LANES)]
            for lane in lanes:
                lane.start()
            for lane in lanes:
                lane.join()
        if self._waiting:
            names = ", ".join(mutation.name for mutation in self._waiting)
            self._result.left_out.append(f"{len(self._waiting)} mutations for want of time: {names}")
        self._result.count("mutations", self._count - len(self._waiting))
        self._result.count("caught", len(self._result.caught_by))

    def _passes_unchanged(self, original: Copy) -> bool:
        """A test that fails anyway catches nothing; and what Python compiles here, the copies have."""
        tests = sorted({test for mutation in self._waiting for test in mutation.tests})
        try:
            failed = original.failure(tuple(tests), ALL_SECONDS_MAX)
        except NotRunError as error:
            failed = str(error)
        if failed is not None:
            what = f"without any mutation: {failed}"
            self._result.violations.append(Violation(what, f"python -m pytest {' '.join(tests)}"))
        return failed is None

    def _lane(self, original: Copy, place: Path) -> None:
        while True:
            with self._lock:
                if not self._waiting or self._budget.left < LAST_SECONDS:
                    return
                mutation = self._waiting.pop(0)
                self._budget.tell(f"{self._count - len(self._waiting)} of {self._count}: {mutation.name}")
            try:
                caught_by, missed = catch(mutation, original, place), "MISSED"
            except NotRunError as error:
                caught_by, missed = None, f"NOT RUN, {error}:"
            with self._lock:
                self._note(mutation, caught_by, missed)

    def _note(self, mutation: Mutation, caught_by: str | None, missed: str) -> None:
        if caught_by is not None:
            self._result.caught_by[f"{mutation.name}: {mutation.protects}"] = caught_by
            return
        what = f"{missed} {mutation.name} (relayd/{mutation.file}): {mutation.protects}"
        self._result.violations.append(Violation(what, f"python tests/chaos/mutations/run.py --only {mutation.name}"))


def catch(mutation: Mutation, original: Copy, place: Path) -> str | None:
    """The test that fails for it, run in a copy at `place`; None where none does. Raises NotRunError."""
    with copy_of(original, place) as copy:
        copy.mutate(mutation)
        if failed := copy.failure(mutation.tests, NAMED_SECONDS_MAX):
            return failed
        passed_over: list[str] = []
        while failed := copy.failure((*ALL, *(f"--deselect={test}" for test in passed_over)), ALL_SECONDS_MAX):
            if not _fails_anyway(failed, original, place.with_suffix(".unchanged")):
                return failed
            passed_over.append(_without_case(failed))
    return None


def _fails_anyway(test: str, original: Copy, place: Path) -> bool:
    """Whether a test fails without the mutation too, and so catches nothing: those not named for it are not proven."""
    with copy_of(original, place) as copy:
        return copy.failure((_without_case(test),), NAMED_SECONDS_MAX) is not None


def _without_case(test: str) -> str:
    return test.partition("[")[0]


def run(budget: Budget, result: Result, mutations: Sequence[Mutation] = MUTATIONS) -> None:
    """As tests/chaos/layer.py has it. With little time, chance says which are done."""
    shuffled = random.Random(budget.seed).sample(mutations, len(mutations))
    Campaign(shuffled, budget, result).run()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="names of mutations, with commas between; all without it")
    parser.add_argument("--list", action="store_true", help="say which there are, and what each takes away")
    parser.add_argument("--seconds", type=float, default=3600, help="how long to go on at most (default: 3600)")
    parser.add_argument("--seed", type=int, default=1, help="which come first (default: 1)")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    arguments = parser.parse_args()
    names = [name for name in arguments.only.split(",") if name]
    unknown = set(names) - {mutation.name for mutation in MUTATIONS}
    if unknown:
        parser.error(f"no such mutation: {', '.join(sorted(unknown))}; --list has them all")
    chosen = [mutation for mutation in MUTATIONS if not names or mutation.name in names]
    if arguments.list:
        for mutation in chosen:
            print(f"{mutation.name:36} relayd/{mutation.file:28} {mutation.protects}")  # noqa: T201 - it is a command
        return
    result = Result(layer="mutations", seed=arguments.seed)
    budget = Budget(arguments.seconds, arguments.seed)
    run(budget, result, chosen)
    result.seconds = budget.passed
    for taken, test in sorted(result.caught_by.items()):
        print(f"{taken}\n    {test}")  # noqa: T201 - it is a command
    print(result.text())  # noqa: T201 - it is a command
    if arguments.json is not None:
        arguments.json.write_bytes(msgspec.json.encode(result))
    sys.exit(1 if result.violations else 0)


if __name__ == "__main__":
    main()
