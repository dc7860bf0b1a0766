"""What callers get when the disk fails, and how service comes back (docs/reference/journal.md)."""

import errno
import os

import pytest
import trio
from support.faults import Fail, Faults, Kill, Short, changing, each_fault, named
from support.inside import inside
from support.oracle import read_journal
from support.wire import records
from trio.testing import wait_all_tasks_blocked

WRITES = ("write", "make_directory", "open create")


def plant(faults, plan, *names):
    """The fault happens at the plan's n-th call of these names from now on."""
    faults.plan, faults.counted, faults.count, faults.met = plan, named(*names), 0, False
    faults.met_at, faults._met_at_call = None, 0


def mend(faults):
    faults.plan = None


async def record(client, number, **more):
    return await client.call("record", relay="a", events=[["x", number]], producer="p", sequence=number, **more)


async def numbers(client):
    return [one.data for one in await client.read_all("a") if one.kind == "x"]


# No room


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
async def test_without_room_recording_is_storage_full_reads_go_on_and_service_resumes_by_itself(place, number):
    faults = Faults()
    async with inside(place, faults=faults) as daemon:
        client = await daemon.relay()
        await record(client, 1)
        latest = (await client.done("status", relay="a"))["latest"]
        plant(faults, Fail(1, number, forever=True), *WRITES)
        refused = await record(client, 2)
        assert (refused["code"], refused["retryable"]) == ("storage_full", True)
        for op, fields in {
            "record": {"events": [["y"]]}, "acknowledge": {"through": latest}, "forget_consumer": {"consumer": "x"},
        }.items():  # fmt: skip
            assert (await client.refusal(op, relay="a", **fields))[:2] == ("storage_full", True)
        assert await numbers(client) == [1]
        status = await client.done("status", relay="a")
        assert "room" in status["trouble"]
        assert status["latest"] == latest
        assert (await client.done("open", relay="a"))["latest"] == latest
        assert (await client.done("attach", relay="a", after="latest", wait_ms=5000))["count"] == 0
        assert (await client.done("relays"))["relays"][0]["open"] is True
        assert (await client.refusal("open", relay="b", create=True))[:2] in {
            ("storage_full", True), ("unavailable", False),
        }  # fmt: skip
        waiting = client.send("attach", relay="a", after="latest", wait_ms=60_000)
        await trio.sleep(20)
        mend(faults)
        now = trio.current_time()
        while (answer := await record(client, 2))["re"] == "error":
            assert answer["code"] == "storage_full"
            await trio.sleep(0.5)
        assert trio.current_time() - now < 62, "tried at 1 s, doubling to 60 s"
        assert "duplicate" not in answer, "what was refused was stored now, not swallowed"
        page = await client.answer(waiting)
        assert page["re"] in ("page", "error")
        assert (await client.done("status", relay="a")).get("trouble") is None
    async with inside(place) as daemon:
        assert await numbers(await daemon.connect()) == [1, 2]


async def test_the_probe_is_as_large_as_what_did_not_fit_and_leaves_nothing(place):
    faults = Faults()
    async with inside(place, faults=faults) as daemon:
        client = await daemon.relay()
        plant(faults, Fail(1, errno.ENOSPC), "write active.log")
        assert (await client.refusal("record", relay="a", events=[["x", bytes(1_000_000)]]))[0] == "storage_full"
        sizes = []

        def remember(name, target, effect, make=Faults.make):
            result = make(faults, name, target, effect)
            if (name, target) == ("sync", "probe.new"):
                sizes.append((place / "relays/a/probe.new").stat().st_size)
            return result

        faults.make = remember
        await trio.sleep(1.5)
        assert sizes
        assert 1_000_000 <= sizes[0] < 1_100_000
        assert not (place / "relays/a/probe.new").exists()
        assert (await client.done("record", relay="a", events=[["x"]]))["first"] == 2


async def test_a_disk_that_stays_full_is_no_reason_to_be_busy(place):
    faults = Faults()
    async with inside(place, faults=faults) as daemon:
        client = await daemon.relay()
        plant(faults, Fail(1, errno.ENOSPC, forever=True), *WRITES)
        await record(client, 1)
        await wait_all_tasks_blocked()
        before = len(faults.log)
        await trio.sleep(3600)
        assert len(faults.log) - before < 100 * 20


