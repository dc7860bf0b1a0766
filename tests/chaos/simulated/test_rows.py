"""Faults that are one scene each: what happens, and the one right outcome."""

import errno
import random
from contextlib import closing

import pytest
import trio
from chaos.simulated.chance import SlowFiles
from chaos.simulated.disk import Disk
from chaos.simulated.lives import NOW_MS
from chaos.simulated.plans import DAY_MS, DiskFaults, Life
from chaos.simulated.scripted import Scripted, record, stored
from chaos.simulated.sweep import SCENES, SEED
from chaos.simulated.world import History
from support.faults import READS, Fail, Kill, Short
from support.inside import Client

from relayd.recovery.opening import open_relay
from relayd.recovery.refusal import OpeningError


def test_fsync_fails_the_process_restarts_the_page_cache_still_shows_the_bytes_the_client_sends_again_power_cut():
    """The repeat's answer survives the cut."""
    scene = Scripted()
    said = []

    async def sync_fails_and_the_process_dies():
        client = await scene.relay()
        await record(client, 1)
        scene.plant(Fail(1), "sync active.log", then=(Kill(1),))
        await record(client, 2)

    async def sent_again():
        said.append(await record(await scene.client(), 2))

    async def look():
        client = await scene.client()
        stands = await client.done("record", relay="a", producer="p")
        assert (stands["sequence"], stands["through"]) == (2, said[0]["through"])
        assert [one.data for one in await stored(client)] == [1, 2]
        assert (await record(client, 2))["duplicate"] is True

    scene.live(Life(), sync_fails_and_the_process_dies)
    assert (
        scene.file("journal", "active.log")
        != scene.disk.cut(random.Random(0), "nothing").tree("relays", "a", "journal")["active.log"]
    ), "the page cache shows what is not on disk"
    scene.live(Life(end="cut"), sent_again)
    assert said[0]["duplicate"] is True
    scene.live(Life(), look)


def test_first_attempt_failed_then_sent_again_is_stored_and_not_swallowed_as_a_duplicate():
    scene = Scripted()
    failed = (Fail(1), Fail(1, errno.ENOSPC), Short(1, 70))

    async def each_fails_once():
        client = await scene.relay()
        for number, fault in enumerate(failed, 1):
            scene.plant(fault, "write active.log", "write active.log.new")
            assert (await record(client, number))["re"] == "error"
            await trio.sleep(10)
            assert "duplicate" not in await client.done(
                "record", relay="a", events=[["x", number]], producer="p", sequence=number
            )

    async def look():
        assert [one.data for one in await stored(await scene.client())] == [1, 2, 3]

    scene.live(Life(faults=(Fail(10_000),), end="cut"), each_fails_once)
    scene.live(Life(), look)


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_the_same_sequence_sent_by_two_clients_at_once_and_twice_in_one_group_is_stored_once(seed, fails):
    """Same ordinal, neither before the sync; a repeat that waits for the first one's sync shares its failure."""
    scene = Scripted(seed)

    async def sent_three_times():
        client, other = await scene.relay(), await scene.client()
        await record(client, 1)
        if fails:
            scene.plant(Fail(1), "sync active.log")
        event = {"relay": "a", "events": [["x", "once"]], "producer": "p", "sequence": 2}
        requests = [(each, each.send("record", **event)) for each in (client, client, other)]
        answers = [await each.answer(request) for each, request in requests]
        if fails:
            codes = [answer.get("code") for answer in answers]
            assert codes[:2] == ["storage_failed"] * 2, "they came in one read, so both waited for that sync"
            assert codes[2] in (None, "storage_failed")
            answers = [await client.done("record", **event)]
        assert b"once" in scene.disk.cut(random.Random(0), "nothing").tree("relays", "a", "journal")["active.log"]
        answers.append(await client.done("record", **event))
        assert len({tuple(answer["through"]) for answer in answers}) == 1
        assert sum("duplicate" not in answer for answer in answers) <= 1

    async def look():
        assert [one.data for one in await stored(await scene.client())] == [1, "once"]

    scene.live(Life(faults=(Fail(10_000),), end="cut"), sent_three_times)
    scene.live(Life(), look)


