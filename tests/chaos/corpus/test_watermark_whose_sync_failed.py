"""The sync of the watermark fails before a segment goes; collection tries again, and the power goes in a rotation.

What was lost by the sync that failed is not written by one that follows: the watermark on the disk still named a
segment that was collected, and where a cut left no active.log it stood for one that was lost.
"""

import pytest
import trio
from chaos.simulated.plans import Life
from chaos.simulated.scripted import Scripted, record, stored
from support.faults import Fail, Kill

LAYER = "simulated disk"
WRONG = "a watermark whose sync had failed was synced again as it was, and believed to be on the disk"


@pytest.mark.parametrize("failing", [0, 1, 3])
def test_a_power_cut_in_a_rotation_is_no_loss_though_a_sync_of_the_watermark_failed(failing):
    scene = Scripted()
    scene.settings |= {"segment_bytes": 600, "snapshot_events": 4}
    said = []

    async def first_segment():
        said.append(await record(await scene.relay(retention="acknowledged"), 1))

    async def collected():
        client = await scene.relay()
        for number in range(2, 30):
            said[:] = [await record(client, number)]
        if failing:
            scene.plant(Fail(1), "sync watermark", then=(Fail(1),) * (failing - 1))
            scene.faults.counted = lambda call: str(call) == "sync watermark"
        await client.done("acknowledge", relay="a", through=said[-1]["through"])
        await trio.sleep(60)
        assert len(scene.disk.tree("relays", "a", "journal")) < 4, "what was acknowledged is collected"
        scene.plant(Kill(1), "replace active.log.new active.log")
        for number in range(30, 40):
            said[:] = [await record(client, number)]

    async def look():
        found = await stored(await scene.client())
        assert [one.cursor for one in found][-1:] == [said[-1]["through"]]

    scene.live(Life(), first_segment)
    watermark = scene.disk.folder("relays", "a").names["watermark"]
    # The kernel brings it to the disk when it will: now, and not again by itself.
    watermark.sync()
    scene.live(Life(faults=(Fail(10_000),)), collected)
    # The first of the two renames is on the disk, too.
    scene.disk.folder("relays", "a", "journal").sync()
    scene.cut_power()
    assert "active.log" not in scene.disk.tree("relays", "a", "journal")
    scene.live(Life(), look)