@pytest.mark.parametrize("nth", range(1, 9))
async def test_a_full_disk_does_not_make_bounded_retention_busy(place, nth):
    """An eviction is an event too; whichever write meets the full disk, an eviction's own among them."""
    faults = Faults()
    async with inside(place, faults=faults, segment_bytes=4096) as daemon:
        client = await daemon.relay(retention={"bytes": 12_000})
        for _ in range(6):
            await client.done("record", relay="a", events=[["y", os.urandom(4000)]])
            await wait_all_tasks_blocked()
        plant(
            faults, Fail(nth, errno.ENOSPC, forever=True),
            "write active.log", "write active.log.new", "write probe.new",
        )  # fmt: skip
        for _ in range(20):
            await client.call("record", relay="a", events=[["y", os.urandom(4000)]])
            await wait_all_tasks_blocked()
        assert faults.met
        before = len(faults.log)
        with trio.fail_after(1000):
            await trio.sleep(600)
        assert len(faults.log) - before < 2000
        mend(faults)
        await trio.sleep(61)
        assert (await client.done("record", relay="a", events=[["y", os.urandom(4000)]]))["re"] == "recorded"
        await wait_all_tasks_blocked()
        evicted = (await client.done("status", relay="a"))["evicted"]
        kinds = [one.kind for one in await client.read_all("a", evicted)]
        assert "relay.evicted" in kinds
        assert sum(entry.stat().st_size for entry in daemon.journal().iterdir()) < 12_000 + 3 * 4200


@pytest.mark.parametrize("taken", [0, 1, 40, 63, 64, 100])
async def test_a_short_write_is_cut_back_and_the_next_group_stands_in_its_place(place, taken):
    faults = Faults()
    async with inside(place, faults=faults) as daemon:
        client = await daemon.relay()
        await record(client, 1)
        before = (daemon.journal() / "active.log").read_bytes()
        plant(faults, Short(1, taken), "write active.log")
        assert (await record(client, 2))["code"] == "storage_full"
        assert (daemon.journal() / "active.log").read_bytes() == before
        await trio.sleep(2)
        assert (await record(client, 2))["first"] == 3
        assert list(read_journal(daemon.journal())) == [1, 2, 3]
        assert not (place / "relays/a/quarantine").exists()


# Failing syncs


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
async def test_a_failed_sync_is_never_tried_again_and_the_relay_goes_on_in_a_fresh_file(place, number):
    faults = Faults()
    async with inside(place, faults=faults) as daemon:
        client, reader = await daemon.relay(), await daemon.connect()
        await record(client, 1)
        waiting = reader.send("attach", relay="a", after="latest", wait_ms=60_000)
        await wait_all_tasks_blocked()
        inode = (daemon.journal() / "active.log").stat().st_ino
        plant(faults, Fail(1, number), "sync active.log")
        assert (await record(client, 2))["code"] == "storage_failed"
        assert (await record(client, 2))["first"] == 3
        assert "sync active.log" not in faults.since(), "the file whose sync failed is not synced again"
        assert (daemon.journal() / "active.log").stat().st_ino != inode
        assert await numbers(client) == [1, 2]
        assert (await reader.answer(waiting)).get("code") == "storage_failed"
        assert trio.current_time() == 0
    async with inside(place) as daemon:
        assert await numbers(await daemon.connect()) == [1, 2]


async def test_everything_decided_after_a_sync_that_fails_shares_its_failure(place):
    faults = Faults()
    async with inside(place, faults=faults) as daemon:
        client = await daemon.relay()
        other = await daemon.connect()
        daemon.gate.hold("commit")
        plant(faults, Fail(1, errno.EIO), "sync active.log")
        sent = [
            client.send("record", relay="a", events=[["x", number]], producer="p", sequence=number) for number in (1, 2)
        ]
        sent.append(client.send("record", relay="a", events=[["x"]], producer="p", sequence=9))
        sent.append(client.send("status", relay="a"))
        await wait_all_tasks_blocked()
        sent.append(other.send("record", relay="a", producer="p"))
        await wait_all_tasks_blocked()
        daemon.gate.open()
        answers = [await (other if request is sent[-1] else client).answer(request) for request in sent[:-1]]
        answers.append(await other.answer(sent[-1]))
        assert {one.get("code") for one in answers} == {"storage_failed"}
        assert (await other.done("record", relay="a", producer="p")).get("sequence") is None
        assert await numbers(client) == []


