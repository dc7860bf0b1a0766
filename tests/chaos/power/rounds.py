"""The power is cut right before the n-th call that changes the disk since the daemon was started, again and again.

Small n cut an opening off, larger ones whatever is being done then: an append, a rotation, a seal, a snapshot, a
collection. Each round begins from what the one before left, so that cut openings are cut again.
"""

import random
import re
from collections import Counter

from chaos.power.kept import keeping
from chaos.power.machine import LOG_FLUSHED, NOTHING_FLUSHED
from chaos.power.station import Cut, Station
from chaos.power.story import Author, Follower, Told
from support.wire import Wire

SETTINGS = {"segment_bytes": 4096, "snapshot_bytes": 4096, "snapshot_events": 16, "tail_bytes": 4096}
"""With these a rotation, a seal, a snapshot or a collection is due every few events."""

RETENTION = {"kept": "checkpointed", "read": "acknowledged"}
GROUP_SYNC = "fdatasync active.log"
FLAGS = (LOG_FLUSHED, NOTHING_FLUSHED)


class Rounds:
    """One disk and its story, told by one seed; what was met is counted in `covered`."""

    def __init__(self, station: Station, seed: int, covered: Counter[str]) -> None:
        self.station = station
        self.covered = covered
        self.random = random.Random(seed)
        socket = station.daemon.socket
        self._authors = [Author(f"producer-{relay}", socket, relay, seed) for relay in RETENTION]
        self._follower = Follower("reader", socket, "read", seed, acknowledges=True)
        self._made: set[str] = set()

    def told(self) -> Told:
        told = {author.relay: [author.said] for author in self._authors if author.relay in self._made}
        if "read" in told:
            told["read"].append(self._follower.said)
        return Told(told)

    def cut_at(self, cut: Cut) -> None:
        """Works until the power is cut at this call; what is on the disk then is held against what was told."""
        with keeping(self.station, self.told):
            with self.station.cutting_at(cut):
                serving = self._work()
            moment = "while serving" if serving else "while opening"
            if cut.only == GROUP_SYNC:
                moment = "between a group's write and its sync, pages of it written" if cut.write_out else moment
            self._look(moment, cut.flag)
            self.covered[f"cut before {_sort(self.station.shim.reached_before)}"] += 1

    def cut_after_an_answer(self, flag: int) -> None:
        """Works a while; the power is cut when an answer has come, and nothing was asked since."""
        with keeping(self.station, self.told):
            self._serve_a_while()
            self.station.cut(flag)
            self._look("right after an answer", flag)

    def kill_restart_and_cut(self, kill: Cut, flag: int) -> None:
        """The process is killed at this call; what the next one answered and showed, a power cut takes nothing of."""
        with keeping(self.station, self.told):
            with self.station.killing_at(kill):
                self._work()
            self._look_at_log()
            self._serve_a_while()
            self.station.cut(flag)
            self._look("after a kill, a restart and answers", flag)

    def finish(self) -> None:
        """Everything goes on after the last cut, and all that was ever sent is there once."""
        with keeping(self.station, self.told):
            self._serve_a_while()
            self.station.cut(NOTHING_FLUSHED)
            for one in self.told().check_disk(self.station.daemon.state):
                self.covered["events"] += one.events
                self.covered["of them collected"] += one.collected
                self.covered["answered as duplicates"] += one.duplicates
            assert all(author.last == author.last_answered for author in self._authors)

    def draw(self) -> None:
        """One round of any sort."""
        draw, flag = self.random.randint, self.random.choice(FLAGS)
        match draw(1, 6):
            case 1:
                self.cut_at(Cut(draw(1, 40), flag))
            case 2:
                self.cut_at(Cut(draw(40, 300), flag))
            case 3:
                self.cut_at(Cut(draw(1, 30), flag, GROUP_SYNC, self.random.getrandbits(5)))
            case 4:
                self.cut_after_an_answer(flag)
            case 5:
                self.kill_restart_and_cut(Cut(draw(1, 300), flag), flag)
            case 6:
                # Whole groups in the page cache, never synced: the restart has to make them durable before it answers.
                self.kill_restart_and_cut(Cut(draw(1, 30), flag, GROUP_SYNC), flag)

    # Working

    def _work(self) -> bool:
        """Works until the end of the daemon; whether it came as far as serving."""
        self.station.daemon.begin()
        serving = False
        if self.station.daemon.until_serving_or_gone():
            try:
                with self.station.daemon.connect() as wire:
                    self._resume(wire)
                    serving = True
                    while True:
                        self._step(wire)
            except OSError:
                pass
        return serving

    def _serve_a_while(self) -> None:
        self.station.start()
        with self.station.daemon.connect() as wire:
            self._resume(wire)
            for _ in range(self.random.randrange(4)):
                self._step(wire)

    def _resume(self, wire: Wire) -> None:
        for author in self._authors:
            wire.done("open", relay=author.relay, create=True, retention=RETENTION[author.relay])
            self._made.add(author.relay)
            author.resume(wire)
        self._follower.read(wire)

    def _step(self, wire: Wire) -> None:
        sent = [(author, author.send(wire)) for author in self._authors for _ in range(2)]
        for author, request in sent:
            author.take(wire, request)
        self._follower.read(wire)
        if self.random.random() < 0.5:
            self._follower.acknowledge(wire)

    # Looking

    def _look(self, moment: str, flag: int) -> None:
        self.covered[f"cuts {moment}, {'log' if flag == LOG_FLUSHED else 'nothing'} flushed"] += 1
        self._look_at_log()
        self.told().check_disk(self.station.daemon.state)
        for what in left_unfinished(self.station, list(RETENTION)):
            self.covered[f"cuts that left {what}"] += 1

    def _look_at_log(self) -> None:
        count_openings(self.station.daemon.log, self.covered)
        self.station.daemon.log.clear()


def count_openings(log: list[dict], covered: Counter[str]) -> None:
    """What a daemon said of its openings. Fails where it tells of trouble or of a bug."""
    for line in log:
        assert line.get("level") not in ("error", "critical"), line
        if line.get("event") == "relay_opened":
            covered["openings"] += 1
            covered["openings that cut a torn group"] += line["torn_bytes"] > 0
            covered["openings that wrote bytes over themselves"] += line["rewritten_bytes"] > 0


def left_unfinished(station: Station, relays: list[str]) -> set[str]:
    """What a cut interrupted, by what it left on the disk."""
    found = set()
    for relay in relays:
        files = {file.name for file in station.relay(relay).glob("**/*")}
        found |= {_sort(name) for name in files if name.endswith(".new")}
        for name in files:
            if name.endswith(".log.zst") and name.removesuffix(".zst") in files:
                found.add("a rotated file beside its sealed copy")
            elif re.fullmatch(r"\d{20}-\d{20}\.log", name) and f"{name}.zst" not in files:
                found.add("a rotated file, not sealed")
    return found


def _sort(text: str) -> str:
    return re.sub(r"\d{20}-\d{20}", "<range>", text)
