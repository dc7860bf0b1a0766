"""One history from one seed: the whole daemon on a simulated disk, its clients, and everything that befalls them.

    outcome = History(12345).run()            # raises AssertionError where anything is not as it has to be

A history is a row of lives of the daemon. What ends one is drawn from the seed or given as a plan (plans.py); after it
the daemon starts on what the disk has kept, and the clients go on. Then everybody finishes, the power is cut, and
what is on disk is compared with what was said (proving.py). The same seed gives the same history, call by call.
"""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import trio
from chaos.simulated.actors import Actor, Maker, Producer, Reader, Recorder
from chaos.simulated.disk import STATE, Disk
from chaos.simulated.plans import DiskFaults, Life, draw, faults_of, to_text
from support.faults import Killed
from support.inside import Client, Inside, run_virtually
from trio.testing import wait_all_tasks_blocked

from relayd.daemon import state_lock
from relayd.journal.storage import Directory
from relayd.recovery.making import clear_leftovers

NOW_MS = 1_700_000_000_000
PATIENCE_SECONDS = 3600
"""Virtual ones. A fault for ever is gone long before."""
BUGS = ("relay_entry_failed", "request_failed", "connection_failed")
RETENTION = {"kept": "checkpointed", "read": "acknowledged", "short": {"bytes": 2500}}
RELAYS = (["kept"], ["read"], ["short"], ["kept", "read"], ["read", "short"])
STEPS = (1, 2, 4, 6)
EVERYTHING = {"segment_bytes": 900, "snapshot_events": 5, "tail_bytes": 300, "page_cache_bytes": 0, "idle_relay": 60}
FAILING = frozenset({"storage_failed", "storage_full", "unavailable", "shutting_down"})


@dataclass
class Outcome:
    """What a history came to, in numbers."""

    calls: int = 0
    lives: int = 0
    crashes: int = 0
    cuts: int = 0
    met: int = 0
    opened: int = 0
    torn: int = 0
    rewritten: int = 0
    quarantined: int = 0
    unavailable: int = 0
    answered: int = 0
    shown: int = 0
    duplicates: int = 0
    sealed: int = 0
    collected: int = 0
    survived: Counter = field(default_factory=Counter)
    sources: Counter = field(default_factory=Counter)