async def test_a_disk_that_fails_for_good_makes_the_relay_unavailable_and_no_other(place):
    faults = Faults()
    async with inside(place, faults=faults) as daemon:
        client = await daemon.relay()
        other = await daemon.relay("b")
        await record(client, 1)
        plant(faults, Fail(1, errno.EIO, forever=True), "sync active.log", "sync active.log.new")
        assert (await record(client, 2))["code"] == "storage_failed"
        code, _, detail = await client.refusal("status", relay="a")
        assert (code, detail["reason"]) == ("unavailable", "storage_failed")
        mend(faults)
        assert (await other.done("record", relay="b", events=[["x"]]))["first"] == 2
        await trio.sleep(1.1)
        assert (await record(client, 2))["re"] == "recorded"
        assert await numbers(client) == [1, 2]


async def test_a_disk_that_fails_for_good_is_no_reason_to_be_busy(place):
    faults = Faults()
    async with inside(place, faults=faults) as daemon:
        client = await daemon.relay()
        plant(faults, Fail(1, errno.EIO, forever=True), "sync", "sync active.log", "sync active.log.new")
        await record(client, 1)
        before = len(faults.log)
        for _ in range(200):
            await client.call("status", relay="a")
        await trio.sleep(3600)
        assert len(faults.log) - before < 100


async def test_a_failed_acknowledgement_is_storage_failed_and_can_be_sent_again(place):
    faults = Faults()
    async with inside(place, faults=faults) as daemon:
        client = await daemon.relay()
        through = (await record(client, 1))["through"]
        for name in ("write acknowledged.new", "sync acknowledged.new", "replace acknowledged.new acknowledged"):
            plant(faults, Fail(1, errno.EIO), name)
            assert (await client.refusal("acknowledge", relay="a", through=through))[:2] == ("storage_failed", True)
            assert faults.met
        mend(faults)
        assert (await client.done("acknowledge", relay="a", through=through))["through"] == through
        assert (await client.done("status", relay="a"))["consumers"] == {"controller": through}


async def test_a_read_that_fails_costs_that_reader_its_answer_and_nobody_else(place):
    faults = Faults()
    async with inside(place, faults=faults, tail_bytes=0) as daemon:
        client, other = await daemon.relay(), await daemon.connect()
        await record(client, 1)
        plant(faults, Fail(1, errno.EIO), "read active.log")
        assert (await client.refusal("attach", relay="a", after="earliest"))[:2] == ("storage_failed", True)
        assert (await other.done("attach", relay="a", after="earliest"))["count"] == 2
        assert (await record(other, 2))["first"] == 3
        assert len(daemon.said("relay_opened")) == 1, "a failed read is no reason to open again"


# Side work


@pytest.mark.parametrize(
    "name", ["write snapshot.new", "sync snapshot.new", "replace snapshot.new snapshot", "open create"]
)
async def test_a_snapshot_that_fails_answers_nobody_is_said_in_status_and_tried_again(place, name):
    faults = Faults()
    async with inside(place, faults=faults, snapshot_events=5) as daemon:
        client = await daemon.relay()
        plant(faults, Fail(1, errno.EIO, forever=True), name)
        for number in range(1, 8):
            assert (await record(client, number))["re"] == "recorded"
        await wait_all_tasks_blocked()
        assert "snapshot" in (await client.done("status", relay="a"))["trouble"]
        before = faults.names().count("write snapshot.new") + faults.names().count("open create snapshot.new")
        await trio.sleep(600)
        after = faults.names().count("write snapshot.new") + faults.names().count("open create snapshot.new")
        assert after - before < 40
        mend(faults)
        await trio.sleep(61)
        assert (await client.done("status", relay="a")).get("trouble") is None
        assert sum(entry.name.endswith(".new") for entry in (place / "relays/a").iterdir()) == 0
    async with inside(place) as daemon:
        client = await daemon.connect()
        assert await numbers(client) == list(range(1, 8))


@pytest.mark.parametrize("name", ["unlink", "sync journal/", "sync"])
async def test_a_collection_that_fails_is_tried_again_until_nothing_is_left_over(place, name):
    faults = Faults()
    async with inside(place, faults=faults, segment_bytes=4096, snapshot_events=1000) as daemon:
        client = await daemon.relay(retention="acknowledged")
        for _ in range(8):
            answer = await client.done("record", relay="a", events=[["x", bytes(3000)]])
        await wait_all_tasks_blocked()
        through = answer["through"]
        old = f"{1:020}-"
        plant(faults, Fail(1, errno.EIO, forever=True), "unlink" if name == "unlink" else "sync journal/")
        await client.done("acknowledge", relay="a", through=through)
        await wait_all_tasks_blocked()
        assert (await client.done("status", relay="a"))["trouble"]
        page = await client.done("attach", relay="a", after="earliest")
        assert page["gap"] == {"first": 1, "last": through[0]}
        mend(faults)
        await trio.sleep(61)
        assert not [entry.name for entry in daemon.journal().iterdir() if entry.name.startswith(old)]
        assert (await client.done("status", relay="a")).get("trouble") is None


