"""A group that the process was killed with, whole in the page cache and never synced: the restart makes it durable."""

import contextlib

import pytest
from chaos.power.machine import LOG_FLUSHED, NOTHING_FLUSHED
from chaos.power.rounds import FLAGS, GROUP_SYNC
from chaos.power.station import Cut, a_station


def record(wire):
    return wire.done("record", relay="a", events=[["x", "once"]], producer="p", sequence=1)


@pytest.fixture
def station():
    """One killed between the write and the sync of event 2."""
    with a_station() as station:
        station.start()
        with station.daemon.connect() as wire:
            wire.done("open", relay="a", create=True)
            with station.killing_at(Cut(1, LOG_FLUSHED, GROUP_SYNC)), contextlib.suppress(ConnectionError):
                raise AssertionError(f"answered without a sync: {record(wire)}")
        yield station


def latest(station):
    station.start()
    with station.daemon.connect() as wire:
        return wire.done("status", relay="a")["latest"][0]


def test_without_a_restart_the_power_cut_takes_it(station):
    station.machine.cut(NOTHING_FLUSHED)
    station.back()
    assert latest(station) == 1


@pytest.mark.parametrize("flag", FLAGS, ids=["log flushed", "nothing flushed"])
def test_a_repeat_answered_as_a_duplicate_after_the_restart_survives_a_power_cut(station, flag):
    """Kill, restart, serve, then a power cut: nothing is written after the restart that could sync it by the way."""
    station.start()
    with station.daemon.connect() as wire:
        again = record(wire)
    assert (again["duplicate"], again["through"][0]) == (True, 2)
    station.cut(flag)
    assert latest(station) == 2


@pytest.mark.parametrize("flag", FLAGS, ids=["log flushed", "nothing flushed"])
def test_what_a_reader_is_shown_after_the_restart_survives_a_power_cut(station, flag):
    station.start()
    with station.daemon.connect() as wire:
        shown = wire.read_all("a")
    assert [one.ordinal for one in shown] == [1, 2]
    station.cut(flag)
    station.start()
    with station.daemon.connect() as wire:
        assert wire.read_all("a") == shown
