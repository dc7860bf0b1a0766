"""Wall clock −1 day, +10 years, before 1970, across restarts too: order is by ordinal, and nothing lapses by it."""

import time

import pytest
from chaos.environment.account import Account, settle, trouble
from chaos.environment.clock import DAY, Clocks, needs_compiler

pytestmark = needs_compiler
JUMPS = {"one day back": -DAY, "ten years ahead": 3650 * DAY, "before 1970": -60 * 365.25 * DAY}


def recorded_at(wire, relay="a"):
    return [stored.fields[0] / 1000 for stored in wire.read_all(relay)]


def near(seconds, wanted):
    assert abs(seconds - wanted) < 60, (seconds, wanted)


@pytest.mark.parametrize("when", ["while it runs", "across a restart", "across a crash"])
def test_the_wall_clock_jumps(make, place, when):
    """Each jump, and back to what is right: times are as the clock said, the order is by ordinal, and all is known."""
    clocks, account = Clocks(place), Account()
    daemon = clocks.rule(make()).start()
    with daemon.connect() as wire:
        account.open(wire)
        account.insist(wire, count=5)
        half = wire.done("status", relay="a")["latest"]
        wire.done("acknowledge", relay="a", consumer="k", through=half)
    for shift in (*JUMPS.values(), 0):
        if when == "across a crash":
            daemon.kill()
        elif when == "across a restart":
            assert daemon.stop() == 0
        clocks.set_wall(shift)
        if when != "while it runs":
            daemon.start()
        with daemon.connect() as wire:
            account.repeat(wire)
            account.insist(wire, count=5)
            times = recorded_at(wire)
            near(times[1], time.time())
            near(times[-1], time.time() + shift)
            assert wire.done("status", relay="a")["consumers"] == {"k": half}, "nobody is forgotten by the clock"
            assert wire.done("attach", relay="a", after={"consumer": "k"})["count"] == len(times) - half[0]
        assert not trouble(daemon)
    (checked,) = settle(daemon, account)
    assert (checked.on_disk, checked.collected) == (1 + 26, 0)


def test_no_wait_no_idleness_and_no_retention_follows_the_wall_clock(make, place):
    clocks, account = Clocks(place), Account()
    daemon = clocks.rule(make(idle_relay=30, segment_bytes=4096)).start()
    with daemon.connect() as wire:
        account.open(wire, retention={"bytes": 1 << 20})
        for _ in range(10):
            account.insist(wire, size=2000)
        latest = wire.done("status", relay="a")["latest"]
        for shift in (*JUMPS.values(), 0):
            began = time.monotonic()
            request = wire.send("attach", relay="a", after=latest, wait_ms=200)
            clocks.set_wall(shift)
            page = wire.answer(request)
            assert page["count"] == 0
            assert 0.19 < time.monotonic() - began < 1.5
            assert wire.done("relays")["relays"][0]["open"] is True
        assert wire.done("status", relay="a")["evicted"][0] == 0
        cpu = daemon.cpu_seconds
        time.sleep(0.3)
        assert daemon.cpu_seconds - cpu < 0.1, "no busy loop"
    assert len(daemon.said("relay_opened")) <= 1
    assert not trouble(daemon)
    settle(daemon, account)
