"""A sync that fails because the disk below has no room for what is in the page cache, really."""

import pytest
from chaos.history import read_relay
from chaos.power.machine import NOTHING_FLUSHED
from chaos.power.rounds import FLAGS
from chaos.power.station import a_station
from chaos.power.thin import ThinMachine
from support.daemon import until

PAGE = 4096
BIG = 2 * PAGE


def record(wire, number, size):
    return wire.call("record", relay="a", events=[["x", [number, "y" * size]]], producer="p", sequence=number)


def record_up_to_a_page(wire, active):
    """Events 1 and 2, after which active.log ends with a page."""
    before = active.stat().st_size
    record(wire, 1, 1000)
    end = active.stat().st_size
    record(wire, 2, 3 * PAGE - end - (end - before - 1000))
    assert active.stat().st_size == 3 * PAGE


def numbers(station):
    with station.daemon.connect() as wire:
        return [one.data[0] for one in wire.read_all("a") if one.kind == "x"]


@pytest.fixture
def station():
    """One whose disk has no room below it any more; two events were answered, and the third was `storage_failed`."""
    with a_station(ThinMachine) as station:
        station.start()
        with station.daemon.connect() as wire:
            wire.done("open", relay="a", create=True)
            record_up_to_a_page(wire, station.active("a"))
            station.machine.fill()
            refused = record(wire, 3, BIG)
            assert (refused["code"], refused["retryable"]) == ("storage_failed", True)
        yield station


def test_a_sync_that_fails_is_storage_failed_nothing_is_answered_after_it_and_service_is_back_with_the_room(station):
    with station.daemon.connect() as wire:
        for number in (3, 4):
            refused = record(wire, number, BIG)
            assert (refused["code"], refused["detail"]["reason"]) == ("unavailable", "storage_failed")
        assert station.daemon.running
        station.machine.free()
        answers = []

        def answered():
            answers.append(record(wire, 3, BIG))
            return answers[-1]["re"] == "recorded"

        until(answered, 5, f"service is not back: {answers[-1:]}")
        assert "duplicate" not in answers[-1], "what was refused was not kept behind anybody's back"
        assert answers[-1]["through"][0] == 4
    station.cut(NOTHING_FLUSHED)
    station.start()
    assert numbers(station) == [1, 2, 3]


def test_what_a_failed_sync_left_in_the_page_cache_a_power_cut_takes(station):
    """Why the next test is one: without more, the event that looks stored is not."""
    station.kill()
    assert max(read_relay(station.relay("a")).records) == 4
    station.machine.free()
    station.machine.cut(NOTHING_FLUSHED)
    station.back()
    assert max(read_relay(station.relay("a")).records) == 3


@pytest.mark.parametrize("flag", FLAGS, ids=["log flushed", "nothing flushed"])
def test_a_repeat_that_is_answered_after_a_failed_sync_and_a_restart_survives_a_power_cut(station, flag):
    """The page cache still shows the bytes, and they are clean there: the restart writes them again, and syncs that."""
    station.kill()
    assert max(read_relay(station.relay("a")).records) == 4
    station.machine.free()
    station.start()
    with station.daemon.connect() as wire:
        again = record(wire, 3, BIG)
        assert again["duplicate"] is True
        assert again["through"][0] == 4
    station.cut(flag)
    assert max(read_relay(station.relay("a")).records) == 4
    station.start()
    assert numbers(station) == [1, 2, 3]
