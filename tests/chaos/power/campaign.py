"""The power is cut at random moments under the load of tests/chaos/kills.py, now and then while relays open."""

import time
from collections import Counter

from chaos.kills import Campaign
from chaos.load import RELAYS
from chaos.power.kept import keeping
from chaos.power.machine import LOG_FLUSHED, NOTHING_FLUSHED
from chaos.power.rounds import count_openings, left_unfinished
from chaos.power.station import Station
from chaos.power.story import Told


class PowerCampaign(Campaign):
    """The campaign of kills, with cuts in their place; the clients know of nothing but broken connections."""

    def __init__(self, station: Station, cuts: int, seed: int, covered: Counter[str]) -> None:
        super().__init__(station.daemon.place, cuts, seed)
        self.station = station
        self.daemon = station.daemon
        self.covered = covered

    def told(self) -> Told:
        clients = [client for client in self.clients if client.relay in RELAYS]
        return Told({relay: [one.said for one in clients if one.relay == relay] for relay in RELAYS})

    def run_and_keep(self) -> None:
        """Raises AssertionError where anything is not as it has to be; then the last cut's disk is kept."""
        with keeping(self.station, self.told):
            for relay in self.run().relays:
                self.covered["events"] += relay.events
                self.covered["of them collected"] += relay.collected
                self.covered["answered as duplicates"] += relay.duplicates

    def _once(self) -> None:
        time.sleep(self.random.uniform(0, 0.2))
        self._kill()
        while self.random.random() < 0.25:
            self.daemon.begin()
            time.sleep(self.random.uniform(0, 0.03))
            self._kill("while opening")
        self.daemon.start()
        with self.daemon.connect() as wire:
            for relay in RELAYS:
                wire.done("status", relay=relay)

    def _kill(self, moment: str = "under load") -> None:
        flag = self.random.choice((LOG_FLUSHED, NOTHING_FLUSHED))
        self.station.cut(flag)
        self.covered[f"cuts {moment}, {'log' if flag == LOG_FLUSHED else 'nothing'} flushed"] += 1
        for what in left_unfinished(self.station, list(RELAYS)):
            self.covered[f"cuts that left {what}"] += 1
        self._look_at_log()
        for client in self.clients:
            assert client.failed is None, f"{client.name}: {client.failed!r}"

    def _look_at_log(self) -> None:
        count_openings(self.daemon.log, self.covered)
        self.daemon.log.clear()
