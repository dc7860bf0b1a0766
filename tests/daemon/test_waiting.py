"""Long polls: how each ends, and that it costs nothing while it waits (docs/reference/protocol.md, "Waiting")."""

import pytest
import trio
from support.inside import inside
from support.wire import records
from trio.testing import wait_all_tasks_blocked


async def test_a_wait_ends_by_data_for_every_reader_at_once(daemon):
    writer = await daemon.relay()
    readers = [await daemon.connect() for _ in range(5)]
    asked = [(reader, reader.send("attach", relay="a", after="latest", wait_ms=60_000)) for reader in readers]
    await wait_all_tasks_blocked()
    assert not any(reader.stream.answers for reader in readers)
    assert (await writer.done("status", relay="a"))["readers"] == 5
    recorded = await writer.done("record", relay="a", events=[["x", 1]])
    for reader, request in asked:
        page = await reader.answer(request)
        assert [one.data for one in records(page["records"])] == [1]
        assert page["through"] == page["latest"] == recorded["through"]
    assert trio.current_time() == 0
    assert (await writer.done("status", relay="a"))["readers"] == 0


@pytest.mark.parametrize("wait_ms", [1, 250, 60_000])
async def test_a_wait_ends_by_time_with_an_empty_page_at_the_cursor_asked(daemon, wait_ms):
    client = await daemon.relay()
    through = (await client.done("record", relay="a", events=[["x"]]))["through"]
    page = await client.done("attach", relay="a", after=through, wait_ms=wait_ms)
    assert (page["records"], page["count"], page["through"]) == (b"", 0, through)
    assert trio.current_time() == pytest.approx(wait_ms / 1000)


async def test_a_wait_of_0_and_a_wait_with_data_there_are_answered_at_once(daemon):
    client = await daemon.relay()
    assert (await client.done("attach", relay="a", after="latest"))["count"] == 0
    assert (await client.done("attach", relay="a", after="earliest", wait_ms=60_000))["count"] == 1
    assert trio.current_time() == 0


async def test_a_wait_ends_by_cancel_request(daemon):
    client = await daemon.relay()
    request = client.send("attach", relay="a", after="latest", wait_ms=60_000)
    other = client.send("attach", relay="a", after="latest", wait_ms=10)
    assert (await client.done("cancel_request", request=request))["re"] == "done"
    answer = client.answered(request)
    assert (answer["code"], answer["retryable"]) == ("cancelled", True)
    assert (await client.answer(other))["re"] == "page"
    assert (await client.done("record", relay="a", events=[["x"]]))["first"] == 2
    assert not client.stream.answers, "it is answered once"


async def test_cancel_request_lets_what_does_not_wait_go_on(daemon):
    client = await daemon.relay()
    daemon.gate.hold("commit")
    record = client.send("record", relay="a", events=[["x"]])
    await client.done("cancel_request", request=record)
    assert client.answered(record) is None
    daemon.gate.open()
    assert (await client.answer(record))["first"] == 2


@pytest.mark.parametrize(("job", "status"), [("read_in_thread", False), ("measure", True), ("read_in_thread", True)])
@pytest.mark.parametrize("how", ["cancelled", "gone"])
async def test_a_wait_taken_back_while_its_page_is_being_read_is_answered_once_and_waits_no_more(
    place, job, status, how
):
    async with inside(place, tail_bytes=0) as daemon:
        writer, client = await daemon.relay(), await daemon.connect()
        request = client.send("attach", relay="a", after="latest", wait_ms=60_000, status=status)
        await wait_all_tasks_blocked()
        daemon.gate.hold(job)
        await writer.done("record", relay="a", events=[["x"]])
        await wait_all_tasks_blocked()
        assert daemon.gate.reached == [job]
        if how == "gone":
            client.stream.vanish()
        else:
            await client.done("cancel_request", request=request)
            assert (await client.answer(request))["code"] == "cancelled"
            client.send("relays", id=request)
            assert (await client.answer(request))["re"] == "relays"
        await wait_all_tasks_blocked()
        daemon.gate.open()
        await wait_all_tasks_blocked()
        assert not client.stream.answers
        assert (await writer.done("status", relay="a"))["readers"] == 0
        assert not [line for line in daemon.logged if line["level"] in ("error", "exception")]