@pytest.mark.parametrize("days", [-1, 3650, -60 * 365])
def test_wall_clock_a_day_early_ten_years_late_before_1970_across_restarts(days):
    """Order by ordinal; no retention and no remembered sequence lapses by it."""
    clocks = (0, days * DAY_MS, 0)
    for seed in range(3):
        lives = [Life(end="cut", clock_ms=clock) for clock in clocks]
        history = History(seed, lives, everything=True)
        history.run()
    scene = Scripted()

    async def records(number):
        client = await scene.relay(retention="acknowledged")
        assert "duplicate" not in await record(client, number)
        assert number == 1 or (await record(client, 1))["duplicate"] is True

    async def look():
        client = await scene.client()
        found = await stored(client)
        assert [one.data for one in found] == [1, 2, 3]
        assert [one.fields[0] // DAY_MS - NOW_MS // DAY_MS for one in found] == [0, days, 0], "the clock did move"
        assert (await client.read_all("a"))[0].ordinal == 1, "nothing was collected"

    for number, clock in enumerate(clocks, 1):
        scene.live(Life(end="cut", clock_ms=clock), lambda number=number: records(number))
    scene.live(Life(), look)


@pytest.mark.parametrize("n", range(2, 200, 9))
def test_kill_restart_serve_then_a_power_cut_loses_nothing_answered_after_the_restart(n):
    """Repeats answered "duplicate" too: the harshest cut, which keeps nothing that was not synced."""
    History(SEED, [Life((Kill(n, after=True),), end="kill"), Life(end="cut")], everything=True).run()


@pytest.mark.parametrize("scene", SCENES)
def test_eio_on_read_while_opening_the_open_fails_with_the_error_and_no_byte_changes(scene):
    """Every reading call in turn; what no opening depends on costs it nothing."""
    history = History(SEED, [], everything=True)
    history.live(SCENES[scene], history.act)
    refused = 0
    for n in range(1, 200):
        disk = history.disk.crash()
        before = disk.tree("relays", "short")
        faults = DiskFaults(Fail(n), lambda call: call.name in READS)
        reason = _reason(disk, "short", faults)
        assert reason in (None, "storage_failed")
        refused += reason is not None
        if all(call.name in READS for call in faults.log):
            assert reason is not None
            assert disk.tree("relays", "short") == before
        assert disk.open_handles == 0
        if not faults.met:
            break
        assert _reason(disk, "short", DiskFaults()) is None
    assert not faults.met
    assert refused > 8


def _reason(disk: Disk, name: str, faults: DiskFaults) -> str | None:
    """Why the relay does not open; None where it does."""
    with closing(disk.state()) as state, closing(state.directory("relays")) as relays:
        relay = relays.directory(name)
    try:
        open_relay(faults.wrap(relay), name, segment_bytes=900, new_id=lambda: bytes(16)).close()
    except OpeningError as error:
        relay.close()
        return error.reason
    return None


def test_eio_on_read_while_serving_that_reader_gets_the_error_and_others_go_on():
    scene = Scripted()
    scene.settings |= {"tail_bytes": 0, "segment_bytes": 900}

    async def reads():
        client, other = await scene.relay(), await scene.client()
        await record(client, 1)
        for name in ("open read", "read"):
            scene.plant(Fail(1), name)
            code, retryable, _ = await client.refusal("attach", relay="a", after="earliest")
            assert (code, retryable) == ("storage_failed", True)
            assert len(await stored(other)) == 1
        assert (await record(other, 2))["first"] == 3

    scene.live(Life(faults=(Fail(10_000),)), reads)
    assert scene.outcome.opened == 1, "a failed read is no reason to open again"


@pytest.mark.parametrize("forever", [False, True])
@pytest.mark.parametrize(
    "of", ["sync", "replace", "unlink", "truncate", "sync read/,sync short/", "sync journal/", "sync relays/"]
)
def test_eio_at_the_nth_fdatasync_at_rename_unlink_truncate_and_directory_sync(of, forever):
    """Once, and for ever until it is mended: service is back, and what was answered is there after a power cut."""
    for n in (1, 4):
        History(SEED, [Life((Fail(n, forever=forever),), of=of, end="cut", mended=30)], everything=True).run()


def test_a_disk_without_room_for_any_file_is_storage_full_and_resumes_by_itself():
    """No inodes: nothing can be made, while what is there can be written."""
    scene = Scripted()
    answered = []

    async def fills_up():
        client: Client = await scene.relay()
        scene.settings["segment_bytes"] = 900
        for number in range(1, 30):
            if number == 5:
                scene.plant(Fail(1, errno.ENOSPC, forever=True), "open create", "make_directory")
            if number == 15:
                scene.faults.mend()
            while (answer := await record(client, number))["re"] == "error":
                assert answer["code"] == "storage_full"
                scene.faults.mend()
                await trio.sleep(10)
            answered.append(answer)

    async def look():
        found = await stored(await scene.client())
        assert [one.data for one in found] == list(range(1, 30))
        assert [one.cursor for one in found] == [answer["through"] for answer in answered]

    scene.live(Life(faults=(Fail(10_000),), end="cut"), fills_up)
    scene.live(Life(), look)


def test_file_work_is_never_abandoned_by_the_files_of_a_history():
    """As in the real daemon: a job that was begun is done, though whoever asked for it is cancelled."""
    done = []

    async def main():
        files = SlowFiles(random.Random(1))
        for number in range(50):
            with trio.move_on_after(0.0005):
                await files.run(done.append, number)

    trio.run(main)
    assert len(done) > 40
