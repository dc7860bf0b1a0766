"""What one connection may cost, and that it costs nobody else (docs/reference/protocol.md, "Bounds")."""

import pytest
import trio
from support.inside import inside
from support.wire import frame, records
from trio.testing import wait_all_tasks_blocked

HELLO = {"op": "hello", "id": 1, "versions": [1], "client": "me"}
RELAYS = frame({"op": "relays", "id": 5})


async def ended(client):
    """Everything a connection was answered, when it has ended, and at what time that was."""
    await client.closed()
    return [(one["id"], one.get("code", one["re"])) for one in client.stream.answers], trio.current_time()


# Time


async def test_without_hello_a_connection_ends_after_10_seconds(daemon):
    assert await ended(daemon.connect_silent()) == ([(0, "hello_required")], 10)


async def test_bytes_that_make_no_hello_do_not_hold_a_connection_open(daemon):
    client = daemon.connect_silent()
    for piece in frame(HELLO)[:9]:
        client.stream.feed(bytes([piece]))
        await trio.sleep(1)
    assert await ended(client) == ([(0, "hello_required")], 10)


async def test_refused_hellos_do_not_hold_a_connection_open(daemon):
    client = daemon.connect_silent()
    for _ in range(4):
        await client.refusal("hello", versions=[9], client="me")
        await trio.sleep(2)
    answers, at = await ended(client)
    assert (answers, at) == ([(0, "hello_required")], 10)


async def test_after_hello_a_silent_connection_stays(daemon):
    client = await daemon.connect()
    await trio.sleep(80_000)
    assert (await client.done("relays"))["re"] == "relays"


@pytest.mark.parametrize("size", [1, 3, 4, 10])
async def test_a_frame_that_is_not_complete_30_seconds_after_its_first_byte_ends_the_connection(daemon, size):
    client = await daemon.connect()
    await trio.sleep(1000)
    client.stream.feed(RELAYS[:size])
    assert await ended(client) == ([(0, "invalid_request")], 1030)


async def test_one_byte_a_second_does_not_stretch_the_30_seconds(daemon):
    client = await daemon.connect()
    for byte in frame(bytes(1000)):
        client.stream.feed(bytes([byte]))
        await trio.sleep(1)
        if client.stream.closed:
            break
    assert trio.current_time() == pytest.approx(30, abs=1)


async def test_each_frame_has_30_seconds_of_its_own(daemon):
    client = await daemon.connect()
    client.stream.feed(RELAYS[:-7])
    for _ in range(4):
        await trio.sleep(29)
        client.stream.feed(RELAYS[-7:] + RELAYS[:-7])
    await wait_all_tasks_blocked()
    assert [one["re"] for one in client.stream.answers] == ["relays"] * 4
    assert (await ended(client))[1] == 4 * 29 + 30


async def test_a_frame_begun_right_behind_hello_has_30_seconds(daemon):
    client = daemon.connect_silent()
    await trio.sleep(9)
    client.stream.feed(frame(HELLO) + RELAYS[:5])
    await trio.sleep(29)
    client.stream.feed(RELAYS[5:])
    assert (await client.answer(5))["re"] == "relays"


async def test_the_30_seconds_count_only_while_the_daemon_reads(place):
    async with inside(place, in_flight=1) as daemon:
        client = await daemon.relay()
        daemon.gate.hold("commit")
        first = {"op": "record", "id": 50, "relay": "a", "events": [["x"]]}
        client.stream.feed(frame(first) + frame(first | {"id": 51}) + RELAYS[:6])
        await trio.sleep(500)
        daemon.gate.open()
        await trio.sleep(29)
        client.stream.feed(RELAYS[6:])
        assert [(await client.answer(number))["re"] for number in (50, 51, 5)] == ["recorded", "recorded", "relays"]


async def test_what_waits_when_framing_is_lost_is_ended_and_the_rest_answered_first(daemon):
    client = await daemon.relay()
    daemon.gate.hold("commit")
    wait = client.send("attach", relay="a", after="latest", wait_ms=60_000)
    record = client.send("record", relay="a", events=[["x"]])
    await wait_all_tasks_blocked()
    client.stream.feed(bytes(4))
    await wait_all_tasks_blocked()
    assert not client.stream.closed
    daemon.gate.open()
    answers, at = await ended(client)
    assert sorted(answers) == [(0, "invalid_request"), (wait, "cancelled"), (record, "recorded")]
    assert at == 0


# Requests in flight


