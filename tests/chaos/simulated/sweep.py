"""One fixed workload, with each call of its disk in turn the one at which something happens.

    for sweep in sweeps():
        for history in sweep.histories():
            history.run()

The workload has everything in it: rotation, sealing, snapshots, eviction, collection, acknowledging, making and
deleting relays. While it is served the fault comes in its first life; for an opening that life is ended in one of
several ways, and the fault comes in the next one, from its first call on. Call 1, 2, 3 … until a run meets none.
"""

import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from chaos.simulated.plans import Life
from chaos.simulated.world import History
from support.faults import READS, Fail, Kill, Short

SEED = 2

SCENES = {
    "at rest": Life(end="kill"),
    "torn": Life((Short(18, 70, kill=True),), of="write", end="kill"),
    "a failed sync, then killed": Life((Fail(30, errno.EIO), Kill(1)), of="sync", end="kill", left=3),
    "killed while sealing": Life((Kill(4),), of="unlink"),
    "killed in a rotation": Life((Kill(6),), of="replace"),
    "killed while a snapshot got its name": Life((Kill(13, after=True),), of="replace"),
}
"""What an opening is swept over: how the life before it ended."""


@dataclass(frozen=True)
class Sweep:
    """`fault(n)` at call n of those that `of` names; `end`: what becomes of the disk then, `survivors` of each cut.

    `scene`: it strikes where the daemon starts on this one; None: where it serves.
    """

    name: str
    fault: Callable[[int], Fail | Kill | Short]
    end: str = "cut"
    of: str = "changing"
    survivors: int = 1
    scene: str | None = None

    def histories(self, first: int = 1, stride: int = 1, calls: int | None = None) -> Iterator[History]:
        """A history for call `first` and each `stride`-th after it, up to call `calls` or one that meets nothing.

        Each has to be run before the next is asked for.
        """
        before = [] if self.scene is None else [SCENES[self.scene]]
        n = first
        while calls is None or n <= calls:
            for survivor in range(self.survivors):
                struck = Life((self.fault(n),), of=self.of, end=self.end, left=survivor and 1000 * survivor + n)
                history = History(SEED, [*before, struck], everything=True)
                yield history
                if not history.met_last:
                    return
            n += stride


def _each(scene: str | None, survivors: int, taken: tuple[int, ...]) -> Iterator[Sweep]:
    where = "serving" if scene is None else f"opening, {scene}"
    for after in (False, True):
        at = "behind call n" if after else "at call n"
        yield Sweep(f"{where}: killed {at}", partial(Kill, after=after), "kill", scene=scene)
        yield Sweep(f"{where}: power cut {at}", partial(Kill, after=after), survivors=survivors, scene=scene)
        for number in (errno.EIO, errno.ENOSPC):
            fail = partial(Fail, errno=number, after=after)
            yield Sweep(f"{where}: {errno.errorcode[number]} {at}", fail, scene=scene)
    for number in (errno.EIO, errno.ENOSPC):
        fail = partial(Fail, errno=number, forever=True)
        yield Sweep(f"{where}: {errno.errorcode[number]} from call n on, until mended", fail, scene=scene)
    fail = partial(Fail, errno=errno.EIO)
    yield Sweep(f"{where}: EIO at sync n", fail, of="sync", survivors=survivors, scene=scene)
    yield Sweep(f"{where}: EIO at reading call n", fail, of=",".join(sorted(READS)), scene=scene)
    for size in taken:
        yield Sweep(f"{where}: write n takes {size} bytes", partial(Short, taken=size), of="write", scene=scene)
        torn = partial(Short, taken=size, kill=True)
        yield Sweep(f"{where}: killed when write n took {size} bytes", torn, "kill", of="write", scene=scene)


def sweeps(survivors: int = 3, taken: tuple[int, ...] = (0, 1, 63, 64, 200)) -> list[Sweep]:
    """All of them. `taken`: so many bytes of a write that is short."""
    return [sweep for scene in (None, *SCENES) for sweep in _each(scene, survivors, taken)]
