"""Immutable file, wrong owner or mode, a link or fifo in place of a file: a typed outcome, and no busy loop."""

import contextlib
import itertools
import os
import shutil
import subprocess

import pytest
from chaos.environment.account import Account, settle, trouble
from chaos.environment.mounts import needs_root
from chaos.environment.room import is_quiet
from chaos.environment.users import NOBODY
from support.daemon import until

_numbers = itertools.count()
PUT = ("link", "fifo", "directory")
NOT_OPEN, OPEN, NO_RECORDING = "unavailable", "opens", "reads, and no recording"
OUTCOMES = {
    "snapshot": NOT_OPEN, "snapshot.previous": NOT_OPEN, "acknowledged": NOT_OPEN, "watermark": NOT_OPEN,
    "journal": NOT_OPEN, "journal/active.log": NOT_OPEN, "journal/sealed": NOT_OPEN, "quarantine": NOT_OPEN,
    "seed": OPEN, "idle": OPEN, "snapshot.new": OPEN, "acknowledged.new": OPEN, "probe.new": OPEN,
    "journal/active.log.new": OPEN,
}  # fmt: skip
"""What becomes of a relay in which something else stands at this place. (A seed is not read beside a snapshot.)"""
OF_DIRECTORIES = {"quarantine": OPEN, "idle": NO_RECORDING, "journal/active.log.new": NO_RECORDING}
"""Where a directory is another matter: it belongs there, or it stands in the way of a file and is not removed."""


def put(what, path):
    """Moves what is there aside, out of the relay, and puts something else at its place."""
    aside = next(parent for parent in path.parents if parent.name == "relays").parent / f"aside-{next(_numbers)}"
    if path.exists():
        path.rename(aside)
    match what:
        case "link":
            path.symlink_to(aside)
        case "fifo":
            os.mkfifo(path)
        case "directory":
            path.mkdir()
    return path, aside


def put_back(path, aside):
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    if os.path.lexists(aside):
        aside.rename(path)


def refusal(wire, op, relay, **fields):
    answer = wire.call(op, relay=relay, **fields)
    assert answer["re"] == "error", answer
    return answer


def test_a_link_a_fifo_or_a_directory_in_place_of_each_file(serving):
    """Nothing is opened through it, nobody waits for a fifo's other end, and once it is gone the relay serves again."""
    daemon = serving(segment_bytes=4096, snapshot_events=4, idle_relay=0.3)
    places = [place for place in itertools.product(OUTCOMES, PUT) if place != ("journal", "directory")]
    accounts = {(file, what): Account(f"r{at}") for at, (file, what) in enumerate(places)}
    with daemon.connect() as wire:
        for account in accounts.values():
            account.open(wire)
            for _ in range(6):
                account.insist(wire, size=1500)
            latest = wire.done("status", relay=account.relay)["latest"]
            wire.done("acknowledge", relay=account.relay, through=latest)
        until(lambda: all((daemon.relay(a.relay) / "idle").exists() for a in accounts.values()), 20, "they stay open")
        instead = {key: put(key[1], place_of(daemon, account, key[0])) for key, account in accounts.items()}
        for (file, what), account in accounts.items():
            outcome = OF_DIRECTORIES.get(file, OUTCOMES[file]) if what == "directory" else OUTCOMES[file]
            _expect(wire, account, outcome, (file, what))
        is_quiet(daemon)
        for path, aside in instead.values():
            put_back(path, aside)
        are_served_again(wire, accounts.values())
    assert not trouble(daemon)
    settle(daemon, *accounts.values())


def are_served_again(wire, accounts):
    """The fault is gone: within seconds, and without anybody's help, all of them are recorded for."""
    for account in accounts:
        until(lambda at=account: at.record(wire)["re"] == "recorded", 10, f"{account.relay} is not served again")
        account.insist(wire)


def place_of(daemon, account, file):
    relay = daemon.relay(account.relay)
    return min((relay / "journal").glob("*.zst")) if file == "journal/sealed" else relay / file


def _expect(wire, account, outcome, what):
    if outcome == NOT_OPEN:
        for op, fields in {"open": {}, "status": {}, "record": {"events": [["x"]]}}.items():
            refused = refusal(wire, op, account.relay, **fields)
            assert refused["code"] == "unavailable", (what, refused)
            assert account.relay in refused["detail"]["file"], (what, refused)
        return
    account.read(wire)
    if outcome == NO_RECORDING:
        refused = refusal(wire, "record", account.relay, events=[["x", bytes(5000)]])
        assert (refused["code"], refused["retryable"]) == ("storage_failed", True), (what, refused)
    else:
        account.insist(wire)


