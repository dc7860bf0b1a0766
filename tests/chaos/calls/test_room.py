"""No space at each write (faults.md): who is told, what goes on meanwhile, and that service resumes by itself."""

import errno

import pytest
from chaos.calls.faults import At, Fail, Kill, Short
from chaos.calls.life import begin, check_log, conclude, life, until_killed, until_quiet_or_killed
from chaos.calls.script import leftovers
from support.daemon import until

RESUMES_SECONDS = 5
NO_ROOM = [errno.ENOSPC, errno.EDQUOT]


def full(number, *names):
    """Each of these writes fails, and the probe that asks whether there is room again."""
    return [Fail(At(name, forever=True), number) for name in (*names, "* */probe.new")]


def unfinished(daemon):
    """At most one of a kind."""
    names = leftovers(daemon.state / "relays" / "kept")
    assert len(names) == len(set(names)), names
    return names


@pytest.mark.parametrize("number", NO_ROOM)
def test_without_room_for_a_group_recording_is_storage_full_reads_go_on_and_it_resumes_by_itself(zygote, number):
    with life(zygote) as (daemon, clients):
        begin(daemon, clients)
        clients.serve(1)
        daemon.supervisor.plant(*full(number, "pwritev kept/journal/active.log"))
        kept, other = clients.producers[:2]
        assert not clients.attempt(kept.record)
        assert [code for _, code, _ in clients.refusals] == ["storage_full"]
        wire = clients.asker.wire
        latest = wire.done("status", relay="kept")
        assert "room" in latest["trouble"]
        for op, fields in {"acknowledge": {"through": latest["latest"]}, "record": {"events": [["work"]]}}.items():
            assert wire.call(op, relay="kept", **fields)["code"] == "storage_full"
        clients.readers[0].read()
        assert clients.readers[0].cursor[0] == latest["latest"][0]
        assert clients.attempt(other.record)
        until(lambda: daemon.supervisor.names().count("open create kept/probe.new") >= 2, 5, "it is not tried again")
        assert not clients.attempt(kept.again), "there is no room yet"
        daemon.supervisor.mend()
        until(lambda: clients.attempt(kept.again), RESUMES_SECONDS, "recording does not resume")
        daemon.kill()
        check_log(daemon)
        daemon.start(stops=False)
        conclude(daemon, clients)


@pytest.mark.parametrize("number", NO_ROOM)
def test_without_room_for_a_segment_header_the_active_segment_grows_on_to_4_times_its_size(zygote, number):
    with life(zygote) as (daemon, clients):
        begin(daemon, clients, *full(number, "pwritev kept/journal/active.log.new"))
        active = daemon.relay("kept") / "journal" / "active.log"
        sizes = [0]
        while clients.attempt(clients.producers[0].record):
            sizes.append(active.stat().st_size)
            assert unfinished(daemon) in ([], ["snapshot.new"])
        assert 3 * 4096 < max(sizes) < 6 * 4096
        assert [code for _, code, _ in clients.refusals] == ["storage_full"]
        daemon.supervisor.mend()
        until(lambda: clients.attempt(clients.producers[0].again), RESUMES_SECONDS, "recording does not resume")
        assert active.stat().st_size < 4096 * 2, "it is rotated as soon as there is room"
        conclude(daemon, clients)


@pytest.mark.parametrize("number", NO_ROOM)
@pytest.mark.parametrize("kind", ["snapshot", "seal"])
def test_without_room_for_a_snapshot_or_a_seal_nobody_is_told_and_it_is_tried_again(zygote, kind, number):
    name = {"snapshot": "kept/snapshot.new", "seal": "kept/journal/RANGE.log.zst.new"}[kind]
    with life(zygote) as (daemon, clients):
        begin(daemon, clients, *full(number, f"pwritev {name}"))
        for _ in range(4):
            clients.serve(1)
        assert not clients.refusals
        trouble = lambda: clients.asker.ask("status", relay="kept").get("trouble")  # noqa: E731
        until(lambda: kind in (trouble() or ""), 5, "status says nothing of it")
        assert len(unfinished(daemon)) <= 1
        daemon.supervisor.mend()
        until(lambda: trouble() is None, RESUMES_SECONDS, "it is not tried again")
        until_quiet_or_killed(daemon)
        conclude(daemon, clients)


@pytest.mark.parametrize("number", NO_ROOM)
def test_without_room_for_the_quarantine_reads_are_served_and_the_torn_bytes_are_set_aside_later(zygote, number):
    with life(zygote) as (daemon, clients):
        begin(daemon, clients, Short(At("pwritev kept/journal/active.log", 3), 65, kill=True))
        assert until_killed(daemon, lambda: clients.serve(2))
        clients.leave()
        daemon.start(*full(number, "pwritev kept/quarantine/*"))
        quarantine = daemon.relay("kept") / "quarantine"
        clients.readers[0].again()
        assert not clients.attempt(clients.producers[0].again)
        assert [code for _, code, _ in clients.refusals] == ["storage_full"]
        assert not [one for one in quarantine.iterdir() if one.suffix != ".new"]
        assert len(list(quarantine.iterdir())) <= 1
        daemon.supervisor.mend()
        until(lambda: clients.attempt(clients.producers[0].again), RESUMES_SECONDS, "recording does not resume")
        assert [one.stat().st_size for one in quarantine.iterdir()] == [65]
        conclude(daemon, clients)


def test_a_kill_while_the_disk_is_full_leaves_nothing_that_was_answered_unsaved(zygote):
    with life(zygote) as (daemon, clients):
        begin(daemon, clients)
        clients.serve(1)
        daemon.supervisor.plant(
            *full(errno.ENOSPC, "pwritev kept/journal/active.log"), Kill(At("ftruncate kept/journal/active.log"))
        )
        assert until_killed(daemon, lambda: clients.serve(1))
        daemon.start(stops=False)
        conclude(daemon, clients)
