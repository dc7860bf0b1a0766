"""A connection whose framing was lost stayed open for a minute where a request began to wait only after that.

What waits was ended when framing was lost; what had first to wait for its relay to open, or for the disk, was not.
"""

import pytest
import trio
from support.daemon import short_place
from support.inside import inside, run_virtually
from support.wire import frame
from trio.testing import wait_all_tasks_blocked

LAYER = "frames and peers"
WRONG = (
    "After framing was lost, a request that had not begun to wait kept the connection open for all of its `wait_ms`."
)

WAITS = {
    "attach": {"op": "attach", "after": "latest", "wait_ms": 60_000},
    "attach with status": {"op": "attach", "after": "latest", "wait_ms": 60_000, "status": True},
    "await_acknowledged": {"op": "await_acknowledged", "consumer": "k", "through": [1, None], "wait_ms": 60_000},
}


@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize("closed", [True, False])
def test_a_wait_that_begins_after_framing_was_lost_is_ended_at_once(wait, closed):
    async def main():
        with short_place() as place:
            async with inside(place) as daemon:
                await daemon.relay()
                if closed:
                    await daemon.nobody_asks()
                client = await daemon.connect()
                daemon.gate.hold("measure")
                began = trio.current_time()
                client.stream.feed(frame({"id": 5, "relay": "a", **WAITS[wait]}) + bytes(4))
                await wait_all_tasks_blocked()
                daemon.gate.open()
                with trio.fail_after(100):
                    await client.closed()
                assert trio.current_time() == began
                assert sorted((one["id"], one["code"]) for one in client.stream.answers) == [
                    (0, "invalid_request"),
                    (5, "cancelled"),
                ]

    run_virtually(main)
