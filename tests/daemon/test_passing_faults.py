"""A fault that passes: everybody is told, nobody waits for ever, nothing spins, and service comes back."""

import errno
import fcntl
import os

import pytest
import trio
from support.faults import Fail, Faults, named
from support.inside import inside
from support.oracle import read_journal
from trio.testing import wait_all_tasks_blocked


def plant(faults, plan, *names):
    """The fault happens at the plan's n-th call of these names from now on."""
    faults.plan, faults.counted, faults.count, faults.met = plan, named(*names), 0, False
    faults.met_at, faults._met_at_call = None, 0


def mend(faults):
    faults.plan = None


async def answers(client, requests, seconds=300):
    """Their answers; all come before anybody would call it lost."""
    with trio.fail_after(seconds):
        return [await client.answer(request) for request in requests]


# What waits for the disk while it fails


PENDING = {
    "acknowledge": {"consumer": "k"},
    "acknowledge of a known consumer": {"consumer": "known"},
    "forget_consumer": {"consumer": "known"},
    "forget_consumer of nobody": {"consumer": "nobody"},
    "attach": {"after": {"consumer": "known"}},
    "status": {},
}


def ask(client, what, through):
    fields = PENDING[what] | ({"through": through} if what.startswith("acknowledge") else {})
    return client.send(what.split()[0], relay="a", **fields)


@pytest.mark.parametrize("what", PENDING)
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("failing", ["write active.log", "sync active.log"])
async def test_what_waits_while_an_append_fails_is_answered_by_its_end_or_by_the_next_opening(
    place, what, number, failing
):
    faults = Faults()
    async with inside(place, faults=faults) as daemon:
        client, other = await daemon.relay(retention="acknowledged"), await daemon.connect()
        first = (await client.done("record", relay="a", events=[["x", 1]]))["through"]
        second = (await client.done("record", relay="a", events=[["x", 2]]))["through"]
        await client.done("acknowledge", relay="a", through=first, consumer="known")
        plant(faults, Fail(1, number), failing)
        daemon.gate.hold("commit")
        record = client.send("record", relay="a", events=[["x", 3]])
        await wait_all_tasks_blocked()
        requests = [ask(client, "acknowledge", second), ask(client, what, second)]
        late = [ask(other, what, second), ask(other, "forget_consumer of nobody", second)]
        await wait_all_tasks_blocked()
        daemon.gate.open()
        told = await answers(client, [record, *requests])
        told += await answers(other, late)
        full = number == errno.ENOSPC and failing.startswith("write")
        assert told[0]["code"] == ("storage_full" if full else "storage_failed")
        assert {one.get("code", "done") for one in told[1:]} <= {told[0]["code"], "done"}
        mend(faults)
        await trio.sleep(2)
        assert (await client.done("status", relay="a"))["latest"] == second
        assert (await client.done("acknowledge", relay="a", through=second))["through"] == second
        assert (await client.done("record", relay="a", events=[["x", 3]]))["first"] == 4


@pytest.mark.parametrize("what", PENDING)
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize(
    "failing", ["write acknowledged.new", "sync acknowledged.new", "replace acknowledged.new acknowledged", "sync a/"]
)
async def test_what_waits_while_the_acknowledgements_cannot_be_written_is_told_so(place, what, number, failing):
    faults = Faults()
    async with inside(place, faults=faults) as daemon:
        client, other = await daemon.relay(retention="acknowledged"), await daemon.connect()
        first = (await client.done("record", relay="a", events=[["x", 1]]))["through"]
        second = (await client.done("record", relay="a", events=[["x", 2]]))["through"]
        await client.done("acknowledge", relay="a", through=first, consumer="known")
        await wait_all_tasks_blocked()
        plant(faults, Fail(1, number), failing)
        daemon.gate.hold("replace")
        written = client.send("acknowledge", relay="a", through=second, consumer="k")
        await wait_all_tasks_blocked()
        requests = [ask(client, what, second), client.send("record", relay="a", events=[["x", 3]])]
        late = [ask(other, what, second)]
        await wait_all_tasks_blocked()
        daemon.gate.open()
        told = await answers(client, [written, *requests]) + await answers(other, late)
        assert faults.met
        code = "storage_full" if number == errno.ENOSPC else "storage_failed"
        assert told[0]["code"] == code
        assert {one.get("code", "done") for one in (told[1], told[3])} <= {code, "done"}
        assert told[2]["re"] == "recorded" or told[2]["code"] == code
        mend(faults)
        await trio.sleep(2)
        assert (await client.done("acknowledge", relay="a", through=second, consumer="k"))["through"] == second
        assert (await client.done("status", relay="a"))["consumers"]["k"] == second
        assert (await client.done("record", relay="a", events=[["x", 4]]))["re"] == "recorded"
        assert [ordinal for ordinal in read_journal(daemon.journal()) if ordinal <= 3] == [1, 2, 3]


