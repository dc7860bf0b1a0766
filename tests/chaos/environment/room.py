"""What holds of a relay while there is no room, and of a daemon that can do nothing about it."""

import contextlib
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from support.daemon import Daemon, until


def leftovers_by_kind(relay):
    """Unfinished files, by what they are to become: at most one of each."""
    names = [path.name for path in relay.rglob("*.new")]
    kinds = ["sealed" if name.endswith(".zst.new") else name for name in names]
    assert len(kinds) == len(set(kinds)), f"more than one unfinished file of a kind: {names}"
    return kinds


def until_full(wire, account, size):
    """Records until there is no room, and says so each time it is tried again.

    Side work may free some once more: what is sealed takes less.
    """
    refusals = 0
    for _ in range(20_000):
        answer = account.record(wire, size=size)
        if answer["re"] != "error":
            refusals = 0
            continue
        assert (answer["code"], answer["retryable"]) == ("storage_full", True), answer
        refusals += 1
        if refusals == 4:
            return
    raise AssertionError("it does not fill")


def serves_readers(wire, account):
    """All that was answered is read; what is not answered as done is not."""
    account.read(wire)
    status = wire.done("status", relay=account.relay)
    assert status["latest"][0] - 1 == account.answered
    assert "room" in status["trouble"]
    assert wire.done("open", relay=account.relay)["latest"] == status["latest"]
    assert wire.done("relays")["relays"][0]["relay"] == account.relay


def is_quiet(daemon):
    """No busy loop while nothing can be done."""
    cpu = daemon.cpu_seconds
    time.sleep(0.3)
    assert daemon.cpu_seconds - cpu < 0.15


@contextlib.contextmanager
def standing_still(daemon: Daemon) -> Iterator[None]:
    """The daemon does nothing meanwhile: it is stopped, and goes on afterwards."""
    daemon.signal(signal.SIGSTOP)
    until(lambda: state_of(daemon) == "T", 5, "it does not stop")
    try:
        yield
    finally:
        daemon.signal(signal.SIGCONT)


def state_of(daemon: Daemon) -> str:
    """As the kernel has it: T for stopped."""
    return Path(f"/proc/{daemon.process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
