"""Histories on a disk whose syncs of active.log lie, and what a power cut may make of them.

    told = Lie(7).run()               # what was told of each relay: `prefix`, `snapshot_ahead` or `journal_corrupt`

The daemon is honest and is lied to: what it answered may be gone. What is left is then a consistent beginning of what
was said, or the relay does not open and says why, with no byte changed. A reader that is ahead is told so.
"""

import random
from collections import Counter

from chaos.simulated.actor import Actor, Line
from chaos.simulated.plans import Life
from chaos.simulated.readers import Reader
from chaos.simulated.senders import Producer, Recorder
from chaos.simulated.world import RELAYS, History
from support.wire import records

REFUSALS = frozenset({"snapshot_ahead", "journal_corrupt"})
LYING = frozenset({"active.log", "active.log.new"})
"""The names that active.log is opened by."""


class Lie(History):
    """One honest life, one that is lied to, a power cut, and a look."""

    def __init__(self, seed: int, *, trace=None) -> None:
        super().__init__(seed, [], trace=trace)
        chance = random.Random(f"lie {seed}")
        self.relays = chance.choice(RELAYS)
        self.actors = [actor for actor in self.draw_actors() if isinstance(actor, Producer | Recorder | Reader)]
        self.told: Counter[str] = Counter()
        self._left = chance.choice((0, seed, seed, seed))

    def run(self) -> Counter[str]:
        """Raises AssertionError where anything else is told."""
        self.live(Life(end=random.Random(self.seed).choice(("stop", "kill"))), self.act)
        self.disk.lies = LYING.__contains__
        self.live(Life(end="cut", left=self._left), self.act)
        self.disk.lies = None
        before = self.disk.tree("relays")
        self.live(Life(end="kill"), self._look)
        after = self.disk.tree("relays")
        for relay in self.refused:
            assert _of(relay, after) == _of(relay, before), f"I8: {relay} refused to open, and changed"
        return self.told

    async def _look(self) -> None:
        self.refused = []
        for relay in self.relays:
            actors = [actor for actor in self.actors if actor.relay == relay]
            line = Line(Onlooker("onlooker", relay, self))
            opened = await line.ask("open", relay=relay)
            if opened["re"] == "error":
                assert opened["code"] == "unavailable", opened
                assert opened["detail"]["reason"] in REFUSALS, opened
                self.told[opened["detail"]["reason"]] += 1
                self.refused.append(relay)
            else:
                self.told["prefix"] += 1
                await self._look_at(relay, line, opened["latest"][0], actors)

    async def _look_at(self, relay: str, line: Line, latest: int, actors: list[Actor]) -> None:
        known = {}
        for actor in actors:
            known |= actor.said.through | actor.said.shown
        after = "earliest"
        while True:
            page = await line.ask("attach", relay=relay, after=after)
            assert page["re"] == "page", page
            for stored in records(page["records"]):
                assert known.get(stored.ordinal, stored.digest) == stored.digest, f"no beginning of {relay}"
            after = page["through"]
            if after[0] >= latest:
                break
        for reader in actors:
            if isinstance(reader, Reader):
                answer = await line.ask("attach", relay=relay, after=reader.cursor)
                if reader.cursor[0] > latest:
                    assert answer["code"] == "desynchronized", answer
                    assert answer["detail"]["reason"] == "ahead", answer
                    self.told["ahead"] += 1
        self.told["answered and gone"] += any(ordinal > latest for ordinal in known)


class Onlooker(Actor):
    """Asks, and judges the answers elsewhere."""

    async def act(self, line: Line, steps: int) -> None:
        raise NotImplementedError

    def may_be_told(self, _op: str, _response: dict) -> bool:
        return True


def _of(relay: str, tree: dict[str, bytes]) -> dict[str, bytes]:
    return {path: content for path, content in tree.items() if path.startswith(f"{relay}/")}