# Making a relay


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("next_op", ["record", "open", "open create", "status", "attach"])
async def test_a_relay_whose_name_may_not_be_on_disk_answers_nothing_before_relays_is_synced(place, after, next_op):
    faults = Faults()
    async with inside(place, faults=faults) as daemon:
        client = await daemon.connect()
        plant(faults, Fail(1, errno.EIO, after=after), "sync relays/")
        assert (await client.refusal("open", relay="a", create=True))[:2] == ("storage_failed", True)
        since = len(faults.log)
        fields = {
            "record": {"events": [["x"]]}, "open create": {"create": True}, "attach": {"after": "earliest"},
        }.get(next_op, {})  # fmt: skip
        await client.done(next_op.split()[0], relay="a", **fields)
        calls = [str(call) for call in faults.log[since:]]
        synced = calls.index("sync relays/")
        assert "write active.log" not in calls[:synced], "nothing is recorded before its relay is there for good"
        assert (await client.done("status", relay="a"))["latest"][0] >= 1
        assert [str(call) for call in faults.log].count("sync relays/") == 2, "and then no more"


async def test_while_relays_cannot_be_synced_a_relay_that_was_made_answers_nothing(place):
    faults = Faults()
    async with inside(place, faults=faults) as daemon:
        client = await daemon.connect()
        plant(faults, Fail(1, errno.EIO, forever=True), "sync relays/")
        for op, fields in (("open", {"create": True}), ("record", {"events": [["x"]]}), ("status", {})):
            assert (await client.refusal(op, relay="a", **fields))[0] in ("storage_failed", "unavailable")
            await trio.sleep(2)
        mend(faults)
        assert (await client.done("record", relay="a", events=[["x"]]))["first"] == 2


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOSPC, "storage_full"),
        (errno.EDQUOT, "storage_full"),
        (errno.EIO, "storage_failed"),
        (errno.EMFILE, "overloaded"),
        (errno.ENFILE, "overloaded"),
    ],
)
@pytest.mark.parametrize("failing", ["make_directory", "open create", "write active.log"])
async def test_a_relay_that_cannot_be_made_is_refused_with_why_and_leaves_nothing_behind(place, number, code, failing):
    faults = Faults()
    async with inside(place, faults=faults) as daemon:
        client = await daemon.connect()
        plant(faults, Fail(1, number, forever=True), failing)
        for name in ("a", "b", "c"):
            requests = [
                client.send("open", relay=name, create=True),
                client.send("record", relay=name, events=[["x"]]),
            ]
            opened, recorded = await answers(client, requests)
            assert (opened["code"], opened["retryable"]) == (code, True)
            assert recorded["code"] == "not_found"
        await wait_all_tasks_blocked()
        assert not daemon.registry._entries, "there is no such relay, so nothing is kept for it"
        mend(faults)
        assert (await client.refusal("status", relay="a"))[0] == "not_found"
        assert (await client.done("open", relay="a", create=True))["created"] is True
        assert (await client.done("record", relay="a", events=[["x"]]))["first"] == 2
    assert [entry.name for entry in (place / "relays").iterdir()] == ["a"]


# An eviction that cannot be written


async def fill_and_evict_nothing(place):
    """A relay that holds far more than its retention; it ended before it could say what goes."""
    async with inside(place, segment_bytes=4096) as daemon:
        client = await daemon.relay(retention={"bytes": 8192})
        daemon.gate.hold("digest_at")
        for _ in range(30):
            await client.done("record", relay="a", events=[["x", os.urandom(1000)]])
        await wait_all_tasks_blocked()
    names = [entry.name for entry in (place / "relays/a/journal").iterdir()]
    assert min(names).startswith(f"{1:020}-"), "its first segment is still there"


async def let_it_spin(daemon, openings_max):
    """Gives it the time to open many times over, without any time passing."""
    for _ in range(2000):
        await trio.lowlevel.checkpoint()
    assert openings(daemon) <= openings_max, "it opens again and again without a pause"


def openings(daemon):
    return len(daemon.said("relay_opened")) + len(daemon.said("relay_unavailable"))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