class History:
    """`lives` None: they are drawn from the seed. `trace` is given each line of what happens.

    `everything`: every kind of client acts on small segments, so that each kind of call of the disk is met in one life.
    """

    def __init__(
        self,
        seed: int,
        lives: list[Life] | None = None,
        *,
        everything: bool = False,
        trace: Callable[[str], None] | None = None,
        disk: Callable[[random.Random], Disk] = Disk,
    ) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.lives = draw(random.Random(f"lives {seed}")) if lives is None else lives
        self.outcome = Outcome()
        self.met_last = False
        """Whether anything befell the last life of the plan."""
        self.allowed: frozenset[str] = frozenset()
        self.faults = DiskFaults()
        self._disk = disk(random.Random(f"disk {seed}"))
        self._ids = random.Random(f"ids {seed}")
        self._trace = trace
        self._daemon: Inside | None = None
        self.everything = everything
        self.settings = EVERYTHING if everything else self._draw_settings()
        self.relays = ["read", "short"] if everything else self.random.choice(RELAYS)
        self.actors = self.draw_actors()

    @property
    def disk(self) -> Disk:
        """As it is now."""
        return self._disk

    @property
    def plan(self) -> str:
        return to_text(self.lives)

    # Chance

    def _draw_settings(self) -> dict:
        chance = self.random
        return {
            "segment_bytes": chance.choice((600, 900, 1500, 4000)),
            "snapshot_events": chance.choice((3, 5, 9, 1000)),
            "snapshot_bytes": chance.choice((1500, 1 << 20)),
            "tail_bytes": chance.choice((0, 300, 1 << 20)),
            "page_cache_bytes": chance.choice((0, 1 << 20)),
            "idle_relay": chance.choice((2, 60, 60)),
        }

    def draw_actors(self) -> list[Actor]:
        actors: list[Actor] = []
        for relay in self.relays:
            actors.append(Producer(f"producer-{relay}", relay, self))
            if self.everything or self.random.random() < 0.4:
                actors.append(Recorder(f"recorder-{relay}", relay, self))
            if self.everything or relay == "read" or self.random.random() < 0.7:
                actors.append(Reader(f"reader-{relay}", relay, self, acknowledges=relay == "read"))
        if self.everything or self.random.random() < 0.3:
            actors.append(Maker("maker", "made", self))
        return actors

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

    # Lives

    def run(self) -> Outcome:
        """All of it. Raises AssertionError."""
        from chaos.simulated.proving import prove  # noqa: PLC0415 - proving lives in a history too

        for life in self.lives:
            try:
                self.live(life, self.act)
            finally:
                self.met_last = self.faults.met_any
        self.live(Life(end="cut", left=self.seed + 1), self._finish)
        prove(self)
        return self.outcome

    def live(self, life: Life, act: Callable) -> None:
        """One life of the daemon, from its start to what is left of the disk behind its end."""
        self._streams: list = []
        self._daemon, self._logged = None, []
        self.faults = faults_of(life, self._died)
        self.allowed = self._allowed(life)
        self.outcome.lives += 1
        self.tell(f"--- life {self.outcome.lives}: {life.text()}")
        before = len(self.faults.log)
        with _seeded(f"{self.seed} {self.outcome.lives}"):
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

    async def _live(self, life: Life, act: Callable) -> None:
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
            state = self.faults.wrap(self._disk.state())
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
        assert not self._disk.synced_again, f"synced again after a failed sync: {self._disk.synced_again}"
        self.outcome.crashes += 1
        self.outcome.met += self.faults.met_any
        if life.end == "cut":
            self.outcome.cuts += 1
            self._disk = self._disk.cut(random.Random(f"cut {life.left}"), None if life.left else "nothing")
            self.outcome.survived += self._disk.survived
        else:
            self._disk = self._disk.crash(forgets_lost=life.left % 3 == 1)
        if self.traced:
            for path, content in self._disk.tree().items():
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

    # What happens in a life

    async def act(self) -> None:
        """Everybody does some things, side by side."""
        await self._side_by_side({actor: 5 if self.everything else actor.random.choice(STEPS) for actor in self.actors})

    async def _side_by_side(self, steps: dict[Actor, int]) -> None:
        await self._open_all()
        async with trio.open_nursery() as nursery:
            for actor, count in steps.items():
                nursery.start_soon(actor.live, count)

    async def _finish(self) -> None:
        """Everybody comes to an end."""
        await self._side_by_side(dict.fromkeys(self.actors, 1))
        for actor in self.actors:
            if isinstance(actor, Reader):
                await actor.catch_up(self.line(actor))
        await wait_all_tasks_blocked()

    async def _open_all(self) -> None:
        for relay in self.relays:
            actor = next(actor for actor in self.actors if actor.relay == relay)
            await actor.insist(self.line(actor), "open", None, relay=relay, create=True, retention=RETENTION[relay])

    def line(self, actor: Actor):
        from chaos.simulated.actors import Line  # noqa: PLC0415

        return Line(actor)


class SlowFiles:
    """File work in the daemon's own task, each job after a while and told of after a while, as chance has it."""

    WHILES = (0, 0, 0, 0, 0, 0, 0, 0.001, 0.002, 0.01)

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    async def run(self, job: Callable, *args: object) -> object:
        await trio.lowlevel.checkpoint()
        await self._wait()
        try:
            return job(*args)
        finally:
            await self._wait()

    async def _wait(self) -> None:
        seconds = self._chance.choice(self.WHILES)
        if seconds:
            with trio.CancelScope(shield=True):
                await trio.sleep(seconds)


def _has_more_than(error: BaseException, kind: type[BaseException]) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(_has_more_than(each, kind) for each in error.exceptions)
    return not isinstance(error, kind | trio.Cancelled)


def what_was_wrong(error: BaseException) -> str:
    """One line for what a history ended by; raises what is no finding, as an interrupt from the keyboard."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, KeyboardInterrupt | SystemExit):
        raise error
    return f"{type(error).__name__}: {error}".splitlines()[0][:300]


class _seeded:  # noqa: N801 - used as a function
    """Trio's own chance, which task of many goes next, comes from `seed` while this lasts."""

    def __init__(self, seed: str) -> None:
        self._seed = seed

    def __enter__(self) -> None:
        run = trio._core._run
        self._before = run._ALLOW_DETERMINISTIC_SCHEDULING, run._r
        run._ALLOW_DETERMINISTIC_SCHEDULING, run._r = True, random.Random(self._seed)

    def __exit__(self, *_: object) -> None:
        run = trio._core._run
        run._ALLOW_DETERMINISTIC_SCHEDULING, run._r = self._before
