"""One history from one seed: the whole daemon on a simulated disk, its clients, and everything that befalls them.

    outcome = History(12345).run()            # raises AssertionError where anything is not as it has to be

A history is a row of lives of the daemon. What ends one is drawn from the seed or given as a plan (plans.py); after it
the daemon starts on what the disk has kept, and the clients go on. Then everybody finishes, the power is cut, and
what is on disk is compared with what was said (proving.py). The same seed gives the same history, call by call.
"""

import random
from collections.abc import Callable

import trio
from chaos.simulated.actor import Actor, Line
from chaos.simulated.disk import Disk
from chaos.simulated.figures import Outcome
from chaos.simulated.lives import Lives
from chaos.simulated.plans import Life, draw, to_text
from chaos.simulated.proving import prove
from chaos.simulated.readers import Reader
from chaos.simulated.senders import Maker, Producer, Recorder
from trio.testing import wait_all_tasks_blocked

RETENTION = {"kept": "checkpointed", "read": "acknowledged", "short": {"bytes": 2500}}
RELAYS = (["kept"], ["read"], ["short"], ["kept", "read"], ["read", "short"])
STEPS = (1, 2, 4, 6)
EVERYTHING = {"segment_bytes": 900, "snapshot_events": 5, "tail_bytes": 300, "page_cache_bytes": 0, "idle_relay": 60}


class History(Lives):
    """`lives` None: they are drawn from the seed.

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
        super().__init__(seed, trace=trace, disk=disk)
        self.random = random.Random(seed)
        self.lives = draw(random.Random(f"lives {seed}")) if lives is None else lives
        self.met_last = False
        """Whether anything befell the last life of the plan."""
        self.everything = everything
        self.settings = EVERYTHING if everything else self._draw_settings()
        self.relays = ["read", "short"] if everything else self.random.choice(RELAYS)
        self.actors = self.draw_actors()

    @property
    def plan(self) -> str:
        return to_text(self.lives)

    def run(self) -> Outcome:
        """All of it. Raises AssertionError."""
        for life in self.lives:
            try:
                self.live(life, self.act)
            finally:
                self.met_last = self.faults.met_any
        self.live(Life(end="cut", left=self.seed + 1), self._finish)
        prove(self, self.relays)
        return self.outcome

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
                await actor.catch_up(Line(actor))
        await wait_all_tasks_blocked()

    async def _open_all(self) -> None:
        for relay in self.relays:
            actor = next(actor for actor in self.actors if actor.relay == relay)
            await actor.insist(Line(actor), "open", None, relay=relay, create=True, retention=RETENTION[relay])
