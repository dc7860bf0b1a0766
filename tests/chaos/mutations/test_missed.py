"""What no other test noticed when it was taken away: each is the test that a mutation of this list asked for."""

import contextlib
import errno
import os
import tracemalloc
from pathlib import Path

import pytest
import trio
import zstandard
from support import oracle
from support.daemon import short_place
from support.faults import Fail, Faults, named
from support.inside import inside, run_virtually
from support.relay_files import NAME, RelayFiles, body, segment, snapshot
from support.wire import records
from trio.testing import wait_all_tasks_blocked

from relayd.daemon.state_lock import lock_state
from relayd.journal.frames import FrameError, expand_frame
from relayd.journal.real_storage import open_state_directory
from relayd.recovery.salvage import salvage_relay
from relayd.recovery.salvage_steps import Means

LAST, DAMAGED = 20, 9


@pytest.fixture
def calls(monkeypatch):
    """`mkdir a`, `fsync a`, …, as the system was asked, by the last component of the path."""
    found = []
    make, sync = os.mkdir, os.fsync

    def logged_make(path, *arguments, **more):
        make(path, *arguments, **more)
        found.append(f"mkdir {Path(path).name}")

    def logged_sync(descriptor):
        sync(descriptor)
        found.append(f"fsync {Path(f'/proc/self/fd/{descriptor}').readlink().name}")

    monkeypatch.setattr(os, "mkdir", logged_make)
    monkeypatch.setattr(os, "fsync", logged_sync)
    return found


def test_each_directory_that_is_made_for_the_state_has_its_name_on_disk_before_the_next(tmp_path, calls):
    open_state_directory(str(tmp_path / "a/b/state"), make=True).close()
    assert calls == ["mkdir a", f"fsync {tmp_path.name}", "mkdir b", "fsync a", "mkdir state", "fsync b"]


def test_the_name_of_relays_is_on_disk_before_anything_is_answered(tmp_path, calls):
    (tmp_path / "state").mkdir()
    calls.clear()
    for made in (["mkdir relays", "fsync state"], ["fsync state"]):
        lock_state(str(tmp_path / "state"), "s").close()
        assert calls == made
        calls.clear()


def test_the_sync_of_a_file_is_the_systems_and_so_is_its_failure(tmp_path, monkeypatch):
    with contextlib.closing(open_state_directory(str(tmp_path))) as directory:
        file = directory.open("a", "create")

        def fail(_: int) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        monkeypatch.setattr(os, "fdatasync", fail)
        with pytest.raises(OSError, match="Input/output"):
            file.sync()
        file.close()


def salvage_calls(place: Path) -> list[str]:
    """Of a salvage that gives up what is behind a damaged record, which its snapshot does not know."""
    files = RelayFiles(place / "state")
    content = bytearray(segment(1, LAST))
    content[content.index(oracle.record(DAMAGED, body(DAMAGED))) + 40] ^= 0x55
    files.active(bytes(content))
    files.put("snapshot", snapshot(1))
    faults = Faults()
    means = Means(str(place / "rescued"), lambda _cursor, said: said.kind.encode(), lambda: b"\xee" * 16, 5)
    with contextlib.closing(open_state_directory(str(files.path))) as directory:
        assert salvage_relay(faults.wrap(directory), NAME, means).lost == (DAMAGED, LAST)
    return faults.names()


def replacing(calls: list[str]) -> int:
    """When the damaged active.log went; a copy of it in quarantine/ has got that name before."""
    return max(at for at, call in enumerate(calls) if call == "replace active.log.new active.log")


def test_what_salvage_gives_up_is_named_on_disk_before_the_damaged_file_goes(tmp_path):
    calls = salvage_calls(tmp_path)
    marked = calls.index(f"open create {DAMAGED:020}-{LAST:020}.lost")
    assert calls[marked + 1] == "sync journal/"
    assert marked < replacing(calls)


