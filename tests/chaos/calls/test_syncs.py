"""Failing and slow syncs (faults.md): never a second one on that file, nothing answered after, a fresh file."""

import errno
import time

import pytest
from chaos.calls.faults import At, Delay, Fail
from chaos.calls.life import begin, check_log, conclude, life
from support.daemon import until

SYNC = "fdatasync kept/journal/active.log"
RENEWED = "rename kept/journal/active.log.new active.log"
SLOW_SECONDS = 2.0


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC], ids=["EIO", "no space only at fsync"])
@pytest.mark.parametrize("nth", [1, 2, 4])
def test_eio_at_the_nth_fdatasync_is_storage_failed_and_the_relay_goes_on_in_a_fresh_file(zygote, nth, number):
    with life(zygote) as (daemon, clients):
        before = begin(daemon, clients, Fail(At(SYNC, nth), number))
        active = daemon.relay("kept") / "journal" / "active.log"
        for step in clients.steps(2):
            inode = active.stat().st_ino
            if not clients.attempt(step):
                break
        assert [code for _, code, _ in clients.refusals] == ["storage_failed"]
        clients.insist(clients.producers[0].again)
        assert active.stat().st_ino != inode
        calls = daemon.supervisor.names(before)
        failed = next(at for at, call in enumerate(daemon.supervisor.log[before:]) if call.fault)
        after = calls[failed + 1 :]
        renewed = after.index(RENEWED)
        assert SYNC not in after[:renewed], "the file whose sync failed is synced again"
        assert not [name for name in after if name.startswith("fdatasync") and "(deleted)" in name]
        assert "pwritev kept/journal/active.log" not in after[:renewed], "something is written behind what was lost"
        conclude(daemon, clients)
        check_log(daemon)


def test_eio_at_every_fdatasync_makes_that_relay_unavailable_no_other_and_ends_with_the_fault(zygote):
    with life(zygote) as (daemon, clients):
        before = begin(daemon, clients, Fail(At("fdatasync kept/journal/active.log*", forever=True), errno.EIO))
        kept, other = clients.producers[:2]
        assert not clients.attempt(kept.record)
        assert not clients.attempt(kept.again)
        assert [one[1:] for one in clients.refusals] == [("storage_failed", ""), ("unavailable", "storage_failed")]
        for _ in range(20):
            clients.attempt(kept.again)
            assert clients.attempt(other.record)
        syncs = [call for call in daemon.supervisor.log[before:] if call.fault]
        assert len(syncs) <= 3, "it is tried once a second at most"
        daemon.supervisor.mend()
        clients.insist(kept.again)
        conclude(daemon, clients)
        check_log(daemon)


def test_every_fdatasync_takes_2_seconds_group_commit_absorbs_it_and_status_answers_meanwhile(zygote):
    """A second sync holds all that came during the first one; what waits for it waits for no one else."""
    with life(zygote) as (daemon, clients):
        begin(daemon, clients)
        events = 400
        with daemon.connect() as wire, daemon.connect() as other:
            asked = daemon.supervisor.plant(Delay(At(SYNC, forever=True), SLOW_SECONDS))
            began = time.monotonic()
            record = {"op": "record", "relay": "kept"}
            first = wire.send("record", relay="kept", events=[["work", 0]])
            until(daemon.supervisor.met.is_set, 5, "nothing is synced")
            rest = wire.send_many([record | {"events": [["work", number]]} for number in range(1, events)])
            status = other.done("relays")
            answers = [wire.answer(request) for request in (first, *rest)]
            taken = time.monotonic() - began
        assert [one["relay"] for one in status["relays"]] == ["kept", "short", "taken"]
        assert {one["re"] for one in answers} == {"recorded"}
        assert [one["first"] for one in answers] == list(range(2, events + 2))
        syncs = daemon.supervisor.names(asked).count(SYNC)
        assert syncs <= 3, f"{syncs} syncs for {events} events"
        assert taken < 4 * SLOW_SECONDS


def test_while_a_sync_is_slow_the_queue_is_bounded_and_beyond_it_recording_is_overloaded(zygote):
    with life(zygote, pending_bytes=8 << 20) as (daemon, clients):
        begin(daemon, clients)
        big = bytes(1 << 20)
        with daemon.connect() as wire, daemon.connect() as more, daemon.connect() as other:
            daemon.supervisor.plant(Delay(At(SYNC, forever=True), SLOW_SECONDS))
            first = wire.send("record", relay="kept", events=[["work", 0]])
            until(daemon.supervisor.met.is_set, 5, "nothing is synced")
            sent = [(each, each.send("record", relay="kept", events=[["work", big]])) for each in [wire, more] * 6]
            began = time.monotonic()
            assert len(other.done("relays")["relays"]) == 3
            assert other.done("status", relay="taken")["latest"][0] == 1
            assert time.monotonic() - began < SLOW_SECONDS / 2, "others wait for that disk"
            assert wire.answer(first)["re"] == "recorded"
            answers = [each.answer(request) for each, request in sent]
            overloaded = [one for one in answers if one["re"] == "error"]
            assert {(one["code"], one["detail"]["bound"]) for one in overloaded} == {("overloaded", "pending_bytes")}
            assert 3 <= len(overloaded) <= 6
            daemon.supervisor.mend()
            assert wire.call("record", relay="kept", events=[["work", 1]])["re"] == "recorded"


@pytest.mark.parametrize(
    "name",
    [
        "rename kept/journal/active.log RANGE.log",
        "rename kept/journal/active.log.new active.log",
        "fsync kept/journal",
        "unlink kept/idle",
    ],
)
def test_eio_at_rename_unlink_or_directory_sync_of_appending_is_storage_failed_and_nothing_is_answered_by_it(
    zygote, name
):
    with life(zygote) as (daemon, clients):
        begin(daemon, clients, Fail(At(name), errno.EIO))
        for step in clients.steps():
            if not clients.attempt(step):
                break
        assert daemon.supervisor.met.is_set()
        assert [code for _, code, _ in clients.refusals] == ["storage_failed"]
        assert len(daemon.said("append_failed")) == 1
        clients.insist(clients.producers[0].again)
        conclude(daemon, clients)
        check_log(daemon)


def test_eio_at_truncate_of_a_torn_group_refuses_the_opening_which_is_tried_again(zygote):
    with life(zygote) as (daemon, clients):
        daemon.start(stops=False)
        with daemon.connect() as wire:
            clients.make(wire)
        clients.serve(1)
        clients.leave()
        daemon.kill()
        with (daemon.relay("kept") / "journal" / "active.log").open("ab") as file:
            file.write(b"RLYG\1\0\0\0")
        daemon.start(Fail(At("ftruncate kept/journal/active.log"), errno.EIO))
        assert not clients.attempt(clients.producers[0].again)
        assert [one[1:] for one in clients.refusals] == [("unavailable", "storage_failed")]
        clients.insist(clients.producers[0].again)
        conclude(daemon, clients)
        check_log(daemon)
