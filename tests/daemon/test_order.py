"""One connection's requests to one relay are decided in the order sent (docs/reference/protocol.md, "Operations")."""

import errno

import pytest
import trio
from support.faults import Fail, Faults, named
from support.inside import inside
from support.wire import records
from trio.testing import wait_all_tasks_blocked

EVENTS = 20


@pytest.fixture
async def behind(place):
    """A daemon that knows no digest of the first segments but from their files."""
    async with inside(place, segment_bytes=4096, tail_bytes=2000, idle_relay=5) as running:
        yield running


async def fill(daemon):
    """A client, and the cursor of each event: `at[ordinal]`."""
    client = await daemon.relay(retention="acknowledged")
    answers = [await client.done("record", relay="a", events=[["x", "y" * 1000]]) for _ in range(EVENTS)]
    await wait_all_tasks_blocked()
    return client, {answer["first"]: answer["through"] for answer in answers}


async def answers(client, requests, seconds=100):
    """Their answers, in the order of the requests; all come before anybody would call it lost."""
    with trio.fail_after(seconds):
        return [await client.answer(request) for request in requests]


def no_trouble(daemon):
    return not [line for line in daemon.logged if line["level"] in ("error", "exception")]


# The first request of a closed relay


@pytest.mark.parametrize("ordinal", [2, 5, EVENTS, EVENTS + 1])
@pytest.mark.parametrize("pipelined", [False, True])
async def test_an_acknowledge_that_needs_the_files_may_be_the_first_request_of_a_closed_relay(
    behind, ordinal, pipelined
):
    _, at = await fill(behind)
    await behind.nobody_asks()
    client = await behind.connect()
    requests = [client.send("acknowledge", relay="a", through=at[ordinal])]
    if pipelined:
        requests += [
            client.send("acknowledge", relay="a", through=at[ordinal], consumer="other"),
            client.send("forget_consumer", relay="a", consumer="other"),
        ]
    requests.append(client.send("status", relay="a"))
    found = await answers(client, requests)
    assert found[0]["through"] == at[ordinal]
    assert found[-1]["consumers"] == {"controller": at[ordinal]}
    assert (await client.done("record", relay="a", events=[["x"]]))["first"] == EVENTS + 2
    assert no_trouble(behind)


async def test_a_wrong_acknowledge_that_needs_the_files_is_refused_as_the_first_request_too(behind):
    _, at = await fill(behind)
    await behind.nobody_asks()
    client = await behind.connect()
    code, retryable, _ = await client.refusal("acknowledge", relay="a", through=[3, at[4][1]])
    assert (code, retryable) == ("desynchronized", False)
    assert (await client.done("acknowledge", relay="a", through=at[3]))["through"] == at[3]
    assert no_trouble(behind)


async def test_a_closed_relay_whose_first_request_needs_the_files_is_closed_and_opened_again(behind):
    """What it holds is given back: its lock, too."""
    _, at = await fill(behind)
    for ordinal in (2, 3, 4):
        await behind.nobody_asks()
        client = await behind.connect()
        assert (await client.done("acknowledge", relay="a", through=at[ordinal]))["through"] == at[ordinal]
        client.stream.vanish()
    assert no_trouble(behind)


# Behind an acknowledgement that goes to the files, or to the disk


@pytest.mark.parametrize("held", [None, "digest_at", "replace"])
@pytest.mark.parametrize("ordinal", [3, EVENTS + 1])
async def test_acknowledge_then_forget_leaves_no_consumer(behind, held, ordinal):
    client, at = await fill(behind)
    if held:
        behind.gate.hold(held)
    requests = [
        client.send("acknowledge", relay="a", through=at[ordinal], consumer="k"),
        client.send("forget_consumer", relay="a", consumer="k"),
    ]
    await wait_all_tasks_blocked()
    behind.gate.open()
    acknowledged, forgotten = await answers(client, requests)
    assert acknowledged["through"] == at[ordinal], "its own cursor, though its consumer is forgotten by now"
    assert forgotten["re"] == "done"
    assert (await client.done("status", relay="a"))["consumers"] == {}


