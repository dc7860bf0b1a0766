"""One soak: a daemon, its clients, the nemesis, and the proof."""

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from chaos.kills import SETTINGS
from chaos.load import RELAYS, Client
from chaos.soak import peers
from chaos.soak.clients import make_clients
from chaos.soak.ground import Ground, a_ground
from chaos.soak.heard import Heard
from chaos.soak.judge import Verdict, judge
from chaos.soak.log import Log, LoggedWire, read_log
from chaos.soak.nemesis import Nemesis
from support.daemon import Daemon, short_place, until

BACK_SECONDS_MAX = 15.0
"""In this time after a fault every client gets on."""
AGAIN_AT_ONCE = 400
QUIET_SECONDS_MAX = 30.0
GROWN_BYTES_MAX = 48 << 20
"""What a daemon's memory may have grown by: its caches (settings `page_cache_bytes`, `tails_bytes`), and room lost."""


class Vitals(NamedTuple):
    """What a daemon that does nothing has."""

    descriptors: int
    threads: int
    resident_bytes: int

    @classmethod
    def of(cls, daemon: Daemon) -> "Vitals":
        threads = sum(1 for _ in Path(f"/proc/{daemon.process.pid}/task").iterdir())
        return cls(daemon.descriptors, threads, daemon.resident_bytes)


class Soak:
    """`wounds`: how often the nemesis did what."""

    def __init__(self, place: Path, ground: Ground, log: Log, clients: int, seed: int) -> None:
        state = ground.path / "state"
        self.daemon = Daemon(place, **SETTINGS | {"state": state, "idle_relay": 1, "connections": 256})
        self.daemon.state = state
        self.log = log
        self.wounds: Counter[str] = Counter()
        self._clients: list[Client] = make_clients(clients, self.daemon.socket, seed, log)
        self._nemesis = Nemesis(self.daemon, ground, log, seed)
        self._quiet: Vitals | None = None

    def run(self, wounds: Iterator[str | None]) -> None:
        """Wounds the daemon in turn (None: in any way), and ends it; `judge` has the rest."""
        self.daemon.start()
        self._make_relays()
        self._quiet = self._vitals(lambda _: True)
        for client in self._clients:
            client.start()
        try:
            self._until_all_step()
            for name in wounds:
                self._wound(name or self._nemesis.any())
        finally:
            for client in self._clients:
                client.stop()
            for client in self._clients:
                client.join(20)
                if client.is_alive() or client.failed is not None:
                    self.log.found_wrong(f"{client.name} does not end, or broke: {client.failed!r}")
        self.log.flush()
        self._send_again(Heard().take(read_log(self.log.path)))
        self._prove_quiet()
        status = self.daemon.stop()
        if status:
            self.log.found_wrong(f"the daemon ended with status {status}")
        self._look_at_log()

    def _make_relays(self) -> None:
        with LoggedWire(str(self.daemon.socket), self.log, "maker of all") as wire:
            for relay, retention in RELAYS.items():
                wire.done("open", relay=relay, create=True, retention=retention)
        with self.daemon.connect() as wire:
            wire.done("open", relay=peers.JUNK, create=True)

    def _wound(self, name: str) -> None:
        self.wounds[name] += 1
        self._nemesis.wound(name)
        self._until_all_step(name)
        self._look_at_log()
        for client in self._clients:
            assert client.failed is None, f"{client.name} broke: {client.failed!r}"

    def _until_all_step(self, after: str = "the start") -> None:
        """I9: service is back, for everybody."""
        before = {client: client.steps for client in self._clients}
        waiting: list[Client] = []

        def all_stepped() -> bool:
            waiting[:] = [client for client, steps in before.items() if client.steps <= steps]
            return not waiting

        try:
            until(all_stepped, BACK_SECONDS_MAX, "")
        except AssertionError:
            names = ", ".join(client.name for client in waiting)
            self.log.found_wrong(f"{BACK_SECONDS_MAX:g} s after {after}, {names} do not get on")

    def _look_at_log(self) -> None:
        """A daemon that tells of a bug of its own."""
        for line in self.daemon.log:
            if line.get("level") == "critical" or "exception" in line or line.get("event") == "text":
                self.log.found_wrong(f"the daemon says: {line}")
        self.daemon.log.clear()

    # Afterwards

    def _send_again(self, heard: Heard) -> None:
        """I6: everything that carries a sequence, from the first on; readers begin anew and see the same."""
        for relay in RELAYS:
            for said in heard.relays[relay].said.values():
                if not said.client.startswith("producer"):
                    continue
                numbers = sorted(said.sent)
                for at in range(0, len(numbers), AGAIN_AT_ONCE):
                    part = numbers[at : at + AGAIN_AT_ONCE]
                    events = [["work", [said.client, number, said.sent[number]]] for number in part]
                    with LoggedWire(str(self.daemon.socket), self.log, "again") as wire:
                        wire.done("record", relay=relay, events=events, producer=said.client, sequence=part[0])
            with LoggedWire(str(self.daemon.socket), self.log, "last reader") as wire:
                wire.read_all(relay)

    def _prove_quiet(self) -> None:
        """I9: descriptors, threads and memory are as before there was any load."""
        quiet = self._quiet
        try:
            now = self._vitals(lambda now: now.descriptors <= quiet.descriptors and now.threads <= quiet.threads)
        except AssertionError:
            self.log.found_wrong(f"a quiet daemon had {quiet}, and has {Vitals.of(self.daemon)} afterwards")
            return
        if now.resident_bytes > quiet.resident_bytes + GROWN_BYTES_MAX:
            self.log.found_wrong(f"a quiet daemon's memory grew from {quiet.resident_bytes} to {now.resident_bytes}")

    def _vitals(self, are_fine: Callable[[Vitals], bool]) -> Vitals:
        """Of the daemon once every relay is closed for want of use."""
        with self.daemon.connect() as wire:

            def closed() -> bool:
                return not any(one["open"] for one in wire.done("relays")["relays"])

            until(closed, QUIET_SECONDS_MAX, "relays that nobody uses stay open")
            until(lambda: are_fine(Vitals.of(self.daemon)), QUIET_SECONDS_MAX, "not as before")
            return Vitals.of(self.daemon)


class Outcome(NamedTuple):
    """`kept`: where log and state are, because something was wrong."""

    verdict: Verdict
    wounds: Counter[str]
    why_not_full: str | None
    kept: Path | None


def run_soak(wounds: Iterator[str | None], clients: int, seed: int) -> Outcome:
    """A whole soak; log and state are kept where something was wrong."""
    with short_place() as place, a_ground(place / "ground") as ground, Log(place / "history.jsonl") as log:
        soak = Soak(place, ground, log, clients, seed)
        try:
            soak.run(wounds)
        except AssertionError as error:
            log.found_wrong(str(error))
        finally:
            soak.daemon.end()
        log.flush()
        verdict = judge(log.path, soak.daemon.state)
        kept = _keep(log.path, soak.daemon.state) if verdict.wrong else None
        return Outcome(verdict, soak.wounds, ground.why_not_full, kept)


def _keep(log: Path, state: Path) -> Path:
    kept = Path(tempfile.mkdtemp(prefix="relayd-soak-"))
    shutil.copy(log, kept / "history.jsonl")
    shutil.copytree(state, kept / "state")
    return kept
