"""A sync that wrote nothing and says it is done, then a power cut: what is left is in order, or said not to be."""

import pytest
from chaos.power.machine import LOG_FLUSHED, NOTHING_FLUSHED, write_out
from chaos.power.rounds import FLAGS
from chaos.power.station import a_station

PAGE = 4096
LARGE = {"segment_bytes": 1 << 20, "snapshot_bytes": 1 << 20, "snapshot_events": 10_000}
FLUSHED = pytest.mark.parametrize("flag", FLAGS, ids=["log flushed", "nothing flushed"])


def record(wire, first, last, size=10):
    for number in range(first, last + 1):
        answer = wire.done("record", relay="a", events=[["x", [number, "y" * size]]], producer="p", sequence=number)
    return answer


def tree(relay):
    return {file: file.read_bytes() for file in relay.rglob("*") if file.is_file()}


def refusal(station):
    """Why the relay does not open. Refusing changes no byte."""
    before = tree(station.relay("a"))
    station.start()
    with station.daemon.connect() as wire:
        refused = wire.call("status", relay="a")
    assert refused["code"] == "unavailable"
    assert tree(station.relay("a")) == before
    return refused["detail"]


@FLUSHED
def test_answers_after_lying_syncs_are_lost_from_the_end_and_a_reader_who_saw_them_is_told_ahead(flag):
    with a_station(**LARGE) as station:
        station.start()
        with station.daemon.connect() as wire:
            wire.done("open", relay="a", create=True)
            record(wire, 1, 3)
            station.shim.lie()
            record(wire, 4, 9)
            shown = wire.read_all("a")
            assert station.shim.lied >= 6
        station.cut(flag)
        station.start()
        with station.daemon.connect() as wire:
            assert wire.read_all("a") == shown[:4], "a prefix, byte for byte"
            ahead = wire.call("attach", relay="a", after=shown[-1].cursor)
            assert (ahead["code"], ahead["detail"]["reason"]) == ("desynchronized", "ahead")
            assert ahead["detail"]["latest"][0] == 4
            again = record(wire, 4, 4)
            assert "duplicate" not in again
            assert again["through"][0] == 5


def test_a_snapshot_that_is_past_what_lying_syncs_left_is_snapshot_ahead():
    with a_station(**{**LARGE, "snapshot_events": 8}) as station:
        station.start()
        with station.daemon.connect() as wire:
            wire.done("open", relay="a", create=True)
            record(wire, 1, 3)
            station.shim.lie("active.log")
            before = (station.relay("a") / "snapshot").read_bytes()
            number = 3
            while (station.relay("a") / "snapshot").read_bytes() == before:
                number += 1
                record(wire, number, number)
        station.cut(NOTHING_FLUSHED)
        assert refusal(station)["reason"] == "snapshot_ahead"


def test_a_hole_before_a_group_that_reached_the_disk_is_journal_corrupt():
    with a_station(**LARGE) as station:
        active = station.active("a")
        station.start()
        with station.daemon.connect() as wire:
            wire.done("open", relay="a", create=True)
            record(wire, 1, 1)
            synced = active.stat().st_size
            station.shim.lie("active.log")
            record(wire, 2, 2, 2 * PAGE)
            whole = -(-active.stat().st_size // PAGE) * PAGE
            record(wire, 3, 3, 2 * PAGE)
            record(wire, 4, 4)
            end = active.stat().st_size
        write_out(active, whole - PAGE, end - whole + PAGE)
        station.cut(LOG_FLUSHED)
        left = active.read_bytes()
        assert len(left) == end
        assert not any(left[PAGE : whole - PAGE])
        detail = refusal(station)
        assert (detail["reason"], detail["offset"]) == ("journal_corrupt", synced)
