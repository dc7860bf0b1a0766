"""What every layer's long run gives: counts, what was wrong with the command that shows it again, what was left out.

A layer's `long.py` ends in

    if __name__ == "__main__":
        main("simulated disk", run)

and so has one command line: `--seconds`, `--seed`, `--json FILE`. tests/chaos/campaign.py runs them all.
"""

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec


class Violation(msgspec.Struct):
    """Something that may never be: `what` was wrong, and the one command that shows it again."""

    what: str
    replay: str


class Result(msgspec.Struct, kw_only=True):
    """A layer's figures. `counts`: by what was counted, in the order to be shown; `left_out`: what, and why.

    `caught_by`: only of the mutations, the test that caught each.
    """

    layer: str
    seed: int
    seconds: float = 0.0
    counts: dict[str, int | float] = {}
    violations: list[Violation] = []
    caught_by: dict[str, str] = {}
    left_out: list[str] = []

    def count(self, what: str, more: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + more

    def text(self) -> str:
        """For people."""
        lines = [f"{self.layer}, seed {self.seed}, {self.seconds:.0f} s"]
        lines += [f"  {what:<60} {figure(number):>12}" for what, number in self.counts.items()]
        lines += [f"  left out: {what}" for what in self.left_out]
        for violation in self.violations:
            lines += [f"  WRONG: {violation.what}", f"         {violation.replay}"]
        lines.append(f"  violations: {len(self.violations)}")
        return "\n".join(lines)


def figure(number: float) -> str:
    return f"{number:,.1f}" if isinstance(number, float) else f"{number:,}"


@dataclass
class Budget:
    """Time that is given: `left` is in seconds. Progress is a line on standard error, a terminal's in place."""

    seconds: float
    seed: int
    _began: float = field(default_factory=time.monotonic)
    _told: float = 0.0

    @property
    def passed(self) -> float:
        return time.monotonic() - self._began

    @property
    def left(self) -> float:
        return self.seconds - self.passed

    @property
    def over(self) -> bool:
        return self.left <= 0

    def tell(self, text: str) -> None:
        """Says how far it is, at most once a second on a terminal, once in ten elsewhere."""
        terminal = sys.stderr.isatty()
        if self.passed - self._told < (1 if terminal else 10):
            return
        self._told = self.passed
        line = f"{self.passed:5.0f} of {self.seconds:.0f} s: {text}"
        print(f"\r\x1b[K{line}" if terminal else line, end="" if terminal else "\n", file=sys.stderr, flush=True)  # noqa: T201


def main(layer: str, run: Callable[[Budget, Result], None]) -> None:
    """The command line of one layer; exit status 1 where something was wrong."""
    parser = argparse.ArgumentParser(description=f"The long run of a layer of tests/chaos: {layer}.")
    parser.add_argument("--seconds", type=float, default=60, help="how long to go on (default: 60)")
    parser.add_argument("--seed", type=int, default=1, help="what chance begins from (default: 1)")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    arguments = parser.parse_args()
    result = Result(layer=layer, seed=arguments.seed)
    budget = Budget(arguments.seconds, arguments.seed)
    run(budget, result)
    result.seconds = budget.passed
    if sys.stderr.isatty():
        print(file=sys.stderr)  # noqa: T201
    print(result.text())  # noqa: T201
    if arguments.json is not None:
        arguments.json.write_bytes(msgspec.json.encode(result))
    sys.exit(1 if result.violations else 0)
