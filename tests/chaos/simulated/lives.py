"""The daemon on a simulated disk, one life after the other: its start, its end, and what the disk keeps of it."""

import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import trio
from chaos.simulated.actor import Actor
from chaos.simulated.chance import SlowFiles, seeded
from chaos.simulated.disk import Disk
from chaos.simulated.figures import Outcome
from chaos.simulated.handles import STATE
from chaos.simulated.plans import DiskFaults, Life, faults_of
from support.faults import Killed
from support.inside import Client, Inside, Stream, run_virtually

from relayd.daemon import state_lock
from relayd.journal.storage import Directory
from relayd.recovery.making import clear_leftovers

NOW_MS = 1_700_000_000_000
PATIENCE_SECONDS = 3600
"""Virtual ones. A fault for ever is gone long before."""
BUGS = ("relay_entry_failed", "request_failed", "connection_failed")
FAILING = frozenset({"storage_failed", "storage_full", "unavailable", "shutting_down"})


class Lives:
    """What happens in a life is given to `live`; `actors` are the clients whose answers are taken at its end.

    `settings` are the daemon's. `trace` is given each line of what happens. The same seed gives the same lives.
    """

    def __init__(
        self,
        seed: int,
        *,
        settings: dict | None = None,
        trace: Callable[[str], None] | None = None,
        disk: Callable[[random.Random], Disk] = Disk,
    ) -> None:
        self.seed = seed
        self.settings = settings or {}
        self.outcome = Outcome()
        self.actors: list[Actor] = []
        self.allowed: frozenset[str] = frozenset()
        self.faults = DiskFaults()
        self.disk = disk(random.Random(f"disk {seed}"))
        self._ids = random.Random(f"ids {seed}")
        self._trace = trace
        self._daemon: Inside | None = None
        self._streams: list[Stream] = []
        self._logged: list[dict] = []

    # What the clients act in

    def connect(self) -> Client:
        assert self._daemon is not None
        client = self._daemon.connect_silent()
        self._streams.append(client.stream)
        if self.faults.dead:
            self._cut_connections()
        return client

    @property
    def traced(self) -> bool:
        return self._trace is not None

    def tell(self, text: str) -> None:
        if self._trace is not None:
            self._trace(text)

    def live(self, life: Life, act: Callable[[], Awaitable[None]]) -> None:
        """One life of the daemon, from its start to what is left of the disk behind its end."""
        self._daemon, self._streams, self._logged = None, [], []
        self.faults = faults_of(life, self._died)
        self.allowed = self._allowed(life)
        self.outcome.lives += 1
        self.tell(f"--- life {self.outcome.lives}: {life.text()}")
        before = len(self.faults.log)
        with seeded(f"{self.seed} {self.outcome.lives}"):
            try:
                run_virtually(lambda: self._live(life, act))
            except BaseException as error:
                if not self.faults.dead or _has_more_than(error, Killed):
                    raise
        self._end(life)
        self.outcome.calls += len(self.faults.log) - before

    def _allowed(self, life: Life) -> frozenset[str]:
        codes = FAILING if life.fails else frozenset()
        if life.says_it_failed_and_did_not:
            codes |= {"relay_removed"}
        return codes | {"shutting_down"}

    async def _live(self, life: Life, act: Callable[[], Awaitable[None]]) -> None:
        with trio.move_on_after(PATIENCE_SECONDS) as patience:
            async with trio.open_nursery() as nursery:
                relays = await self._start(life)
                files = SlowFiles(random.Random(f"files {self.seed} {self.outcome.lives}"))
                daemon = self._daemon = Inside(
                    Path(STATE), nursery, faults=self.faults, threads=False, settings=self.settings,
                    relays=relays, files=files, new_id=lambda: self._ids.randbytes(16),
                )  # fmt: skip
                daemon.now_ms = NOW_MS + 60_000 * self.outcome.lives + life.clock_ms
                nursery.start_soon(daemon.registry.open_unfinished)
                if self.faults.plan is not None and getattr(self.faults.plan, "forever", False):
                    nursery.start_soon(self._mend, life.mended)
                await act()
                if life.end == "stop":
                    await self._stop(daemon)
                self.faults.die()
                nursery.cancel_scope.cancel()
        if patience.cancelled_caught:
            wrong = [text for actor in self.actors for text in actor.said.wrong[:1]]
            raise AssertionError(f"service does not come back: {wrong or 'nobody was told anything wrong'}")

    async def _start(self, life: Life) -> Directory:
        """As the daemon's own start, from its lock on; where that fails, it is started again, as a supervisor would."""
        while True:
            state = self.faults.wrap(self.disk.state())
            try:
                state_lock._lock(state, STATE)
                state_lock._write_holder(state, state_lock.Holder(1, "s"))
                relays = state_lock._relays(state)
                clear_leftovers(relays)
            except OSError:
                assert life.fails
                state.close()
                if getattr(self.faults.plan, "forever", False):
                    self.faults.mend()
            else:
                return relays

    async def _mend(self, seconds: float) -> None:
        await trio.sleep(seconds)
        self.faults.mend()
        self.tell("--- mended")

    async def _stop(self, daemon: Inside) -> None:
        """SIGTERM."""
        self.faults.mend()
        await daemon.registry.stop()
        await daemon.server.finish()

    def _died(self) -> None:
        """What the process still does by unwinding reaches nobody, and nobody reads what it logs."""
        self._cut_connections()
        if self._daemon is not None:
            self._logged = self._daemon.logged[:]

    def _cut_connections(self) -> None:
        for stream in self._streams:
            stream.broken = True
            stream.close = lambda: None

    def _end(self, life: Life) -> None:
        for actor in self.actors:
            actor.settle()
        self._look_at_log()
        if self.traced:
            for call in self.faults.log:
                self.tell(f"    {call}")
        assert not self.disk.synced_again, f"synced again after a failed sync: {self.disk.synced_again}"
        self.outcome.crashes += 1
        self.outcome.met += self.faults.met_any
        if life.end == "cut":
            self.outcome.cuts += 1
            self.disk = self.disk.cut(random.Random(f"cut {life.left}"), None if life.left else "nothing")
            self.outcome.survived += self.disk.survived
        else:
            self.disk = self.disk.crash(forgets_lost=life.left % 3 == 1)
        if self.traced:
            for path, content in self.disk.tree().items():
                self.tell(f"  left: {path} {len(content)}")
        for actor in self.actors:
            assert not actor.said.wrong, f"{actor.name}: {actor.said.wrong[:3]}"

    def _look_at_log(self) -> None:
        for line in self._logged:
            self.tell(f"log: {line}")
            event = line["event"]
            assert event not in BUGS, f"a bug: {line}"
            if event == "relay_opened":
                self.outcome.opened += 1
                self.outcome.torn += line["torn_bytes"] > 0
                self.outcome.rewritten += line["rewritten_bytes"] > 0
                self.outcome.quarantined += len(line["quarantined"])
                self.outcome.sources[line["source"]] += 1
            elif event == "relay_unavailable":
                self.outcome.unavailable += 1


def _has_more_than(error: BaseException, kind: type[BaseException]) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(_has_more_than(each, kind) for each in error.exceptions)
    return not isinstance(error, kind | trio.Cancelled)
