"""The snapshot at the end of an opening failed, and was not tried again before some 20,000 further events.

Meanwhile `status` said nothing of it, `snapshot.new` lay about, and with a generation gone nothing was collected.
"""

import errno

import pytest
import trio
from support.daemon import short_place
from support.faults import Fail, Faults, named
from support.inside import inside, run_virtually

LAYER = "every call boundary"
WRONG = "A snapshot that failed at the end of an opening was neither tried again nor said in status."


@pytest.mark.parametrize(
    "failing", ["open create snapshot.new", "write snapshot.new", "sync snapshot.new", "replace snapshot.new snapshot"]
)
def test_the_snapshot_of_an_opening_that_failed_is_said_and_tried_again(failing):
    async def main():
        with short_place() as place:
            async with inside(place) as daemon:
                client = await daemon.relay()
                await client.done("record", relay="a", events=[["x", 1]])
            (place / "relays/a/snapshot").unlink()
            faults = Faults(Fail(1, errno.EIO), named(failing))
            async with inside(place, faults=faults) as daemon:
                client = await daemon.connect()
                status = await client.done("status", relay="a")
                assert faults.met
                assert "snapshot" in (status.get("trouble") or "")
                await trio.sleep(3)
                assert (await client.done("status", relay="a")).get("trouble") is None
                assert (place / "relays/a/snapshot").exists()
                assert not (place / "relays/a/snapshot.new").exists()

    run_virtually(main)
