"""Syncs of active.log that say they are done and wrote nothing, under work, then a power cut."""

import copy
import random

from chaos.history import Said
from chaos.power.machine import write_out
from chaos.power.rounds import FLAGS, SETTINGS
from chaos.power.station import Station, a_station
from chaos.power.story import Author, Told

REASONS = ("snapshot_ahead", "journal_corrupt")
RELAY = "kept"


def any_lie(seed: int) -> str:
    """One drawn from a seed; what came of it: `prefix`, or the reason why the relay does not open.

    Anything else, and a prefix in disorder, is an AssertionError.
    """
    chance = random.Random(seed)
    with a_station(**SETTINGS) as station:
        author = Author("producer", station.daemon.socket, RELAY, seed)
        station.start()
        with station.daemon.connect() as wire:
            wire.done("open", relay=RELAY, create=True)
            for _ in range(chance.randint(1, 10)):
                author.record(wire)
            truly = wire.done("status", relay=RELAY)["latest"]
            station.shim.lie("active.log")
            for _ in range(chance.randint(1, 20)):
                author.record(wire)
                if chance.random() < 0.3:
                    # The kernel writes of it what it will, when it will.
                    pages = station.active(RELAY).stat().st_size // 4096 + 1
                    write_out(station.active(RELAY), chance.randrange(pages) * 4096, chance.randint(1, 3) * 4096)
            last = wire.done("status", relay=RELAY)["latest"]
        station.cut(chance.choice(FLAGS))
        return _outcome(station, author.said, truly, last)


def _outcome(station: Station, said: Said, truly: list, last: list) -> str:
    before = _tree(station)
    station.start()
    with station.daemon.connect() as wire:
        status = wire.call("status", relay=RELAY)
        if status["re"] == "error":
            reason = status["detail"]["reason"]
            assert (status["code"], reason in REASONS) == ("unavailable", True), status
            assert _tree(station) == before, "a refusal changes no byte"
            return reason
        latest = status["latest"]
        assert truly[0] <= latest[0] <= last[0], "what was truly synced is there"
        if latest[0] < last[0]:
            ahead = wire.call("attach", relay=RELAY, after=last)
            assert (ahead["code"], ahead["detail"]["reason"]) == ("desynchronized", "ahead"), ahead
    station.daemon.kill()
    Told({RELAY: [_through(said, latest[0])]}).check_disk(station.daemon.state)
    return "prefix" if latest[0] < last[0] else "all there"


def _through(said: Said, latest: int) -> Said:
    """What was told of events up to an ordinal."""
    kept = copy.copy(said)
    kept.answered = {ordinal: number for ordinal, number in said.answered.items() if ordinal <= latest}
    kept.through = {ordinal: digest for ordinal, digest in said.through.items() if ordinal <= latest}
    return kept


def _tree(station: Station) -> dict[str, bytes]:
    files = [file for file in station.relay(RELAY).rglob("*") if file.is_file()]
    return {str(file): file.read_bytes() for file in files}