# Immutable, append-only


def change(path, flag):
    done = subprocess.run(["chattr", flag, path], capture_output=True, text=True, check=False)
    if done.returncode and flag.startswith("+"):
        pytest.skip(f"makes files immutable: {done.stderr.strip()}")


@contextlib.contextmanager
def changed(path, flag):
    change(path, "+" + flag)
    try:
        yield
    finally:
        change(path, "-" + flag)


FLAGS = {
    ("journal/active.log", "i"): {"storage_failed", "unavailable"},
    ("journal/active.log", "a"): {"storage_failed", "unavailable"},
    ("journal", "i"): {"storage_failed"},
    ("watermark", "i"): set(),
    ("snapshot", "i"): set(),
    ("", "i"): set(),
}
"""What whoever records is told; nothing where only side work is touched."""


@needs_root
def test_an_immutable_or_append_only_file(serving):
    """Typed for whoever records, nobody else is troubled, and service is back by itself within seconds."""
    daemon, other = serving(segment_bytes=16_384, snapshot_events=10), Account("other")
    accounts = {key: Account(f"r{at}") for at, key in enumerate(FLAGS)}
    with daemon.connect() as wire, contextlib.ExitStack() as flags:
        other.open(wire)
        for (file, flag), account in accounts.items():
            account.open(wire)
            for _ in range(12):
                account.insist(wire)
            until((daemon.relay(account.relay) / "snapshot").exists, 5, "there is no snapshot")
            flags.enter_context(changed(daemon.relay(account.relay) / file, flag))
        for key, account in accounts.items():
            for _ in range(12):
                account.record(wire, size=2500)
            assert {refused["code"] for refused in account.refusals} == FLAGS[key], key
            other.insist(wire)
        is_quiet(daemon)
        flags.close()
        are_served_again(wire, accounts.values())
    assert not trouble(daemon)
    settle(daemon, other, *accounts.values())


# Owner and mode


@needs_root
def test_another_users_file_is_not_opened(serving):
    daemon, accounts = serving(idle_relay=0.2), {}
    with daemon.connect() as wire:
        for at, file in enumerate(("snapshot", "journal/active.log", "journal", "")):
            account = accounts[file] = Account(f"r{at}").open(wire)
            account.insist(wire)
        for file, account in accounts.items():
            until((daemon.relay(account.relay) / "idle").exists, 5, "the relay is not closed")
            os.chown(daemon.relay(account.relay) / file, NOBODY, NOBODY)
            refused = refusal(wire, "open", account.relay)
            assert (refused["code"], refused["detail"]["reason"]) == ("unavailable", "storage_failed")
            assert str(NOBODY) in refused["message"]
        is_quiet(daemon)
        for file, account in accounts.items():
            os.chown(daemon.relay(account.relay) / file, 0, 0)
        are_served_again(wire, accounts.values())
    assert not trouble(daemon)
    settle(daemon, *accounts.values())


@needs_root
def test_a_mode_that_does_not_let_the_daemon_write(make, place):
    """The daemon is another user's, who may read and search everything and has no other right of root's."""
    os.chown(place, NOBODY, NOBODY)
    daemon, accounts = make(idle_relay=0.2, segment_bytes=4096), {}
    rights = "-all,+dac_read_search"
    daemon.prefix = [
        "setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", f"--inh-caps={rights}",
        f"--ambient-caps={rights}", "--", "env", "PYTHONDONTWRITEBYTECODE=1",
    ]  # fmt: skip
    daemon.start()
    with daemon.connect() as wire:
        for at, (file, mode) in enumerate({"journal/active.log": 0o400, "journal": 0o500, "": 0o500}.items()):
            account = accounts[file] = Account(f"r{at}").open(wire)
            account.insist(wire)
            until((daemon.relay(account.relay) / "idle").exists, 5, "the relay is not closed")
            (daemon.relay(account.relay) / file).chmod(mode)
            refused = [account.record(wire, size=5000) for _ in range(4)][-1]
            assert refused["code"] in ("unavailable", "storage_failed"), refused
            assert "Permission denied" in refused["message"]
        is_quiet(daemon)
        for file, account in accounts.items():
            (daemon.relay(account.relay) / file).chmod(0o700 if file != "journal/active.log" else 0o600)
        are_served_again(wire, accounts.values())
    assert not trouble(daemon)
    settle(daemon, *accounts.values())
