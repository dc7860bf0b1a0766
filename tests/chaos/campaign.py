"""The whole long campaign: every layer with its share of the time, then the mutations, then one table.

    python tests/chaos/campaign.py --minutes 30 --seed 1            two layers at a time
    python tests/chaos/campaign.py --minutes 5 --only power,calls   some of them
    python tests/chaos/campaign.py --minutes 30 --write             the table becomes tests/chaos/RESULTS.md

Each layer is a command of its own (`python tests/chaos/<layer>/long.py --help`); what it finds wrong ends with the
command that shows it again. Exit status 1 where anything was wrong.
"""

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

import msgspec

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from chaos.layer import Result, Violation
from chaos.report import write_report

HERE = Path(__file__).resolve().parent
LANES = 2
GRACE_SECONDS = 300
"""What a layer may take beyond its time: it ends the history it is in, and cleans up."""


class Share(NamedTuple):
    """A layer's folder, and its part of the time that all have together."""

    folder: str
    part: float


SHARES = (
    Share("syscalls", 9),
    Share("simulated", 9),
    Share("peers", 6),
    Share("calls", 8),
    Share("power", 7),
    Share("at_rest", 7),
    Share("soak", 6),
    Share("environment", 5),
    Share("mutations", 11),
)
"""The longest first, so that the lanes end together."""


class Campaign:
    """Runs the layers in lanes. `results` are in the order they ended."""

    def __init__(self, shares: list[Share], seconds: float, seed: int) -> None:
        self.results: list[Result] = []
        self._waiting = list(shares)
        self._seed = seed
        self._second_of_a_part = seconds * min(LANES, len(shares)) / sum(share.part for share in shares)
        self._lock = threading.Lock()

    def run(self) -> None:
        """Returns when all have ended."""
        lanes = [threading.Thread(target=self._lane) for _ in range(LANES)]
        for lane in lanes:
            lane.start()
        for lane in lanes:
            lane.join()

    def _lane(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    return
                share = self._waiting.pop(0)
            result = self._layer(share)
            with self._lock:
                self.results.append(result)
                print(result.text(), flush=True)  # noqa: T201 - it is a command

    def _layer(self, share: Share) -> Result:
        seconds = share.part * self._second_of_a_part
        script = HERE / share.folder / "long.py"
        with tempfile.TemporaryDirectory() as place:
            figures = Path(place) / "figures.json"
            command = [sys.executable, str(script), "--seconds", f"{seconds:.0f}", "--seed", str(self._seed)]
            began = time.monotonic()
            print(f"{share.folder}: {seconds:.0f} s", flush=True)  # noqa: T201 - it is a command
            try:
                ended = subprocess.run(
                    [*command, "--json", str(figures)],
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    text=True,
                    timeout=seconds + GRACE_SECONDS,
                    check=False,
                )
                said = ended.stderr
            except subprocess.TimeoutExpired:
                said = f"it did not end within {GRACE_SECONDS} s after its time"
            if figures.exists():
                return msgspec.json.decode(figures.read_bytes(), type=Result)
        # A layer that cannot say what it saw saw nothing.
        what = f"the layer broke: {said.strip().splitlines()[-1] if said.strip() else 'without a word'}"
        seconds = time.monotonic() - began
        return Result(
            layer=share.folder, seed=self._seed, seconds=seconds, violations=[Violation(what, " ".join(command))]
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="Every layer of tests/chaos, with a time budget, ending in one table.")
    parser.add_argument("--minutes", type=float, default=30, help="time for all together (default: 30)")
    parser.add_argument("--seed", type=int, default=1, help="what chance begins from (default: 1)")
    parser.add_argument("--only", default="", help="folders of layers, with commas between; all without it")
    parser.add_argument("--write", action="store_true", help="write tests/chaos/RESULTS.md too")
    arguments = parser.parse_args()
    wanted = [name for name in arguments.only.split(",") if name]
    unknown = set(wanted) - {share.folder for share in SHARES}
    if unknown:
        parser.error(f"no such layer: {', '.join(sorted(unknown))}; there are {', '.join(s.folder for s in SHARES)}")
    shares = [share for share in SHARES if not wanted or share.folder in wanted]
    campaign = Campaign(shares, arguments.minutes * 60, arguments.seed)
    campaign.run()
    report = write_report(sorted(campaign.results, key=lambda result: result.layer), arguments.minutes, arguments.seed)
    print(f"\n{report}")  # noqa: T201 - it is a command
    if arguments.write:
        (HERE / "RESULTS.md").write_text(report)
    sys.exit(1 if any(result.violations for result in campaign.results) else 0)


if __name__ == "__main__":
    main()