async def test_past_the_bound_of_requests_in_flight_the_connection_is_read_no_further(place):
    async with inside(place, in_flight=8) as daemon:
        client = await daemon.relay()
        daemon.gate.hold("commit")
        sent = [client.send("record", relay="a", events=[["x", number]]) for number in range(20)]
        await wait_all_tasks_blocked()
        (connection,) = daemon.server._connections
        assert connection.in_flight == 8
        assert not client.stream.answers, "no refusal: reading stops"
        other = await daemon.connect()
        assert (await other.done("attach", relay="a", after="latest"))["count"] == 0
        daemon.gate.open()
        assert [(await client.answer(request))["first"] for request in sent] == list(range(2, 22))


async def test_past_the_bound_of_bytes_in_flight_the_connection_is_read_no_further(place):
    async with inside(place, in_flight_bytes=8 << 20) as daemon:
        client = await daemon.relay()
        daemon.gate.hold("commit")
        sent = [client.send("record", relay="a", events=[["x", bytes(1 << 20)]]) for _ in range(20)]
        await wait_all_tasks_blocked()
        (connection,) = daemon.server._connections
        assert connection.in_flight == 8
        daemon.gate.open()
        assert [(await client.answer(request))["first"] for request in sent] == list(range(2, 22))


async def test_requests_that_wait_do_not_stop_the_reading(place):
    async with inside(place, in_flight=4) as daemon:
        client = await daemon.relay()
        for _ in range(100):
            client.send("attach", relay="a", after="latest", wait_ms=60_000)
        assert (await client.done("relays"))["re"] == "relays"


async def test_past_the_bound_of_events_that_wait_for_the_disk_recording_is_overloaded(place):
    async with inside(place, pending_bytes=8 << 20) as daemon:
        clients = [await daemon.relay() for _ in range(3)]
        daemon.gate.hold("commit")
        sent = [
            (client, client.send("record", relay="a", events=[["x", bytes(1 << 20)]]))
            for client in clients
            for _ in range(6)
        ]
        await wait_all_tasks_blocked()
        assert not any(client.stream.answers for client in clients)
        daemon.gate.open()
        answers = [await client.answer(request) for client, request in sent]
        refused = [one for one in answers if one["re"] == "error"]
        assert {(one["code"], one["retryable"], one["detail"]["bound"]) for one in refused} == {
            ("overloaded", True, "pending_bytes")
        }
        assert len(await clients[0].read_all("a")) == 1 + len(answers) - len(refused)


async def test_connections_past_the_bound_are_told_and_closed(place):
    async with inside(place, connections=2) as daemon:
        clients = [await daemon.connect() for _ in range(2)]
        refused = daemon.connect_silent()
        answers, at = await ended(refused)
        assert (answers, at) == ([(0, "overloaded")], 0)
        assert refused.stream.answers[0]["detail"] == {"bound": "connections"}
        for _ in range(50):
            daemon.connect_silent()
        assert len(daemon.said("connection_refused")) == 1, "one line a second"
        clients[0].stream.vanish()
        await wait_all_tasks_blocked()
        assert (await daemon.connect()).stream.closed is False


# Peers that do not take what they are owed


async def test_a_client_that_half_closes_is_sent_what_it_is_owed(daemon):
    client = await daemon.relay()
    record = client.send("record", relay="a", events=[["x"]])
    wait = client.send("attach", relay="a", after="latest", wait_ms=500)
    client.stream.half_close()
    answers, at = await ended(client)
    assert sorted(answers) == [(record, "recorded"), (wait, "page")]
    assert at <= 0.5


async def test_a_reader_that_never_reads_costs_no_memory_and_nobody_else(daemon):
    writer = await daemon.relay()
    for _ in range(8):
        await writer.done("record", relay="a", events=[["x", bytes(500_000)]])
    lazy = [await daemon.connect() for _ in range(20)]
    for client in lazy:
        client.stream.room = 0
        for _ in range(200):
            client.send("attach", relay="a", after="earliest", max_bytes=4 << 20)
    await wait_all_tasks_blocked()
    # Each is owed the page that made it congested, and at most those few whose files were being read.
    assert daemon.environment.outbox.unsent_bytes < 20 * 3 * (4 << 20)
    assert all(not client.stream.closed for client in lazy)
    reader = await daemon.connect()
    assert len(await reader.read_all("a")) == 9
    for client in lazy:
        client.stream.vanish()
        client.stream.broken = True
        client.stream.take(1)
    await wait_all_tasks_blocked()
    assert daemon.environment.outbox.unsent_bytes == 0
    assert len(daemon.server._connections) == 2


