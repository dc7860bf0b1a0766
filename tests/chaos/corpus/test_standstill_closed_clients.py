"""A daemon that was stopped for a minute closed whoever had a hello or the rest of a frame to send meanwhile.

After SIGCONT the deadlines were served before the bytes that had come: they looked as if their clients had been late.
"""

import pytest
import trio
from support.daemon import short_place
from support.inside import inside, run_virtually
from support.wire import frame
from trio.testing import MockClock

LAYER = "real process in a hostile environment"
WRONG = "A hello, or the rest of a frame, that came while the process was stopped was refused as too late."

HELLO = frame({"op": "hello", "id": 1, "versions": [1], "client": "late"})
RELAYS = frame({"op": "relays", "id": 2})


@pytest.mark.parametrize("cut", [1, 7])
@pytest.mark.parametrize("what", ["hello", "frame"])
def test_what_came_while_the_daemon_stood_still_came_in_time(what, cut):
    clock = MockClock(autojump_threshold=0)

    async def main():
        with short_place() as place:
            async with inside(place) as daemon:
                client = daemon.connect_silent() if what == "hello" else await daemon.connect()
                sent = HELLO if what == "hello" else RELAYS
                client.stream.feed(sent[:cut])
                await trio.testing.wait_all_tasks_blocked()
                clock.jump(60)
                for _ in range(20):
                    await trio.lowlevel.checkpoint()
                client.stream.feed(sent[cut:])
                answer = await client.answer(1 if what == "hello" else 2)
                assert answer["re"] == ("welcome" if what == "hello" else "relays")

    run_virtually(main, clock=clock)


@pytest.mark.parametrize("what", ["hello", "frame"])
def test_who_sends_nothing_more_is_closed_a_second_after_it(what):
    clock = MockClock(autojump_threshold=0)

    async def main():
        with short_place() as place:
            async with inside(place) as daemon:
                client = daemon.connect_silent() if what == "hello" else await daemon.connect()
                client.stream.feed(HELLO[:3])
                await trio.testing.wait_all_tasks_blocked()
                clock.jump(60)
                with trio.fail_after(1.5):
                    await client.closed()
                assert trio.current_time() == 61

    run_virtually(main, clock=clock)