@pytest.mark.parametrize(
    "failing",
    [("write active.log",), ("sync active.log",), ("write active.log", "write active.log.new", "write probe.new")],
)
async def test_an_eviction_that_cannot_be_written_is_no_reason_to_open_again_and_again(place, number, failing):
    await fill_and_evict_nothing(place)
    faults = Faults()
    async with inside(place, faults=faults, segment_bytes=4096) as daemon:
        client, reader = await daemon.connect(), await daemon.connect()
        await client.call("open", relay="a")
        plant(faults, Fail(1, number, forever=True), *failing)

        async def use_it(minutes):
            """Asks every second, and records nothing."""
            for _ in range(60 * minutes):
                await client.call("status", relay="a")
                await trio.sleep(1)

        with trio.fail_after(1000):
            await let_it_spin(daemon, 5)
            reader.send("attach", relay="a", after="latest", wait_ms=60_000)
            await use_it(1)
            before = openings(daemon)
            assert before <= 5
            refused = await client.call("record", relay="a", events=[["x", os.urandom(1000)]])
            assert refused["code"] in ("storage_full", "storage_failed")
            await let_it_spin(daemon, before + 5)
            await use_it(3)
            assert openings(daemon) - before <= 3 * 5
        mend(faults)
        await trio.sleep(61)
        await client.call("open", relay="a")
        for _ in range(3):
            await client.done("record", relay="a", events=[["x", os.urandom(1000)]])
            await wait_all_tasks_blocked()
        assert (await client.done("status", relay="a"))["evicted"][0] > 10, "it is said and done now"
        assert sum(entry.stat().st_size for entry in daemon.journal().iterdir()) < 8192 + 3 * 4200
        settled = openings(daemon)
        await use_it(1)
        assert openings(daemon) == settled


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
async def test_an_eviction_that_fails_each_time_behind_a_record_costs_one_opening_a_record(place, number):
    await fill_and_evict_nothing(place)
    faults = Faults()
    async with inside(place, faults=faults, segment_bytes=4096) as daemon:
        client = await daemon.connect()
        recorded = 0
        for _ in range(10):
            plant(faults, Fail(2, number, forever=True), "write active.log", "write active.log.new")
            answer = await client.call("record", relay="a", events=[["x", os.urandom(100)]])
            recorded += answer["re"] == "recorded"
            await let_it_spin(daemon, openings(daemon) + 5)
            mend(faults)
            await trio.sleep(61)
        assert recorded
        assert openings(daemon) <= 10 * 5
        await client.call("open", relay="a")
        await client.done("record", relay="a", events=[["x"]])
        await wait_all_tasks_blocked()
        assert (await client.done("status", relay="a"))["evicted"][0] > 10


# Side work


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(("failing", "nth"), [("unlink", 1), ("unlink", 2), ("unlink", 3), ("sync journal/", 1)])
async def test_a_segment_that_could_not_be_unlinked_once_is_unlinked_later(place, failing, nth, after):
    faults = Faults()
    async with inside(place, faults=faults, segment_bytes=4096) as daemon:
        client = await daemon.relay(retention="acknowledged")
        for _ in range(30):
            answer = await client.done("record", relay="a", events=[["x", os.urandom(1000)]])
        await wait_all_tasks_blocked()
        before = {entry.name for entry in daemon.journal().iterdir()}
        plant(faults, Fail(nth, errno.EIO, after=after), failing)
        await client.done("acknowledge", relay="a", through=answer["through"])
        await wait_all_tasks_blocked()
        await trio.sleep(10)
        assert faults.met
        assert (await client.done("status", relay="a")).get("trouble") is None
        left = {entry.name for entry in daemon.journal().iterdir()}
        assert len(left) <= 3 < len(before)
        assert min(read_journal(daemon.journal())) > 20


# Out of descriptors, or locked by another


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
@pytest.mark.parametrize("failing", ["directory a", "directory journal", "open read", "open update", "entries"])
@pytest.mark.parametrize("op", ["status", "record", "open"])
async def test_a_relay_that_finds_no_descriptor_is_overloaded_and_served_once_there_is_one(place, number, failing, op):
    faults = Faults()
    async with inside(place, faults=faults) as daemon:
        client = await daemon.relay()
        await daemon.nobody_asks()
        plant(faults, Fail(1, number, forever=True), failing)
        fields = {"events": [["x"]]} if op == "record" else {}
        for _ in range(3):
            answer = await client.call(op, relay="a", **fields)
            assert faults.met, "the opening goes through this call"
            assert (answer["code"], answer["retryable"], answer["detail"]) == (
                "overloaded", True, {"bound": "descriptors"},
            )  # fmt: skip
        mend(faults)
        assert not (await client.done("relays"))["relays"][0].get("execution"), "it is not given up"
        assert (await client.call(op, relay="a", **fields))["re"] != "error", "at once: nobody has to open it anew"
        await daemon.nobody_asks()


@pytest.mark.parametrize("how", ["asked again", "opened", "waited for"])
async def test_a_relay_locked_by_another_is_unavailable_and_served_when_it_is_given_back(daemon, how):
    client = await daemon.relay()
    await daemon.nobody_asks()
    held = os.open(daemon.place / "relays/a", os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    try:
        for op, fields in (("status", {}), ("open", {}), ("record", {"events": [["x"]]})):
            code, retryable, detail = await client.refusal(op, relay="a", **fields)
            assert (code, retryable, detail["reason"]) == ("unavailable", False, "locked")
            assert "wait" in detail["hint"]
        before = len(daemon.said("relay_unavailable"))
        for _ in range(100):
            await client.refusal("status", relay="a")
        assert len(daemon.said("relay_unavailable")) - before <= 1, "it is not asked for the lock at each request"
    finally:
        os.close(held)
    if how == "opened":
        assert (await client.done("open", relay="a"))["latest"][0] == 1
    else:
        await trio.sleep(1.5 if how == "asked again" else 500)
    assert (await client.done("record", relay="a", events=[["x"]]))["first"] == 2
