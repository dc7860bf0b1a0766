"""One disk that a power cut left in disorder, opened again and again, and cut off at each call of opening it."""

import contextlib
import shutil
from collections import Counter

from chaos.power.kept import keeping
from chaos.power.machine import LOG_FLUSHED, NOTHING_FLUSHED
from chaos.power.rounds import FLAGS, GROUP_SYNC, RETENTION, Rounds, left_unfinished
from chaos.power.station import Cut, Station

TORN = 0b0001
"""Of the unanswered group, the last page reached the disk."""


class Openings:
    """The disk is the same at the beginning of each round: torn, with events to fold and a rotated file to seal."""

    def __init__(self, station: Station, seed: int, covered: Counter[str]) -> None:
        self._station = station
        self._covered = covered
        self._story = Rounds(station, seed, Counter())
        self._scene = station.daemon.place / "scene.ext4"
        for _ in range(50):
            self._story.cut_at(Cut(self._story.random.randint(5, 20), LOG_FLUSHED, GROUP_SYNC, TORN))
            shutil.copy(station.last_image, self._scene)
            left = left_unfinished(station, list(RETENTION))
            station.start()
            self._latest = self._ask()
            log = [station.daemon.until_said("relay_opened"), *station.daemon.said("relay_opened")]
            station.daemon.kill()
            if "a rotated file, not sealed" in left and _any(log, "torn_bytes") and _any(log, "folded_events"):
                return
        raise AssertionError("no cut left such a disk")

    def cut_at(self, call: int) -> bool:
        """Two openings in a row are cut at this call, the third is not; False where an opening has no such call."""
        with keeping(self._station, self._story.told):
            self._station.machine.restore(self._scene)
            if not self._cut_once(Cut(call, FLAGS[call % 2])):
                return False
            self._cut_once(Cut(call, FLAGS[call // 2 % 2]))
            self._station.start()
            assert self._ask() == self._latest, "it opens to the same state"
            self._station.cut(NOTHING_FLUSHED)
            self._story.told().check_disk(self._station.daemon.state)
        return True

    def _cut_once(self, cut: Cut) -> bool:
        """Opens until the cut, or until all is open; whether the cut came."""
        with self._station.cutting_at(cut, may_miss=True):
            self._station.daemon.begin()
            if self._station.daemon.until_serving_or_gone():
                with contextlib.suppress(OSError):
                    self._ask()
        if not self._station.shim.reached:
            return False
        self._covered["openings cut"] += 1
        self._covered[f"openings cut before {self._station.shim.reached_before.split()[0]}"] += 1
        self._story.told().check_disk(self._station.daemon.state)
        return True

    def _ask(self) -> dict[str, int]:
        """The latest ordinals, when all relays are open."""
        with self._station.daemon.connect() as wire:
            return {relay: wire.done("status", relay=relay)["latest"][0] for relay in RETENTION}


def _any(log: list[dict], what: str) -> bool:
    return any(line[what] for line in log)
