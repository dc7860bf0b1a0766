"""`acknowledge`, `await_acknowledged`, `forget_consumer` in one go: the wait ended in `timeout`.

Whatever asked where a consumer stands was looked at when all three had been written, and so after the consumer was
forgotten: `status` did not show it, `attach` began at the first event. The other way round, behind a `forget_consumer`
that was not written yet, a wait was answered `acknowledged` from what stood before.
"""

import pytest
import trio
from support.daemon import short_place
from support.inside import inside, run_virtually
from support.wire import records
from trio.testing import wait_all_tasks_blocked

LAYER = "frames and peers"
WRONG = "What asks where a consumer stands was not decided in the order sent, behind it stood a `forget_consumer`."


@pytest.fixture
def place():
    with short_place() as path:
        yield path


async def begun(daemon, count=12):
    """A client, and the cursors of events."""
    client = await daemon.relay()
    answers = [await client.done("record", relay="a", events=[["x", "y" * 1000]]) for _ in range(count)]
    await wait_all_tasks_blocked()
    return client, [answer["through"] for answer in answers]


def send_await(client, through, wait_ms=50):
    return client.send("await_acknowledged", relay="a", consumer="k", through=through, wait_ms=wait_ms)


@pytest.mark.parametrize("held", [None, "digest_at", "replace"])
@pytest.mark.parametrize("wait_ms", [0, 50])
@pytest.mark.parametrize("at", [2, -1])
def test_a_wait_between_acknowledge_and_forget_is_answered_acknowledged(place, held, wait_ms, at):
    async def main():
        async with inside(place, segment_bytes=4096, tail_bytes=2000) as daemon:
            client, cursors = await begun(daemon)
            if held:
                daemon.gate.hold(held)
            requests = [
                client.send("acknowledge", relay="a", through=cursors[at], consumer="k"),
                send_await(client, cursors[at], wait_ms),
                client.send("forget_consumer", relay="a", consumer="k"),
            ]
            await wait_all_tasks_blocked()
            daemon.gate.open()
            answers = [await client.answer(request) for request in requests]
            assert [one["re"] for one in answers] == ["acknowledged", "acknowledged", "done"]
            assert answers[1]["through"] == cursors[at]

    run_virtually(main)


@pytest.mark.parametrize("held", [None, "digest_at", "replace"])
def test_what_asks_between_acknowledge_and_forget_sees_the_consumer(place, held):
    async def main():
        async with inside(place, segment_bytes=4096, tail_bytes=2000) as daemon:
            client, cursors = await begun(daemon)
            if held:
                daemon.gate.hold(held)
            requests = [
                client.send("acknowledge", relay="a", through=cursors[5], consumer="k"),
                client.send("status", relay="a"),
                client.send("attach", relay="a", after={"consumer": "k"}),
                client.send("acknowledge", relay="a", through=cursors[9], consumer="k"),
                client.send("status", relay="a"),
                client.send("forget_consumer", relay="a", consumer="k"),
                client.send("status", relay="a"),
            ]
            await wait_all_tasks_blocked()
            daemon.gate.open()
            answers = [await client.answer(request) for request in requests]
            consumers = [one["consumers"] for one in answers if one["re"] == "status"]
            assert consumers == [{"k": cursors[5]}, {"k": cursors[9]}, {}]
            assert records(answers[2]["records"])[0].ordinal == cursors[5][0] + 1

    run_virtually(main)


@pytest.mark.parametrize("held", [None, "digest_at", "replace"])
@pytest.mark.parametrize("wait_ms", [0, 50])
def test_a_wait_behind_forget_is_for_the_next_acknowledgement(place, held, wait_ms):
    async def main():
        async with inside(place, segment_bytes=4096, tail_bytes=2000) as daemon:
            client, cursors = await begun(daemon)
            await client.done("acknowledge", relay="a", through=cursors[-1], consumer="k")
            if held:
                daemon.gate.hold(held)
            requests = [
                client.send("acknowledge", relay="a", through=cursors[1], consumer="other"),
                client.send("forget_consumer", relay="a", consumer="k"),
                send_await(client, cursors[3], wait_ms),
            ]
            await wait_all_tasks_blocked()
            daemon.gate.open()
            answers = [await client.answer(request) for request in requests]
            assert [one.get("code", one["re"]) for one in answers] == ["acknowledged", "done", "timeout"]

    run_virtually(main)


@pytest.mark.parametrize("end", ["taken back", "time is up", "client gone", "clean stop"])
def test_a_wait_whose_turn_has_not_come_ends_once(place, end):
    async def main():
        async with inside(place, segment_bytes=4096, tail_bytes=2000) as daemon:
            other, cursors = await begun(daemon)
            client = await daemon.connect()
            daemon.gate.hold("digest_at")
            acknowledge = other.send("acknowledge", relay="a", through=cursors[2], consumer="k")
            await wait_all_tasks_blocked()
            request = send_await(client, cursors[2], 1000)
            await wait_all_tasks_blocked()
            if end == "taken back":
                await client.done("cancel_request", request=request)
            elif end == "time is up":
                await trio.sleep(2)
            elif end == "client gone":
                client.stream.vanish()
            await wait_all_tasks_blocked()
            async with trio.open_nursery() as nursery:
                if end == "clean stop":
                    nursery.start_soon(daemon.registry.stop)
                    await wait_all_tasks_blocked()
                daemon.gate.open()
                assert (await other.answer(acknowledge))["through"] == cursors[2]
            codes = {"taken back": "cancelled", "time is up": "timeout", "clean stop": "shutting_down"}
            assert [one["code"] for one in client.stream.answers] == ([codes[end]] if end in codes else [])
            assert not [line for line in daemon.logged if line["level"] in ("error", "exception")]

    run_virtually(main)