async def test_latest_with_status_begins_where_latest_was_though_more_comes_meanwhile(daemon):
    client, writer = await daemon.relay(), await daemon.connect()
    daemon.gate.hold("measure")
    request = client.send("attach", relay="a", after="latest", status=True, wait_ms=60_000)
    await wait_all_tasks_blocked()
    first = await writer.done("record", relay="a", events=[["x", 1]])
    daemon.gate.open()
    page = await client.answer(request)
    assert [one.data for one in records(page["records"])] == [1]
    assert page["through"] == page["latest"] == page["status"]["latest"] == first["through"]


@pytest.mark.parametrize("after", ["cursor", "latest", "consumer"])
@pytest.mark.parametrize("rounds", [1, 3])
async def test_a_wait_with_status_is_ended_by_what_became_durable_while_the_disk_was_measured(daemon, after, rounds):
    client, writer = await daemon.relay(), await daemon.connect()
    through = (await writer.done("record", relay="a", events=[["x", 0]]))["through"]
    await writer.done("acknowledge", relay="a", through=through, consumer="k")
    position = {"cursor": through, "latest": "latest", "consumer": {"consumer": "k"}}[after]
    daemon.gate.hold("measure")
    request = client.send("attach", relay="a", after=position, wait_ms=60_000, status=True)
    await wait_all_tasks_blocked()
    for number in range(1, rounds + 1):
        recorded = await writer.done("record", relay="a", events=[["x", number]])
    daemon.gate.open()
    page = await client.answer(request)
    assert trio.current_time() == 0
    assert [one.data for one in records(page["records"])] == list(range(1, rounds + 1))
    assert page["through"] == page["status"]["latest"] == recorded["through"]


async def test_a_wait_ends_when_its_client_goes(daemon):
    writer, reader = await daemon.relay(), await daemon.connect()
    reader.send("attach", relay="a", after="latest", wait_ms=60_000)
    reader.send("await_acknowledged", relay="a", consumer="x", through=[1, None], wait_ms=60_000)
    await wait_all_tasks_blocked()
    assert (await writer.done("status", relay="a"))["readers"] == 1
    reader.stream.vanish()
    await wait_all_tasks_blocked()
    assert (await writer.done("status", relay="a"))["readers"] == 0
    assert trio.current_time() == 0


async def test_a_wait_ends_when_sending_to_its_client_fails(daemon):
    writer, reader = await daemon.relay(), await daemon.connect()
    reader.send("attach", relay="a", after="latest", wait_ms=60_000)
    reader.send("attach", relay="a", after="latest", wait_ms=60_000)
    await wait_all_tasks_blocked()
    reader.stream.broken = True
    await writer.done("record", relay="a", events=[["x"]])
    await wait_all_tasks_blocked()
    assert reader.stream.closed
    assert (await writer.done("status", relay="a"))["readers"] == 0


async def test_a_wait_ends_at_a_clean_stop_with_shutting_down(daemon):
    client = await daemon.relay()
    waits = [
        client.send("attach", relay="a", after="latest", wait_ms=60_000),
        client.send("attach", relay="a", after="latest", wait_ms=60_000, status=True),
        client.send("await_acknowledged", relay="a", consumer="x", through=[1, None], wait_ms=60_000),
    ]
    await wait_all_tasks_blocked()
    await daemon.registry.stop()
    for request in waits:
        answer = await client.answer(request)
        assert (answer["code"], answer["retryable"]) == ("shutting_down", True)
    assert trio.current_time() == 0


async def test_a_wait_ends_when_its_relay_is_deleted(daemon):
    client = await daemon.connect()
    store = (await client.done("open", relay="a", create=True))["store"]
    request = client.send("attach", relay="a", after="latest", wait_ms=60_000)
    await client.done("delete_relay", relay="a", store=store)
    assert (await client.answer(request))["code"] == "relay_removed"


async def test_a_wait_with_status_shows_the_state_at_its_end(daemon):
    client, writer = await daemon.relay(), await daemon.connect()
    request = client.send("attach", relay="a", after="latest", wait_ms=60_000, status=True)
    await wait_all_tasks_blocked()
    recorded = await writer.done("record", relay="a", events=[["x", 7]])
    page = await client.answer(request)
    assert [one.data for one in records(page["records"])] == [7]
    assert page["status"]["latest"] == page["latest"] == recorded["through"]
    empty = await client.done("attach", relay="a", after="latest", wait_ms=100, status=True)
    assert (empty["count"], empty["status"]["latest"]) == (0, recorded["through"])


