"""A group's write is cut short, it is cut back, and the power goes while the next group is written in its place.

The cut was in memory alone. Of the next group, which nobody was answered, some pieces were on the disk; in place of the
others stood those of the failed one, and no zeros: it could not be told whether that was a torn write, or damage.
"""

import random

import pytest
import trio
from chaos.simulated.plans import Life
from chaos.simulated.scripted import Scripted, record
from support.faults import Fail, Kill, Short

LAYER = "simulated disk"
WRONG = "pieces of a group that was cut back showed through an unanswered one: `journal_undecided` after a power cut"


@pytest.mark.parametrize("killed", [False, True], ids=["the process lives", "the process is killed behind the cut"])
def test_every_power_cut_in_the_group_behind_a_failed_one_opens(killed):
    scene = Scripted()

    async def send(text):
        return await (await scene.relay()).call("record", relay="a", events=[["x", text]])

    async def fails():
        await record(await scene.relay(), 1)
        scene.plant(Short(1, 1100), "write active.log", then=(Kill(1, after=True),) * killed)
        assert (await send("A" * 1500))["code"] == "storage_full"
        await trio.sleep(3)
        await dies_before_the_sync()

    async def dies_before_the_sync():
        scene.plant(Kill(1), "sync active.log")
        await send("B" * 1200)

    scene.live(Life((Fail(10_000),)), fails)
    if killed:
        scene.live(Life(), lambda: _opened_and(dies_before_the_sync, scene))
    whole = scene.disk

    async def look():
        assert (await (await scene.client()).done("status", relay="a"))["latest"][0] in (2, 3)

    left = {}
    for seed in range(1500):
        disk = whole.cut(random.Random(seed))
        left.setdefault(disk.tree("relays", "a", "journal")["active.log"], disk)
    for disk in left.values():
        scene.disk = disk
        scene.live(Life(), look)
    assert len(left) > 8


async def _opened_and(act, scene):
    """Once the relay is open: its opening syncs active.log as well."""
    await scene.relay()
    await act()
