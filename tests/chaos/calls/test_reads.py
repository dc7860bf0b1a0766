"""EIO on read (faults.md), while opening and while serving."""

import errno

import pytest
from chaos.calls.faults import At, Fail
from chaos.calls.life import begin, check_log, conclude, life
from chaos.calls.script import quiet


@pytest.mark.parametrize("name", ["active.log", "snapshot", "watermark", "acknowledged"])
def test_eio_on_read_while_opening_fails_the_open_with_the_error_and_the_file_is_untouched(zygote, name):
    with life(zygote, reads=True) as (daemon, clients):
        daemon.start(stops=False)
        with daemon.connect() as wire:
            clients.make(wire)
        clients.serve(2)
        clients.leave()
        quiet(daemon.state)
        daemon.kill()
        relay = daemon.relay("taken")
        before = {path: path.read_bytes() for path in relay.rglob("*") if path.is_file()}
        daemon.start(Fail(At(f"pread taken/*{name}", forever=True), errno.EIO))
        for _ in range(2):
            assert not clients.attempt(clients.producers[1].again)
            clients.leave()
        assert {one[1:] for one in clients.refusals} == {("unavailable", "storage_failed")}
        assert "Input/output error" in daemon.said("relay_unavailable")[0]["error"]
        assert {path: path.read_bytes() for path in relay.rglob("*") if path.is_file()} == before
        assert clients.attempt(clients.producers[0].again), "the other relays are served"
        daemon.supervisor.mend()
        clients.insist(clients.producers[1].again)
        conclude(daemon, clients)
        check_log(daemon)


def test_eio_on_read_while_serving_costs_that_reader_its_answer_and_nobody_else(zygote):
    with life(zygote, reads=True) as (daemon, clients):
        begin(daemon, clients)
        for _ in range(4):
            for producer in clients.producers:
                producer.record(2)
        quiet(daemon.state)
        reader, other = clients.readers[0], clients.readers[1]
        daemon.supervisor.plant(Fail(At("pread kept/journal/RANGE.log.zst"), errno.EIO))
        assert not clients.attempt(reader.read)
        assert daemon.supervisor.met.is_set()
        assert [one[:2] for one in clients.refusals] == [(reader.name, "storage_failed")]
        assert clients.attempt(other.read)
        assert clients.attempt(clients.producers[0].record), "recording there goes on"
        assert clients.attempt(reader.read), "asked again, it is served"
        assert len([one for one in daemon.said("relay_opened") if one["relay"] == "kept"]) == 1
        conclude(daemon, clients)
        check_log(daemon)
