"""An opening fails, and so does the look whether the state directory is still there, which follows.

The second error took the place of the first: what the opening had said of a sync that failed was forgotten, and
active.log was synced again as if nothing were wrong with it; where a relay was removed, its end was told as a bug.
"""

import trio
from chaos.simulated.plans import Life
from chaos.simulated.scripted import Scripted, record, stored
from support.faults import Fail

LAYER = "simulated disk"
WRONG = "where looking for the state directory failed as well, an opening forgot which sync had failed before it"


def test_a_failed_sync_of_an_opening_is_remembered_though_the_state_directory_cannot_be_looked_at():
    scene = Scripted()

    async def writes():
        await record(await scene.relay(), 1)

    async def opens():
        client = await scene.client()
        for _ in range(2):
            code, _, detail = await client.refusal("status", relay="a")
            assert (code, detail["reason"]) == ("unavailable", "storage_failed")
            await trio.sleep(1.5)
        assert "sync active.log" in scene.faults.names()
        scene.faults.mend()
        await client.done("open", relay="a")
        # An opening goes on in a fresh file where a sync of active.log has failed.
        assert scene.faults.names().count("sync active.log") == 1
        assert "replace active.log.new active.log" in scene.faults.names()
        assert [one.data for one in await stored(client)] == [1]

    scene.live(Life(), writes)
    # Without a watermark an opening writes active.log over itself.
    scene.disk.folder("relays", "a").names.pop("watermark")
    fails = "sync active.log,open create active.log.new,still_there"
    scene.live(Life((Fail(1, forever=True),), of=fails), opens)


def test_a_relay_removed_while_open_is_said_to_be_though_the_state_directory_cannot_be_looked_at():
    scene = Scripted()

    async def removed():
        client = await scene.relay()
        scene.disk.folder("relays").change("a", "b")
        # The first call finds it moved, the second asks for the directory above it.
        scene.plant(Fail(2, forever=True), "still_there")
        assert (await record(client, 1))["code"] == "relay_removed"
        await trio.sleep(1)
        assert scene.faults.met_any
        scene.faults.mend()
        assert (await client.refusal("status", relay="a"))[0] == "not_found"

    scene.live(Life((Fail(10_000),)), removed)
