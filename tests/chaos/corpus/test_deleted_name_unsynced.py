"""A relay is deleted, and the sync behind its renaming fails: it is there or not.

What asked for it then was told `not_found` by the name in memory; after a power cut the relay was there again.
"""

import errno

import pytest
import trio
from chaos.simulated.plans import Life
from chaos.simulated.scripted import Scripted
from support.faults import Fail

LAYER = "simulated disk"
WRONG = "`not_found` was answered for a relay whose deletion was not on disk: a power cut brought it back"

ASKS = {
    "open": {"relay": "a"},
    "status": {"relay": "a"},
    "record": {"relay": "a", "events": [["x"]]},
    "delete_relay": {"relay": "a", "store": bytes(16)},
}


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("op", ASKS)
def test_that_a_relay_is_gone_is_answered_when_that_is_on_disk(op, number):
    scene = Scripted()

    async def deleted():
        client = await scene.client()
        store = (await client.done("open", relay="a", create=True))["store"]
        scene.plant(Fail(1, number, forever=True), "sync relays/")
        scene.faults.counted = lambda call: str(call) == "sync relays/"
        assert (await client.call("delete_relay", relay="a", store=store))["re"] == "error"
        assert (await client.call(op, **ASKS[op]))["code"] in ("storage_full", "storage_failed", "unavailable")
        scene.faults.mend()
        await trio.sleep(2)
        assert (await client.call(op, **ASKS[op]))["code"] == "not_found"

    async def look():
        assert (await (await scene.client()).call("open", relay="a"))["code"] == "not_found"

    scene.live(Life((Fail(10_000),), end="cut"), deleted)
    scene.live(Life(), look)
