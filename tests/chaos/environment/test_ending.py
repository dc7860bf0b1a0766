"""SIGTERM idle, mid-group, mid-seal, with 1,000 requests in flight; a second one."""

import os
import shutil
import signal
import time

import pytest
from chaos.environment.account import Account, settle, trouble
from chaos.environment.supervising import NotifySocket
from chaos.history import check, read_relay
from support.daemon import until

slow_syncs = pytest.mark.skipif(shutil.which("strace") is None, reason="delays real syncs: needs strace")


def delay_syncs(daemon, microseconds):
    """Each fdatasync of the daemon takes so much longer; strace steps aside, so that the daemon stays our child."""
    inject = f"inject=fdatasync:delay_enter={microseconds}"
    daemon.prefix = ["strace", "-D", "-f", "-qq", "-o", os.devnull, "-e", "trace=fdatasync", "-e", inject]
    return daemon


def ends_well(daemon, ear):
    """Told to stop: it says so, ends with 0 within 5 s, leaves a snapshot, and the next start has nothing to fold."""
    began = time.monotonic()
    daemon.signal(signal.SIGTERM)
    assert ear.hear() == "STOPPING=1"
    until(lambda: not daemon.socket.exists(), 1, "it goes on accepting")
    assert daemon.wait() == 0
    assert time.monotonic() - began < 5
    assert ear.heard_nothing_more()
    assert not trouble(daemon)
    assert not daemon.said("drain_cut_short")


def opens_from_its_snapshot(daemon, relay="a"):
    assert (daemon.relay(relay) / "idle").exists()
    daemon.start()
    with daemon.connect() as wire:
        wire.done("status", relay=relay)
    opened = daemon.until_said("relay_opened")
    assert (opened["source"], opened["folded_events"]) == ("snapshot", 0)


@pytest.fixture
def ear(place):
    with NotifySocket(str(place / "n")) as listening:
        yield listening


def test_it_says_ready_once_it_serves_and_not_before(make, place, ear):
    (place / "state").mkdir(mode=0o700)
    daemon = ear.supervise(make())
    daemon.begin()
    assert ear.hear() == "READY=1"
    with daemon.connect() as wire:
        wire.done("relays")
    assert ear.heard_nothing_more()


@pytest.mark.parametrize("address", ["@relayd-chaos-abstract", "relative", "/nobody/listens"])
def test_the_supervisor_may_have_an_abstract_name_or_not_listen_at_all(make, place, address):
    daemon = make()
    if address.startswith("@"):
        with NotifySocket(f"{address}-{os.getpid()}") as ear:
            ear.supervise(daemon).start()
            assert ear.hear() == "READY=1"
            assert daemon.stop() == 0
            assert ear.hear() == "STOPPING=1"
    else:
        daemon.prefix = ["env", f"NOTIFY_SOCKET={address}"]
        daemon.start()
        assert daemon.stop() == 0
    assert not trouble(daemon)


def test_sigterm_idle(make, ear):
    daemon = ear.supervise(make()).start()
    assert ear.hear() == "READY=1"
    with daemon.connect() as wire:
        account = Account().open(wire)
        account.insist(wire, count=20)
        account.read(wire)
        ends_well(daemon, ear)
    daemon.prefix = []
    opens_from_its_snapshot(daemon)
    settle(daemon, account)


@slow_syncs
def test_sigterm_mid_group(make, ear):
    """The group's sync takes 200 ms; the signal comes while it runs, and the group is answered all the same."""
    daemon = ear.supervise(delay_syncs(make(), 200_000)).start()
    assert ear.hear() == "READY=1"
    with daemon.connect() as wire:
        account = Account().open(wire)
        size = (daemon.relay("a") / "journal/active.log").stat().st_size
        request = account.send(wire, count=5)
        until(lambda: (daemon.relay("a") / "journal/active.log").stat().st_size > size, 5, "the group is not written")
        assert not wire._answers
        ends_well(daemon, ear)
        assert account.take(wire.answer(request))["re"] == "recorded"
    daemon.prefix = []
    opens_from_its_snapshot(daemon)
    settle(daemon, account)


@slow_syncs
def test_sigterm_mid_seal(make, ear):
    """The sealed file's sync takes 120 ms; the signal comes while the file is unfinished."""
    daemon = ear.supervise(delay_syncs(make(segment_bytes=4096), 120_000)).start()
    assert ear.hear() == "READY=1"
    journal = daemon.relay("a") / "journal"
    with daemon.connect() as wire:
        account = Account().open(wire)
        account.insist(wire, size=5000)
        account.insist(wire, size=100)
        until(lambda: list(journal.glob("*.zst.new")), 10, "it does not seal")
        ends_well(daemon, ear)
    assert len(list(journal.glob("*.new"))) <= 1
    daemon.prefix = []
    opens_from_its_snapshot(daemon)
    until(lambda: list(journal.glob("*.zst")) and not list(journal.glob("*.new")), 5, "it does not go on sealing")
    settle(daemon, account)


def test_sigterm_with_1000_requests_in_flight(make, ear):
    """Twenty producers with fifty requests each: what is answered is there, what is not may be sent again."""
    daemon = ear.supervise(make()).start()
    assert ear.hear() == "READY=1"
    accounts = [Account("a", f"producer-{at}") for at in range(20)]
    wires = [daemon.connect() for _ in accounts]
    accounts[0].open(wires[0])
    for wire, account in zip(wires, accounts, strict=True):
        for _ in range(50):
            account.send(wire)
    ends_well(daemon, ear)
    for wire, account in zip(wires, accounts, strict=True):
        for answer in wire.receive_all():
            account.take(answer)
        wire.close()
        assert {refused["code"] for refused in account.refusals} <= {"shutting_down"}
    daemon.prefix = []
    opens_from_its_snapshot(daemon)
    with daemon.connect() as wire:
        for account in accounts:
            account.insist(wire)
            account.repeat(wire)
    daemon.kill()
    checked = check("a", read_relay(daemon.relay("a")), [account.said for account in accounts])
    assert 1 + 1000 <= checked.on_disk <= 1 + 1000 + len(accounts)


def test_a_second_sigterm_ends_it_at_once(make, ear):
    """The first waits for a reader that takes nothing; what was answered is kept all the same."""
    daemon = ear.supervise(make(drain=60)).start()
    with daemon.connect() as wire, daemon.connect() as lazy:
        account = Account().open(wire)
        for _ in range(20):
            account.insist(wire, size=300_000)
        lazy.send_many([{"op": "attach", "relay": "a", "after": "earliest", "max_bytes": 4 << 20}] * 50)
        lazy.socket.recv(1, 2)  # MSG_PEEK: its pages are on their way
        daemon.signal(signal.SIGTERM)
        assert ear.hear() == "READY=1"
        assert ear.hear() == "STOPPING=1"
        until(lambda: not daemon.socket.exists(), 5, "it goes on accepting")
        assert daemon.running
        began = time.monotonic()
        daemon.signal(signal.SIGTERM)
        assert daemon.wait() == 130
        assert time.monotonic() - began < 1
    daemon.prefix = []
    settle(daemon, account)
