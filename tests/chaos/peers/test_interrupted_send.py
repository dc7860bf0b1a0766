"""Cancelled in the middle of sending a frame: that connection closes, and never another byte goes out on it.

The client library's own half is in tests/client/test_async.py.
"""

import os
import struct

import pytest
import trio
from support.daemon import short_place
from support.inside import Client, Stream, inside, run_virtually
from trio.testing import wait_all_tasks_blocked

from relayd.daemon.server import Server
from relayd.daemon.transport import Peer


class Watched(Stream):
    """Remembers every byte that left, and whether any was tried after the connection was closed."""

    def __init__(self):
        super().__init__()
        self.left = b""
        self.tried_after_close = False

    def send_now(self, buffers):
        self.tried_after_close |= self.closed
        data = b"".join(buffers)[: self.room]
        self.left += data
        return super().send_now(buffers)


async def cancelled_within_a_page(daemon, taken, what):
    """A connection that was cancelled after its client took so many bytes of a page; gives its stream."""
    writer = await daemon.relay()
    await writer.done("record", relay="a", events=[["x", bytes(5000)]])
    stream = Watched()
    async with trio.open_nursery() as nursery:
        Server(daemon.environment, daemon.registry, nursery).connect(stream, Peer(1, os.geteuid(), 0))
        client = Client(stream)
        await client.done("hello", versions=[1], client="x")
        stream.left, stream.room = b"", taken
        client.send("attach", relay="a", after="earliest")
        client.send("status", relay="a")
        client.send("attach", relay="a", after="latest", wait_ms=60_000)
        await wait_all_tasks_blocked()
        if what == "between sends":
            # It takes a little more, and the rest still waits.
            stream.take(1)
            await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert stream.closed
    return writer, stream


@pytest.mark.parametrize("what", ["at the first", "between sends"])
@pytest.mark.parametrize("taken", [1, 3, 4, 5, 100, 2500, 5000])
def test_cancelled_after_k_bytes_of_a_frame_the_connection_closes_and_sends_nothing_more(taken, what):
    async def main():
        with short_place() as place:
            async with inside(place) as daemon:
                writer, stream = await cancelled_within_a_page(daemon, taken, what)
                left = stream.left
                assert len(left) == taken + (what == "between sends")
                stream.take()
                # What it waited for comes, and its time too.
                await writer.done("record", relay="a", events=[["x"]])
                await trio.sleep(100)
                await wait_all_tasks_blocked()
                assert stream.left == left
                assert not stream.tried_after_close
                if len(left) >= 4:
                    assert len(left) < 4 + struct.unpack(">I", left[:4])[0], "it was the middle of a frame"
                assert daemon.environment.outbox.unsent_bytes == 0
                assert (await writer.done("status", relay="a"))["readers"] == 0

    run_virtually(main)