@pytest.mark.parametrize("held", [None, "digest_at", "replace"])
async def test_forget_then_acknowledge_leaves_the_consumer_at_its_new_cursor(behind, held):
    client, at = await fill(behind)
    await client.done("acknowledge", relay="a", through=at[2], consumer="pin")
    await client.done("acknowledge", relay="a", through=at[18], consumer="k")
    if held:
        behind.gate.hold(held)
    requests = [
        client.send("acknowledge", relay="a", through=at[17], consumer="other"),
        client.send("forget_consumer", relay="a", consumer="k"),
        client.send("acknowledge", relay="a", through=at[16], consumer="k"),
    ]
    await wait_all_tasks_blocked()
    behind.gate.open()
    found = await answers(client, requests)
    assert found[2]["through"] == at[16]
    consumers = (await client.done("status", relay="a"))["consumers"]
    assert consumers == {"k": at[16], "other": at[17], "pin": at[2]}


async def test_each_acknowledgement_of_one_batch_is_answered_its_own_cursor(behind):
    client, at = await fill(behind)
    behind.gate.hold("replace")
    said = [("k", 4), ("k", 9), ("other", 2), ("k", EVENTS + 1), ("k", 6)]
    requests = [client.send("acknowledge", relay="a", through=at[ordinal], consumer=name) for name, ordinal in said]
    await wait_all_tasks_blocked()
    behind.gate.open()
    found = await answers(client, requests)
    reached = [at[4], at[9], at[2], at[EVENTS + 1], at[EVENTS + 1]]
    assert [answer["through"] for answer in found] == reached, "an older one changes nothing"


ASKING = {
    "attach": {"after": {"consumer": "k"}},
    "attach with status": {"after": {"consumer": "k"}, "status": True},
    "status": {},
    "await_acknowledged": {"consumer": "k", "wait_ms": 0},
    "await_acknowledged for a while": {"consumer": "k", "wait_ms": 10},
}


@pytest.mark.parametrize("asking", ASKING)
@pytest.mark.parametrize("held", [None, "digest_at", "replace"])
@pytest.mark.parametrize("ordinal", [4, 18, EVENTS + 1])
async def test_what_asks_where_a_consumer_stands_sees_what_was_acknowledged_before_it(behind, asking, held, ordinal):
    client, at = await fill(behind)
    if held:
        behind.gate.hold(held)
    fields = ASKING[asking] | ({"through": at[ordinal]} if asking.startswith("await") else {})
    requests = [
        client.send("acknowledge", relay="a", through=at[ordinal], consumer="k"),
        client.send(asking.split()[0], relay="a", **fields),
    ]
    await wait_all_tasks_blocked()
    behind.gate.open()
    acknowledged, told = await answers(client, requests)
    assert acknowledged["through"] == at[ordinal]
    assert told["re"] != "error", told
    if asking.startswith("attach"):
        stored = records(told["records"])
        assert (stored[0].ordinal if stored else told["through"][0] + 1) == ordinal + 1
    if "status" in asking:
        assert told.get("status", told)["consumers"] == {"k": at[ordinal]}
    if asking.startswith("await"):
        assert told["through"] == at[ordinal]


@pytest.mark.parametrize("asking", ASKING)
async def test_what_asks_behind_a_refused_acknowledgement_sees_that_nothing_was_acknowledged(behind, asking):
    client, at = await fill(behind)
    fields = ASKING[asking] | ({"through": at[4]} if asking.startswith("await") else {})
    requests = [
        client.send("acknowledge", relay="a", through=[4, at[5][1]], consumer="k"),
        client.send(asking.split()[0], relay="a", **fields),
    ]
    refused, told = await answers(client, requests)
    assert refused["code"] == "desynchronized"
    if asking.startswith("await"):
        assert told["code"] == "timeout"
    elif asking == "status":
        assert told["consumers"] == {}
    else:
        assert records(told["records"])[0].ordinal == 1