# Every call in turn


async def use(daemon, answered, *also):
    """A life with everything in it; what is answered goes into `answered`: ordinal to number.

    `also`: codes that are met beside those of a failing disk.
    """
    client = await daemon.connect()
    seconds = 0

    async def insist(op, **fields):
        nonlocal seconds
        while True:
            answer = await client.call(op, **fields)
            if answer["re"] != "error":
                return answer
            assert answer["code"] in ("storage_failed", "storage_full", "unavailable", *also), answer
            assert seconds < 200, "service does not come back"
            seconds += 1.5
            await trio.sleep(1.5)
            if answer["code"] == "unavailable":
                await client.call("open", relay=fields["relay"])

    async def send(number):
        answer = await insist("record", relay="a", events=[["x", [number, "y" * 900]]], producer="p", sequence=number)
        if not answer.get("duplicate"):
            answered[answer["first"]] = number
        assert answer["sequence"] == number
        return answer

    await insist("open", relay="a", create=True, retention="acknowledged")
    for number in range(1, 8):
        answer = await send(number)
    await insist("attach", relay="a", after=[answer["through"][0] - 1, None])
    middle = records((await insist("attach", relay="a", after=[3, None], max_bytes=1))["records"])[0].cursor
    await insist("acknowledge", relay="a", through=middle)
    for number in range(8, 11):
        await send(number)
    await trio.sleep(200)
    await send(11)
    await insist("status", relay="a")


async def check(place, answered, last):
    """I1, I2, I3, I4, I6 on a daemon without faults."""
    async with inside(place, segment_bytes=4096) as daemon:
        client = await daemon.connect()
        if not (place / "relays/a").exists():
            assert not answered
            return
        stored = {one.ordinal: one for one in await client.read_all("a")}
        assert list(stored) == list(range(min(stored), max(stored) + 1))
        for ordinal, number in answered.items():
            assert ordinal < min(stored) or stored[ordinal].data[0] == number
        there = [one.data[0] for one in stored.values() if one.kind == "x"]
        assert there == sorted(set(there))
        assert all(one.producer == ["p", one.data[0]] for one in stored.values() if one.kind == "x")
        for number in range(1, last + 1):
            events = [["x", [number, "y" * 900]]]
            again = await client.done("record", relay="a", events=events, producer="p", sequence=number)
            assert again.get("duplicate") is True or number not in answered.values()
        stored = {one.ordinal: one for one in await client.read_all("a")}
        there = [one.data[0] for one in stored.values() if one.kind == "x"]
        assert there == list(range(there[0], last + 1))


def setting(place, faults):
    return inside(place, faults=faults, segment_bytes=4096, snapshot_events=4, idle_relay=60)


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("after", [False, True])
async def test_whichever_call_fails_everybody_is_answered_nothing_is_lost_and_service_comes_back(
    tmp_path, number, after
):
    runs = 0
    for faults in each_fault(lambda n: Fail(n, number, after=after), changing):
        runs += 1
        place, answered = tmp_path / str(runs), {}
        async with setting(place, faults) as daemon:
            # A rename that says it failed and did not looks as if somebody else had taken the file away.
            await use(daemon, answered, *(("relay_removed",) if after else ()))
            bugs = [line for line in daemon.logged if line["event"] in ("relay_entry_failed", "request_failed")]
            assert not bugs, (faults.met_at, bugs)
        await check(place, answered, 11)
        assert len(answered) >= 10, "only an answer that was lost with its failure is missing"
    assert runs > 60


@pytest.mark.parametrize("after", [False, True])
async def test_whichever_call_the_process_dies_at_what_was_answered_is_there_and_nothing_twice(tmp_path, after):
    runs = 0
    for faults in each_fault(lambda n: Kill(n, after=after), changing):
        runs += 1
        place, answered = tmp_path / str(runs), {}
        try:
            async with setting(place, faults) as daemon:
                await use(daemon, answered)
        except BaseException:
            if not faults.dead:
                raise
        await check(place, answered, 11)
    assert runs > 60
