"""Who makes faults while clients go on: each from its beginning to its end, and then service has to be back."""

import contextlib
import random
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from chaos.soak import peers
from chaos.soak.ground import Ground
from chaos.soak.log import Log
from support.daemon import Daemon, until
from support.wire import Wire

STOPPING_SECONDS_MAX = 5.0
REMOVED_SECONDS_MAX = 5.0
EXTRA = "extra"
"""The relay whose directory goes; made anew each time."""


class Nemesis:
    """One daemon's. `wounds`: what it can do, by the word the log has for it."""

    def __init__(self, daemon: Daemon, ground: Ground, log: Log, seed: int) -> None:
        self._daemon = daemon
        self._room = ground.room
        self._log = log
        self._random = random.Random(f"{seed} nemesis")
        self._extras = 0
        self.wounds: dict[str, Callable[[], str | None]] = {
            "killed": self._kill,
            "killed twice": self._kill_twice,
            "killed while opening": self._kill_while_opening,
            "stopped": self._stop,
            "paused": self._pause,
            "reloaded": self._reload,
            "few descriptors": self._few_descriptors,
            "crowd": lambda: peers.crowd(daemon.socket, self._random),
            "slow reader": lambda: peers.slow_reader(daemon.socket, self._random),
            "half closed": lambda: peers.half_closed(daemon.socket),
            "mutated frames": lambda: peers.mutated_frames(daemon.socket, self._random),
            "relay removed": self._remove_relay,
        }
        if ground.room is not None:
            self.wounds |= {"full": self._fill, "killed while full": self._kill_while_full}

    def any(self) -> str:
        return self._random.choice(list(self.wounds))

    def wound(self, name: str) -> None:
        """Does it; what was wrong meanwhile is in the log."""
        began = self._log.now
        wrong = self.wounds[name]()
        self._log.write(fault=name, at=began, until=self._log.now)
        if wrong is not None:
            self._log.found_wrong(f"{name}: {wrong}")

    # Its death

    def _kill(self) -> None:
        self._daemon.kill()
        self._start()

    def _kill_twice(self) -> None:
        self._daemon.kill()
        self._start()
        self._kill()

    def _kill_while_opening(self) -> None:
        for _ in range(self._random.choice((1, 1, 2))):
            self._daemon.kill()
            self._start()
            time.sleep(self._random.uniform(0, 0.06))
        self._kill()

    def _stop(self) -> str | None:
        began = time.monotonic()
        try:
            status = self._daemon.stop()
        except subprocess.TimeoutExpired:
            self._kill()
            return "it does not end at SIGTERM"
        seconds = time.monotonic() - began
        self._start()
        if status != 0:
            return f"exit status {status} at SIGTERM"
        return None if seconds <= STOPPING_SECONDS_MAX + 1 else f"it took {seconds:.1f} s to end at SIGTERM"

    def _start(self) -> None:
        """A second life keeps the log of the first: bugs are looked for in all of it."""
        before = self._daemon.log
        self._daemon.start()
        self._daemon.log[:0] = before

    # Signals and limits

    def _pause(self) -> None:
        self._daemon.signal(signal.SIGSTOP)
        time.sleep(self._random.uniform(0.1, 2))
        self._daemon.signal(signal.SIGCONT)

    def _reload(self) -> None:
        self._daemon.signal(signal.SIGHUP)

    def _few_descriptors(self) -> None:
        """None are left, or a few, for as long as it takes clients to want some; then as many as before."""
        pid = self._daemon.process.pid
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (self._daemon.descriptors + self._random.randrange(4), before[1]))
        try:
            peers.crowd(self._daemon.socket, self._random)
            time.sleep(self._random.uniform(0.2, 1))
        finally:
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)

    # Room

    def _fill(self) -> None:
        self._room.fill(leave=self._random.choice((0, 0, 4096, 65_536)))
        try:
            time.sleep(self._random.uniform(0.3, 1.5))
        finally:
            self._room.free()

    def _kill_while_full(self) -> None:
        self._room.fill(leave=self._random.choice((0, 4096)))
        try:
            time.sleep(self._random.uniform(0, 0.3))
            self._kill()
            time.sleep(self._random.uniform(0.1, 0.5))
        finally:
            self._room.free()

    # A directory that goes

    def _remove_relay(self) -> str | None:
        """Nothing is answered into a directory that is gone; its name can be given anew."""
        with Wire(str(self._daemon.socket), client="remover") as wire:
            store = wire.done("open", relay=EXTRA, create=True)["store"]
            wire.done("record", relay=EXTRA, events=[["note", ["remover", 1, ""]]])
            self._take_away(self._daemon.relay(EXTRA))
            answer = wire.call("record", relay=EXTRA, events=[["note", ["remover", 2, ""]]])
            if answer["re"] != "error" or answer["code"] not in ("relay_removed", "not_found"):
                return f"a record into a directory that is gone was answered {answer}"
            made = self._made_again(wire)
            if made["re"] == "error" or made["store"] == store:
                return f"a relay made anew after its directory went was answered {made}"
        return None

    def _take_away(self, relay: Path) -> None:
        self._extras += 1
        if self._random.random() < 0.5:
            relay.rename(relay.with_name(f".gone-{self._extras}"))
        else:
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(relay)

    @staticmethod
    def _made_again(wire: Wire) -> dict:
        answers: list[dict] = []

        def made() -> bool:
            answers.append(wire.call("open", relay=EXTRA, create=True))
            return answers[-1]["re"] != "error"

        with contextlib.suppress(AssertionError):
            until(made, REMOVED_SECONDS_MAX, "it cannot be made anew")
        return answers[-1]
