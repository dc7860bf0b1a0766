"""Relay directory, or the state directory, deleted, moved or replaced while running.

`relay_removed` within one group, nothing answered into it; the daemon goes on, or exits 74.
"""

import shutil
import time

import pytest
from chaos.environment.account import Account, settle, trouble
from chaos.environment.room import standing_still
from chaos.history import check, read_relay


def take_away(path, how, aside):
    """Leaves what was there at `aside`, where it is not deleted."""
    match how:
        case "deleted":
            shutil.rmtree(path, ignore_errors=True)
        case "moved":
            path.rename(aside)
        case "replaced by a copy":
            path.rename(aside)
            if aside.is_dir():
                shutil.copytree(aside, path)
            else:
                shutil.copy(aside, path)
        case "replaced by nothing much":
            path.rename(aside)
            path.mkdir(mode=0o700)


HOW = ("deleted", "moved", "replaced by a copy", "replaced by nothing much")


@pytest.mark.parametrize("how", HOW)
def test_relays_directory_is_taken_away_under_load(serving, place, how):
    """Requests are on their way all the time; the group after it is refused, and nothing later is answered."""
    daemon, account, other = serving(segment_bytes=16_384), Account("a"), Account("b")
    aside = place / "aside"
    with daemon.connect() as wire, daemon.connect() as third:
        account.open(wire)
        other.open(third)
        for _ in range(20):
            account.insist(wire, size=2000)
        requests = [account.send(wire) for _ in range(5)]
        if how == "replaced by a copy":
            # A copy of what is being written to would be whatever it is; this one is whole, and is served later.
            requests = [request for request in requests if not account.take(wire.answer(request))]
        with standing_still(daemon):
            take_away(daemon.relay("a"), how, aside)
        requests += [account.send(wire) for _ in range(50)]
        answers = [account.take(wire.answer(request)) for request in requests]
        refused = [answer for answer in answers if answer["re"] == "error"]
        assert refused, "it has noticed"
        assert (refused[0]["code"], refused[0]["retryable"]) == ("relay_removed", False)
        kept = account.answered
        for _ in range(3):
            other.insist(third)
        if how != "deleted":
            held = check("a", read_relay(aside), [account.said])
            assert held.answered >= kept, "all that was answered is in what was moved away"
        if how == "moved":
            aside.rename(daemon.relay("a"))
            account.insist(wire)
    assert daemon.running
    assert len(daemon.said("relay_removed_while_open")) == 1
    assert not trouble(daemon)
    settle(daemon, other, *([account] if how == "moved" else []))


@pytest.mark.parametrize(("what", "how"), [("journal", "moved"), ("journal/active.log", "replaced by a copy")])
def test_what_is_in_it_is_taken_away(serving, place, what, how):
    daemon, account = serving(), Account()
    with daemon.connect() as wire:
        account.open(wire)
        account.insist(wire, count=5)
        take_away(daemon.relay("a") / what, how, place / "aside")
        refused = account.record(wire)
        assert (refused["code"], refused["retryable"]) == ("relay_removed", False)
        if how == "moved":
            (place / "aside").rename(daemon.relay("a") / what)
        else:
            shutil.rmtree(place / "aside") if what == "journal" else (place / "aside").unlink()
        account.insist(wire)
    assert not trouble(daemon)
    settle(daemon, account)


@pytest.mark.parametrize(
    ("what", "how"),
    [
        ("state", "deleted"),
        ("state", "replaced by a copy"),
        ("state/relays", "moved"),
        ("state/relays", "replaced by nothing much"),
    ],
)
def test_the_state_directory_is_taken_away_under_load(serving, place, what, how):
    """It exits 74 by itself, and what it answered is where it was answered into."""
    daemon, account = serving(), Account()
    aside = place / "aside"
    with daemon.connect() as wire:
        account.open(wire)
        for _ in range(5):
            account.insist(wire)
        requests = [account.send(wire) for _ in range(5)]
        take_away(place / what, how, aside)
        began = time.monotonic()
        try:
            requests += [account.send(wire) for _ in range(20)]
            for request in requests:
                account.take(wire.answer(request))
        except OSError:
            pass
    codes = [refused["code"] for refused in account.refusals]
    assert not codes or codes[0] == "relay_removed", codes
    assert set(codes) <= {"relay_removed", "not_found", "unavailable", "shutting_down", "invalid_state"}, codes
    assert daemon.wait() == 74
    assert time.monotonic() - began < 5
    assert daemon.said("state_directory_gone")
    assert not daemon.socket.exists()
    if how == "deleted":
        assert not (place / what).exists(), "nothing recreates it"
        return
    relay = aside / ("relays/a" if what == "state" else "a")
    assert check("a", read_relay(relay), [account.said]).answered == account.answered