def test_the_event_that_says_what_salvage_gave_up_is_synced_before_its_file_has_its_name(tmp_path):
    calls = salvage_calls(tmp_path)
    replaced = replacing(calls)
    written = max(at for at, call in enumerate(calls[:replaced]) if call == "write active.log.new")
    assert "sync active.log.new" in calls[written:replaced]


def test_a_frame_that_says_it_holds_more_than_was_promised_is_refused_before_memory_is_taken_for_it():
    stored = zstandard.ZstdCompressor(write_checksum=True).compress(bytes(64 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(FrameError):
            expand_frame(stored, 100)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.fixture
def place():
    with short_place() as path:
        yield path


def record(client, number: int) -> int:
    return client.send("record", relay="a", events=[["x", number]], producer="p", sequence=number)


def test_a_snapshot_of_what_is_not_synced_yet_has_no_name(place):
    """The group behind the one that is being written fails: a snapshot that knows of it would be ahead for ever."""

    async def scenario() -> None:
        faults = Faults(Fail(1, errno.ENOSPC), named("write snapshot.new"))
        async with inside(place, faults=faults, snapshot_events=2) as daemon:
            client = await daemon.relay()
            for number in (1, 2):
                await client.answer(record(client, number))
            await wait_all_tasks_blocked()
            assert faults.met, "a snapshot was due, and is tried again in a second"
            faults.plan, faults.counted, faults.count, faults.met = Fail(2), named("sync active.log"), 0, False
            daemon.gate.hold("commit")
            being_written = record(client, 3)
            await wait_all_tasks_blocked()
            waiting = record(client, 4)
            await trio.sleep(1.5)
            assert "encode_snapshot" in daemon.files.jobs[-3:], "it was taken while 4 was not even written"
            daemon.gate.open()
            assert (await client.answer(being_written))["re"] == "recorded"
            assert (await client.answer(waiting))["code"] == "storage_failed"
            assert (await client.done("record", relay="a", producer="p"))["sequence"] == 3
            assert (await client.answer(record(client, 4)))["first"] == 5

    run_virtually(scenario)


def test_what_an_eviction_drops_is_served_until_the_eviction_is_synced(place):
    async def scenario() -> None:
        async with inside(place, segment_bytes=4096) as daemon:
            client = await daemon.relay(retention={"bytes": 12_000})
            daemon.gate.hold("digest_at")
            for _ in range(14):
                await client.done("record", relay="a", events=[["x", os.urandom(1500)]])
            await wait_all_tasks_blocked()
            daemon.gate.hold("commit")
            daemon.gate.open("digest_at")
            await wait_all_tasks_blocked()
            assert daemon.gate.reached[-1] == "commit", "the eviction is being written"
            page = await client.done("attach", relay="a", after="earliest")
            assert page.get("gap") is None
            assert records(page["records"])[0].ordinal == 1
            daemon.gate.open()
            await wait_all_tasks_blocked()
            page = await client.done("attach", relay="a", after="earliest")
            assert page["gap"]["first"] == 1

    run_virtually(scenario)


def test_an_opening_whose_own_sync_failed_is_remembered_by_the_next_one(place):
    """Nothing of the first opening is left but what its refusal says, and its file is not synced a second time."""

    async def scenario() -> None:
        async with inside(place) as daemon:
            client = await daemon.relay()
            await client.answer(record(client, 1))
        (place / "relays/a/watermark").unlink()
        faults = Faults(Fail(1, forever=True), named("sync active.log", "sync active.log.new"))
        async with inside(place, faults=faults) as daemon:
            client = await daemon.connect()
            assert (await client.refusal("status", relay="a"))[0] == "unavailable"
            assert faults.names().count("sync active.log") == 1
            faults.plan = None
            await trio.sleep(2)
            assert (await client.answer(record(client, 2)))["first"] == 3
            calls = faults.names()
            assert "sync active.log" not in calls[calls.index("sync active.log") + 1 : replacing(calls)]

    run_virtually(scenario)
