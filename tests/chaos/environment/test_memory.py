"""Out of memory kill; memory capped at 96 MiB with 1,000 slow readers, and with a history far larger than that."""

import signal

import pytest
from chaos.environment.account import Account, settle, trouble
from chaos.environment.cgroup import MIB, memory_limit, needs_cgroup
from chaos.environment.crowd import ask_and_take_nothing, crowd
from support.daemon import until
from support.wire import frame

pytestmark = needs_cgroup
CAP = 96 * MIB


def test_killed_by_the_kernel_for_want_of_memory_is_as_sigkill(make):
    """Killed in the middle of recording: it opens again, and what was answered is there once."""
    account = Account()
    with memory_limit(CAP) as limit:
        daemon = limit.hold(make()).start()
        with daemon.connect() as wire, crowd(daemon, 40) as hogs:
            account.open(wire)
            for _ in range(20):
                account.insist(wire, size=10_000)
            with pytest.raises(ConnectionError):
                _demand_memory(wire, account, hogs)
            assert daemon.wait() == -signal.SIGKILL
            assert limit.kills > 0
    daemon.prefix = []
    (checked,) = settle(daemon, account)
    assert checked.answered >= 20


def _demand_memory(wire, account, hogs):
    """Each sends most of a large frame, which the daemon has to hold, while somebody records."""
    for hog in hogs:
        hog.socket.sendall(frame({"op": "record", "id": 9, "relay": "a", "events": [["x", bytes(7 << 20)]]})[:-1])
        account.send(wire)
        account.take(wire.receive())
    while True:
        account.take(wire.answer(account.send(wire)))


def test_96_mib_and_1000_readers_that_read_nothing(make):
    """It lives, others are served, and when the readers are gone the kernel's memory that was theirs is free."""
    account = Account()
    with memory_limit(CAP) as limit:
        daemon = limit.hold(make(segment_bytes=4 * MIB)).start()
        with daemon.connect() as wire:
            account.open(wire)
            for _ in range(20):
                account.insist(wire, size=1000, count=1000)
            before = limit.held_by_kernel
            with crowd(daemon, 1000) as lazy:
                ask_and_take_nothing(lazy, "a", 10_000)
                for _ in range(10):
                    account.insist(wire)
                assert wire.done("attach", relay="a", after=[5000, None])["count"] > 0
                assert limit.kills == 0
                assert limit.held < CAP
            until(lambda: limit.held_by_kernel < before + 4 * MIB, 10, "what the readers held is not free")
            account.insist(wire)
        assert daemon.stop() == 0
        assert not trouble(daemon)
        assert limit.kills == 0
    daemon.prefix = []
    daemon.start()
    daemon.kill()
    account.check(daemon.relay("a"))


def test_opening_needs_one_segment_of_memory_not_the_history(make):
    """Without snapshots every event is folded again; the events are half as much again as the memory."""
    with memory_limit(CAP) as limit:
        daemon = limit.hold(make(segment_bytes=8 * MIB)).start()
        with daemon.connect() as wire:
            wire.done("open", relay="a", create=True)
            for _ in range(36):
                wire.done("record", relay="a", events=[["x", bytes(1 * MIB)]] * 4)
            latest = wire.done("status", relay="a")["latest"]
        daemon.kill()
        for snapshot in daemon.relay("a").glob("snapshot*"):
            snapshot.unlink()
        daemon.start()
        with daemon.connect() as wire:
            assert wire.done("status", relay="a")["latest"] == latest
            assert daemon.until_said("relay_opened")["folded_events"] == latest[0]
            assert limit.held < CAP
        assert limit.kills == 0
        assert daemon.stop() == 0
