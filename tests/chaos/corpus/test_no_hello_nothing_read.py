"""A peer that said no hello and took nothing of what it was refused held its connection for ever.

The ten seconds stood still while the peer did not take its refusals: they counted only while the daemon read. And when
they, or the peer's own sending, had come to an end, the rest was waited for without end.
"""

import pytest
import trio
from support.daemon import short_place
from support.inside import inside, run_virtually
from support.wire import frame

LAYER = "frames and peers"
WRONG = "A connection without hello was not closed after 10 s where its peer read nothing of what it was refused."

REFUSED = frame({"op": "relays", "id": 1})
ENDS = {"sends on": b"", "breaks framing": bytes(4), "half-closes": None}


@pytest.mark.parametrize("count", [100, 4000])
@pytest.mark.parametrize("end", ENDS)
def test_without_hello_a_connection_whose_peer_reads_nothing_is_closed_after_10_seconds(count, end):
    async def main():
        with short_place() as place:
            async with inside(place) as daemon:
                client = daemon.connect_silent()
                client.stream.room = 0
                client.stream.feed(REFUSED * count)
                if ENDS[end] is None:
                    client.stream.half_close()
                else:
                    client.stream.feed(ENDS[end])
                with trio.fail_after(11):
                    await client.closed()
                assert trio.current_time() == 10
                assert daemon.environment.outbox.unsent_bytes == 0

    run_virtually(main)
