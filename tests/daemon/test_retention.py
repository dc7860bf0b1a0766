"""What a relay lets go of, and what readers are told of it (docs/reference/journal.md, "Retention and collection")."""

import os

import pytest
from support.inside import inside
from support.wire import GENESIS, records
from trio.testing import wait_all_tasks_blocked


def files(daemon):
    return sorted(entry.name for entry in daemon.journal().iterdir())


async def fill(client, count, size=1500):
    """The cursor of each of `count` events."""
    answers = [await client.done("record", relay="a", events=[["x", os.urandom(size)]]) for _ in range(count)]
    await wait_all_tasks_blocked()
    return {answer["first"]: answer["through"] for answer in answers}


def small(place, **more):
    return inside(place, segment_bytes=4096, **more)


async def test_bounded_retention_says_what_goes_as_an_event_and_then_lets_it_go(place):
    async with small(place) as daemon:
        client = await daemon.relay(retention={"bytes": 20_000})
        at = await fill(client, 40)
        status = await client.done("status", relay="a")
        evicted = status["evicted"]
        assert evicted[0] > 10
        assert at.get(evicted[0], evicted) == evicted, "the cursor is the last evicted event's own"
        stored = await client.read_all("a", evicted)
        assert [one.ordinal for one in stored] == list(range(evicted[0] + 1, status["latest"][0] + 1))
        said = [one.data["through"] for one in stored if one.kind == "relay.evicted"]
        assert said[-1] == evicted
        assert said == sorted(said)
        assert files(daemon)[0].startswith(f"{evicted[0] + 1:020}-")
        assert status["journal_bytes"] < 20_000 + 3 * 4096


async def test_a_reader_behind_an_eviction_is_told_exactly_what_is_lost(place):
    async with small(place) as daemon:
        client = await daemon.relay(retention={"bytes": 12_000})
        at = await fill(client, 30)
        evicted = (await client.done("status", relay="a"))["evicted"]
        for cursor in (GENESIS, at[3], [3, None], [evicted[0], None]):
            code, retryable, detail = await client.refusal("attach", relay="a", after=cursor)
            assert (code, retryable, detail["reason"]) == ("desynchronized", False, "evicted")
            assert (detail["requested"], detail["earliest"]) == (cursor, evicted)
            assert detail["lost"] == [min(cursor[0] + 1, evicted[0]), evicted[0]]
        page = await client.done("attach", relay="a", after=evicted)
        assert records(page["records"])[0].ordinal == evicted[0] + 1
        page = await client.done("attach", relay="a", after="earliest")
        assert page["gap"] == {"first": 1, "last": evicted[0]}
        assert records(page["records"])[0].ordinal == evicted[0] + 1


async def test_evictions_go_on_after_closing_and_opening_and_no_ordinal_is_used_twice(place):
    async with small(place) as daemon:
        client = await daemon.relay(retention={"bytes": 12_000})
        await fill(client, 20)
        before = await client.done("status", relay="a")
        await daemon.nobody_asks()
        after = await client.done("status", relay="a")
        assert (after["evicted"], after["latest"]) == (before["evicted"], before["latest"])
        at = await fill(client, 20)
        assert min(at) == before["latest"][0] + 1
        assert (await client.done("status", relay="a"))["evicted"][0] > before["evicted"][0]


async def test_acknowledged_retention_collects_what_its_consumer_has_and_no_more(place):
    async with small(place) as daemon:
        client = await daemon.relay(retention="acknowledged")
        at = await fill(client, 20)
        assert files(daemon)[0].startswith(f"{1:020}-")
        assert (await client.done("acknowledge", relay="a", through=at[18]))["retained"] == at[18]
        await wait_all_tasks_blocked()
        status = await client.done("status", relay="a")
        assert status["evicted"] == status["retained"] == status["acknowledged"] == at[18]
        assert not files(daemon)[0].startswith(f"{1:020}-")
        assert [one.ordinal for one in await client.read_all("a", at[18])] == [19, 20, 21]


