"""A start dies, or fails, between making `relays/` and syncing the directory that it is in; the next one serves.

It found `relays/` there and synced nothing: the name was in memory alone, and a power cut took every relay with it.
"""

import pytest
from chaos.simulated.plans import Life
from chaos.simulated.scripted import Scripted, record, stored
from support.faults import Fail, Kill

LAYER = "simulated disk"
WRONG = "`relays/` made by a start that came to no end was never synced: a power cut took what was answered later"


@pytest.mark.parametrize("fault", [Kill(1, after=True), Fail(1, after=True), Fail(2)], ids=str)
def test_what_is_answered_survives_a_power_cut_though_an_earlier_start_did_not_get_to_sync_relays(fault):
    scene = Scripted()

    async def serves():
        assert (await record(await scene.relay(), 1))["re"] == "recorded"

    async def look():
        assert [one.data for one in await stored(await scene.client())] == [1]

    of = "make_directory" if fault.n == 1 else "make_directory,sync simulated/"
    scene.live(Life((fault,), of=of), serves)
    if isinstance(fault, Kill):
        scene.live(Life(), serves)
    scene.cut_power()
    scene.live(Life(), look)