async def test_live_events_are_not_kept_for_a_reader_that_does_not_read(daemon):
    writer, lazy = await daemon.relay(), await daemon.connect()
    lazy.stream.room = 0
    for _ in range(250):
        lazy.send("attach", relay="a", after="latest", wait_ms=60_000)
    await wait_all_tasks_blocked()
    for _ in range(30):
        await writer.done("record", relay="a", events=[["x", bytes(100_000)]])
    assert daemon.environment.outbox.unsent_bytes < 1 << 20


@pytest.mark.parametrize("status", [False, True])
@pytest.mark.parametrize("wait_ms", [2000, 60_000])
@pytest.mark.parametrize("tail_bytes", [0, 4 << 20])
async def test_waits_of_a_client_that_reads_nothing_hold_a_page_or_two_also_past_their_time(
    place, status, wait_ms, tail_bytes
):
    size = 1_000_000
    async with inside(place, page_cache_bytes=0, tail_bytes=tail_bytes) as daemon:
        writer, lazy = await daemon.relay(), await daemon.connect()
        through = (await writer.done("record", relay="a", events=[["x"]]))["through"]
        lazy.stream.room = 0
        waits = [lazy.send("attach", relay="a", after=through, wait_ms=wait_ms, status=status) for _ in range(250)]
        await trio.sleep(0.5)
        await writer.done("record", relay="a", events=[["x", bytes(size)]])
        for _ in range(20):
            await wait_all_tasks_blocked()
            assert daemon.environment.outbox.unsent_bytes < 4 * size
            await trio.sleep(4)
        lazy.stream.take()
        with trio.fail_after(200):
            pages = [await lazy.answer(request) for request in waits]
        assert {page["count"] for page in pages} == {1}, "each is answered what came in its time"
        await wait_all_tasks_blocked()
        assert daemon.environment.outbox.unsent_bytes == 0


@pytest.mark.parametrize("tail_bytes", [0, 4 << 20])
async def test_while_many_do_not_take_what_they_are_owed_one_that_does_is_served_without_a_pause(place, tail_bytes):
    async with inside(place, tail_bytes=tail_bytes) as daemon:
        writer = await daemon.relay()
        for _ in range(8):
            await writer.done("record", relay="a", events=[["x", bytes(40_000)]])
        lazy = [await daemon.connect() for _ in range(80)]
        for client in lazy:
            client.stream.room = 0
            for _ in range(20):
                client.send("attach", relay="a", after=[1, None], max_bytes=50_000)
        await wait_all_tasks_blocked()
        unsent = daemon.environment.outbox.unsent_bytes
        assert 6 << 20 < unsent < (8 << 20) + 80 * 2 * 41_000, "past 8 MiB nobody is owed more than a page or two"
        reader = await daemon.connect()
        wait = reader.send("attach", relay="a", after="latest", wait_ms=60_000)
        asked = [reader.send("attach", relay="a", after=[1 + at % 8, None]) for at in range(40)]
        asked += [reader.send("record", relay="a", events=[["x", bytes(100_000)]]) for _ in range(40)]
        asked += [reader.send("attach", relay="a", after="earliest", status=True) for _ in range(40)]
        for request in [wait, *asked]:
            assert (await reader.answer(request))["re"] in ("page", "recorded")
        assert trio.current_time() == 0
        assert daemon.environment.outbox.unsent_bytes == unsent
        for client in lazy:
            client.stream.take()
        with trio.fail_after(10):
            for client in lazy:
                for request in range(2, 22):
                    assert (await client.answer(request))["count"] >= 1
        await wait_all_tasks_blocked()
        assert (daemon.environment.outbox.pages_bytes, trio.current_time()) == (0, 0)