async def test_a_slow_consumer_heard_first_keeps_what_it_lacks(place):
    async with small(place) as daemon:
        client = await daemon.relay(retention="acknowledged")
        at = await fill(client, 20)
        await client.done("acknowledge", relay="a", through=at[5], consumer="slow")
        await client.done("acknowledge", relay="a", through=at[18], consumer="fast")
        await wait_all_tasks_blocked()
        status = await client.done("status", relay="a")
        assert (status["acknowledged"], status["retained"], status["evicted"]) == (at[5], at[5], at[5])
        assert [one.ordinal for one in await client.read_all("a", at[5])] == list(range(6, 22))
        await client.done("forget_consumer", relay="a", consumer="slow")
        await wait_all_tasks_blocked()
        assert (await client.done("status", relay="a"))["evicted"] == at[18]
        assert (await client.refusal("attach", relay="a", after=at[5]))[2]["earliest"] == at[18]


async def test_checkpointed_retention_collects_nothing_without_a_floor(place):
    async with small(place) as daemon:
        client = await daemon.relay()
        at = await fill(client, 20)
        answer = await client.done("acknowledge", relay="a", through=at[20])
        await wait_all_tasks_blocked()
        assert answer["retained"] == GENESIS
        assert len(await client.read_all("a", GENESIS)) == 21


async def test_an_old_cursor_below_what_is_collected_cannot_be_acknowledged_by_a_new_consumer(place):
    async with small(place) as daemon:
        client = await daemon.relay(retention="acknowledged")
        at = await fill(client, 20)
        await client.done("acknowledge", relay="a", through=at[18])
        await wait_all_tasks_blocked()
        code, _, detail = await client.refusal("acknowledge", relay="a", through=at[3], consumer="late")
        assert (code, detail["reason"]) == ("desynchronized", "evicted")
        assert (await client.done("acknowledge", relay="a", through=at[19], consumer="late"))["through"] == at[19]


async def test_collection_waits_for_both_snapshots_and_they_are_written_for_it(place):
    """With both generations lost, what is left on disk still opens; with them there, what is gone is not missed."""
    async with small(place, snapshot_events=10_000) as daemon:
        client = await daemon.relay(retention="acknowledged")
        at = await fill(client, 20)
        await client.done("acknowledge", relay="a", through=at[18])
        await wait_all_tasks_blocked()
        assert files(daemon)[0] != f"{1:020}-{3:020}.log.zst"
    for lost in ("snapshot", "snapshot.previous"):
        (place / "relays/a" / lost).rename(place / "kept")
        async with small(place) as daemon:
            client = await daemon.connect()
            assert (await client.done("status", relay="a"))["latest"] == at[21]
            assert (await client.done("attach", relay="a", after=at[18]))["count"] == 3
        (place / "relays/a" / lost).unlink(missing_ok=True)
        (place / "kept").rename(place / "relays/a" / lost)


@pytest.mark.parametrize("retention", ["acknowledged", {"bytes": 12_000}])
async def test_the_newest_file_with_a_record_always_stays(place, retention):
    async with small(place) as daemon:
        client = await daemon.relay(retention=retention)
        for _ in range(5):
            at = await fill(client, 3, 5000)
            await client.done("acknowledge", relay="a", through=max(at.values()))
            await wait_all_tasks_blocked()
            await daemon.nobody_asks()
            latest = (await client.done("status", relay="a"))["latest"]
            assert (await client.done("attach", relay="a", after=[latest[0], latest[1]]))["verified"] is True


async def test_reading_goes_on_while_files_are_rotated_sealed_and_collected(place):
    async with small(place, tail_bytes=0) as daemon:
        client, reader = await daemon.relay(retention="acknowledged"), await daemon.connect()
        cursor, seen = GENESIS, []
        for _ in range(60):
            await client.done("record", relay="a", events=[["x", os.urandom(700)]])
            page = await reader.done("attach", relay="a", after=cursor, max_bytes=2000)
            seen += [one.ordinal for one in records(page["records"])]
            cursor = page["through"]
            if len(seen) % 5 == 0:
                await reader.done("acknowledge", relay="a", through=cursor)
        while len(seen) < 61:
            page = await reader.done("attach", relay="a", after=cursor)
            seen += [one.ordinal for one in records(page["records"])]
            cursor = page["through"]
        assert seen == list(range(1, 62))
