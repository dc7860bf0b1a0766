"""What a history leaves to chance, drawn from its seed: which task goes next, and how long file work takes."""

import contextlib
import random
from collections.abc import Callable, Iterator

import trio


@contextlib.contextmanager
def seeded(seed: str) -> Iterator[None]:
    """Trio's own chance, which of many tasks goes next, comes from `seed` while this lasts."""
    run = trio._core._run
    before = run._ALLOW_DETERMINISTIC_SCHEDULING, run._r
    run._ALLOW_DETERMINISTIC_SCHEDULING, run._r = True, random.Random(seed)
    try:
        yield
    finally:
        run._ALLOW_DETERMINISTIC_SCHEDULING, run._r = before


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