@pytest.mark.parametrize("status", [False, True])
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("opened", ["before the last is taken back", "at the end"])
async def test_waits_taken_back_while_they_are_read_from_files_leave_their_connection_readable(
    place, status, count, opened
):
    async with inside(place, tail_bytes=0) as daemon:
        writer, client = await daemon.relay(), await daemon.connect()
        through = (await writer.done("record", relay="a", events=[["x"]]))["through"]
        wait = {"relay": "a", "wait_ms": 60_000, "status": status}
        request = client.send("attach", after=through, **wait)
        await wait_all_tasks_blocked()
        daemon.gate.hold("read_in_thread")
        for left in reversed(range(count)):
            through = (await writer.done("record", relay="a", events=[["x"]]))["through"]
            await wait_all_tasks_blocked()
            assert daemon.gate.reached.count("read_in_thread") == count - left, "it goes to the files"
            following = client.send("attach", after=through, **wait) if left else 0
            await wait_all_tasks_blocked()
            if not left and opened == "before the last is taken back":
                daemon.gate.open()
            taken_back = client.send("cancel_request", request=request)
            with trio.fail_after(100):
                assert (await client.answer(taken_back))["re"] == "done"
                assert (answer := await client.answer(request)).get("code", "page") in ("cancelled", "page"), answer
            request = following
        await wait_all_tasks_blocked()
        daemon.gate.open()
        with trio.fail_after(100):
            assert (await client.done("status", relay="a"))["latest"][0] == count + 2
            assert (await client.done("attach", relay="a", after="earliest"))["count"] == count + 2
        await wait_all_tasks_blocked()
        assert {connection.reads for connection in daemon.server._connections} == {0}
        assert (await client.done("status", relay="a"))["readers"] == 0


async def test_a_slow_reader_gets_every_page_whole_and_in_its_own_time(daemon):
    writer, slow = await daemon.relay(), await daemon.connect()
    for number in range(30):
        await writer.done("record", relay="a", events=[["x", [number, bytes(20_000)]]])
    slow.stream.room = 0
    asked = [slow.send("attach", relay="a", after=[at, None], max_bytes=100_000) for at in range(30)]
    seen = {}
    with trio.fail_after(10_000):
        while len(seen) < 30:
            slow.stream.take(7_001)
            await trio.sleep(1)
            for request in asked:
                page = slow.answered(request)
                if page is not None:
                    seen[request] = records(page["records"])
    assert [seen[request][0].ordinal for request in asked] == list(range(1, 31))


async def test_a_connection_that_breaks_in_the_middle_of_a_frame_is_closed_and_never_written_again(daemon):
    writer, client = await daemon.relay(), await daemon.connect()
    await writer.done("record", relay="a", events=[["x", bytes(50_000)]])
    client.stream.room = 1000
    client.send("attach", relay="a", after="earliest")
    await wait_all_tasks_blocked()
    client.stream.broken = True
    client.stream.take()
    await wait_all_tasks_blocked()
    assert client.stream.closed
    assert not client.stream.answers
    assert (await writer.done("relays"))["re"] == "relays"


async def test_pipelined_requests_of_one_connection_are_decided_in_the_order_sent(daemon):
    """Also where the relay is made, opened, and closed in between."""
    client = await daemon.connect()
    sent = [client.send("record", relay="a", events=[["x"]]), client.send("open", relay="a", create=True)]
    sent += [
        client.send("record", relay="a", events=[["x", number]], producer="p", sequence=number)
        for number in (1, 2, 4, 3)
    ]
    sent += [client.send("status", relay="a"), client.send("open", relay="a", create=True)]
    answers = [await client.answer(request) for request in sent]
    assert [one.get("code", one["re"]) for one in answers] == [
        "not_found", "opened", "recorded", "recorded", "invalid_state", "recorded", "status", "opened",
    ]  # fmt: skip
    assert [one.get("first") for one in answers[2:6]] == [2, 3, None, 4]
    assert answers[6]["latest"][0] == 4
    assert (answers[1]["created"], answers[7]["created"]) == (True, False)


async def test_records_of_one_relay_are_answered_in_order_refusals_and_duplicates_too(daemon):
    client = await daemon.relay()
    daemon.gate.hold("commit")
    sent = []
    for number in range(1, 30):
        sent.append(client.send("record", relay="a", events=[["x", number]], producer="p", sequence=number))
        sent.append(client.send("record", relay="a", events=[["x", number]], producer="p", sequence=number))
        sent.append(client.send("record", relay="a", events=[["x", number]], producer="p", sequence=number + 5))
        sent.append(client.send("record", relay="a", producer="p"))
    await wait_all_tasks_blocked()
    daemon.gate.open()
    await wait_all_tasks_blocked()
    assert [one["id"] for one in client.stream.answers] == sent
    kinds = [one.get("code") or ("duplicate" if one.get("duplicate") else one["re"]) for one in client.stream.answers]
    assert kinds == ["recorded", "duplicate", "invalid_state", "recorded"] * 29