async def test_a_client_that_goes_while_its_acknowledgement_asks_the_files_leaves_nobody_behind_it_waiting(behind):
    other, at = await fill(behind)
    client = await behind.connect()
    behind.gate.hold("digest_at")
    client.send("acknowledge", relay="a", through=at[4], consumer="k")
    await wait_all_tasks_blocked()
    requests = [
        other.send("acknowledge", relay="a", through=at[6], consumer="other"),
        other.send("status", relay="a"),
    ]
    await wait_all_tasks_blocked()
    client.stream.vanish()
    await wait_all_tasks_blocked()
    behind.gate.open()
    acknowledged, status = await answers(other, requests)
    assert acknowledged["through"] == at[6]
    assert status["consumers"]["other"] == at[6]


async def test_at_a_clean_stop_what_stands_behind_an_acknowledgement_is_written_and_answered(place):
    settings = {"segment_bytes": 4096, "tail_bytes": 2000}
    async with inside(place, **settings) as daemon:
        client, at = await fill(daemon)
        daemon.gate.hold("digest_at")
        requests = [
            client.send("acknowledge", relay="a", through=at[4], consumer="k"),
            client.send("acknowledge", relay="a", through=at[7], consumer="other"),
            client.send("forget_consumer", relay="a", consumer="k"),
        ]
        await wait_all_tasks_blocked()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(daemon.registry.stop)
            await trio.sleep(1)
            daemon.gate.open()
        assert [answer["re"] for answer in await answers(client, requests)] == ["acknowledged", "acknowledged", "done"]
    async with inside(place, **settings) as daemon:
        client = await daemon.connect()
        assert (await client.done("status", relay="a"))["consumers"] == {"other": at[7]}


@pytest.mark.parametrize("times", [1, 2, 3])
async def test_an_acknowledgement_whose_file_is_renamed_while_it_is_looked_up_is_looked_up_again(place, times):
    faults = Faults()
    async with inside(place, faults=faults, segment_bytes=4096, tail_bytes=0) as daemon:
        client, at = await fill(daemon)

        def open_or_miss(name, target, effect, make=faults.make):
            """The file is gone by the name that it was planned by; the plan behind it finds it."""
            nonlocal times
            if name == "open read" and target.startswith(f"{1:020}-") and times:
                times -= 1
                raise FileNotFoundError(errno.ENOENT, "renamed", target)
            return make(name, target, effect)

        faults.make = open_or_miss
        requests = [
            client.send("acknowledge", relay="a", through=at[3], consumer="k"),
            client.send("status", relay="a"),
        ]
        acknowledged, status = await answers(client, requests)
        assert times == 0
        assert acknowledged["through"] == at[3]
        assert status["consumers"] == {"k": at[3]}


@pytest.mark.parametrize("failing", ["sync", "write"])
@pytest.mark.parametrize("asking", ASKING)
async def test_what_stands_behind_an_acknowledgement_that_asks_the_files_is_told_when_the_relay_fails(
    place, failing, asking
):
    faults = Faults()
    async with inside(place, faults=faults, segment_bytes=4096, tail_bytes=2000) as daemon:
        client, at = await fill(daemon)
        other = await daemon.connect()
        daemon.gate.hold("digest_at")
        fields = ASKING[asking] | ({"through": at[4]} if asking.startswith("await") else {})
        requests = [
            client.send("acknowledge", relay="a", through=at[4], consumer="k"),
            client.send("forget_consumer", relay="a", consumer="k"),
            client.send("acknowledge", relay="a", through=at[EVENTS + 1], consumer="k"),
            client.send(asking.split()[0], relay="a", **fields),
        ]
        await wait_all_tasks_blocked()
        faults.plan, faults.counted, faults.count = Fail(1, errno.EIO), named(f"{failing} active.log.new"), 0
        assert (await other.refusal("record", relay="a", events=[["x"]]))[0] == "storage_failed"
        daemon.gate.open()
        told = await answers(client, requests)
        assert {answer.get("code") for answer in told} <= {"storage_failed", "timeout"}
        status = await client.done("status", relay="a")
        assert (status["consumers"], status["latest"]) == ({}, at[EVENTS + 1])
        assert (await client.done("record", relay="a", events=[["x"]]))["first"] == EVENTS + 2