async def test_waiting_requests_past_the_bound_are_overloaded_and_the_others_wait_on(daemon):
    client = await daemon.relay()
    waits = [client.send("attach", relay="a", after="latest", wait_ms=60_000) for _ in range(256)]
    refused = client.send("attach", relay="a", after="latest", wait_ms=60_000)
    answer = await client.answer(refused)
    assert (answer["code"], answer["retryable"], answer["detail"]) == ("overloaded", True, {"bound": "waiting"})
    assert (await client.done("attach", relay="a", after="latest"))["count"] == 0, "one that does not wait is served"
    await client.done("cancel_request", request=waits[0])
    last = client.send("attach", relay="a", after="latest", wait_ms=60_000)
    await client.done("record", relay="a", events=[["x"]])
    for request in [*waits[1:], last]:
        assert (await client.answer(request))["count"] == 1


async def test_other_connections_are_not_bound_by_what_one_waits_for(daemon):
    client, other = await daemon.relay(), await daemon.connect()
    for _ in range(256):
        client.send("attach", relay="a", after="latest", wait_ms=60_000)
    assert (await other.done("attach", relay="a", after="latest", wait_ms=10))["count"] == 0


async def test_a_reader_that_was_congested_when_data_came_is_served_once_it_takes_what_it_is_owed(daemon):
    client, writer = await daemon.relay(), await daemon.connect()
    await writer.done("record", relay="a", events=[["x", bytes(400_000)]])
    waiting = client.send("attach", relay="a", after="latest", wait_ms=60_000)
    await wait_all_tasks_blocked()
    client.stream.room = 0
    client.send("attach", relay="a", after="earliest")
    await wait_all_tasks_blocked()
    await writer.done("record", relay="a", events=[["x", "new"]])
    await wait_all_tasks_blocked()
    client.stream.take()
    page = await client.answer(waiting)
    assert [one.data for one in records(page["records"])] == ["new"]
    assert trio.current_time() < 1


# Acknowledgements that are waited for


async def test_await_acknowledged_ends_when_the_consumer_gets_there(daemon):
    client, waiter = await daemon.relay(), await daemon.connect()
    await client.done("record", relay="a", events=[["x"]] * 3)
    at = {one.ordinal: one.cursor for one in await client.read_all("a")}
    request = waiter.send("await_acknowledged", relay="a", consumer="archive", through=at[3], wait_ms=60_000)
    for ordinal, consumer in ((2, "archive"), (4, "other")):
        await client.done("acknowledge", relay="a", through=at[ordinal], consumer=consumer)
        await wait_all_tasks_blocked()
        assert not waiter.stream.answers
    await client.done("acknowledge", relay="a", through=at[4], consumer="archive")
    answer = await waiter.answer(request)
    assert (answer["re"], answer["through"]) == ("acknowledged", at[4])
    now = await waiter.done("await_acknowledged", relay="a", consumer="archive", through=at[1], wait_ms=0)
    assert now["through"] == at[4]


@pytest.mark.parametrize("wait_ms", [0, 500])
async def test_await_acknowledged_past_its_wait_is_a_timeout(daemon, wait_ms):
    client = await daemon.relay()
    refused = await client.refusal("await_acknowledged", relay="a", consumer="x", through=[1, None], wait_ms=wait_ms)
    assert refused == ("timeout", True, None)
    assert trio.current_time() == pytest.approx(wait_ms / 1000)


async def test_await_acknowledged_is_taken_back(daemon):
    client = await daemon.relay()
    request = client.send("await_acknowledged", relay="a", consumer="x", through=[1, None], wait_ms=60_000)
    await client.done("cancel_request", request=request)
    assert (await client.answer(request))["code"] == "cancelled"


async def test_ten_thousand_waits_come_and_go_and_leave_nothing_behind(place):
    async with inside(place) as daemon:
        client = await daemon.relay()
        for _ in range(40):
            waits = [client.send("attach", relay="a", after="latest", wait_ms=60_000) for _ in range(250)]
            await wait_all_tasks_blocked()
            await client.done("record", relay="a", events=[["x"]])
            for request in waits:
                await client.answer(request)
        assert (await client.done("status", relay="a"))["readers"] == 0
        assert len(daemon.environment.deadlines._heap) < 4000
        assert trio.current_time() == 0
