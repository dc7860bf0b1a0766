"""A daemon's life with a fault in it, and what has to be true afterwards (faults.md, I1 to I9)."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from pathlib import Path

from chaos.calls.faults import Fault
from chaos.calls.script import RELAYS, SETTINGS, Script, leftovers, quiet, script
from chaos.calls.stopping import StoppingDaemon, Zygote
from chaos.history import check, read_relay
from support.daemon import short_place, until

TYPED = frozenset({
    "append_failed", "write_failed", "relay_unavailable", "upkeep_failed", "watermark_failed", "probe_failed",
    "freeing_failed", "closing_snapshot_failed", "storage_failed", "eviction_digest_unreadable", "accept_failed",
    "listing_failed", "state_directory_unseen",
})  # fmt: skip
"""What the log says of a disk that fails."""
DESCRIPTORS_SECONDS = 3.0


@contextlib.contextmanager
def life(zygote: Zygote, *, reads: bool = False, **settings: object) -> Iterator[tuple[StoppingDaemon, Script]]:
    """A daemon that has not started and its clients, in a place of their own; gone at the end."""
    with short_place() as place:
        daemon = StoppingDaemon(zygote, place, reads=reads, **(SETTINGS | settings))
        with script(daemon.socket) as clients:
            try:
                yield daemon, clients
            finally:
                daemon.end()


def begin(daemon: StoppingDaemon, clients: Script, *faults: Fault) -> int:
    """Starts it, makes the relays, and plants the faults; gives how many calls there were until then."""
    daemon.start()
    with daemon.connect() as wire:
        clients.make(wire)
    return daemon.supervisor.plant(*faults)


def until_quiet_or_killed(daemon: StoppingDaemon, seconds: float = 5) -> None:
    """Nothing is left to be done, or the daemon is gone."""
    until(
        lambda: not leftovers(daemon.state, rotated=True) or daemon.supervisor.killed,
        seconds,
        f"left over: {leftovers(daemon.state, rotated=True)}",
    )


def until_killed(daemon: StoppingDaemon, act: Callable[[], None]) -> bool:
    """Does `act`, which the kill that was planted may end; whether it did. Nothing else may have gone wrong before."""
    try:
        act()
    except OSError:
        assert daemon.supervisor.killed or not daemon.running, "a connection broke, and nobody was killed"
    if not daemon.supervisor.killed:
        return False
    daemon.wait()
    check_log(daemon, frozenset())
    return True


def check_log(daemon: StoppingDaemon, typed: frozenset[str] = TYPED) -> None:
    """No traceback, no bug; errors only of the events in `typed`."""
    for line in daemon.log:
        assert line.get("event") != "text", line["text"]
        assert "exception" not in line and "Traceback" not in str(line), line  # noqa: PT018 - one fact
        if line.get("level") in ("error", "critical", "warning"):
            assert line["event"] in typed, line


def ask_all(daemon: StoppingDaemon) -> dict[str, dict]:
    """What `status` says of each relay; opens it."""
    with daemon.connect() as wire:
        return {relay: wire.done("status", relay=relay) for relay in RELAYS}


def opens_all(daemon: StoppingDaemon) -> Callable[[], None]:
    """Everything that an opening does: in its own course, and what follows from it by itself."""

    def act() -> None:
        ask_all(daemon)
        until_quiet_or_killed(daemon)

    return act


def restart(daemon: StoppingDaemon) -> None:
    """Starts it again, without faults and at full speed."""
    daemon.start(stops=False)


def conclude(daemon: StoppingDaemon, clients: Script) -> None:
    """Service is back in a daemon that runs without faults: clients go on, and everything that is always true holds."""
    clients.leave()
    clients.again()
    for producer in clients.producers:
        producer.repeat()
    clients.serve(1)
    for reader in clients.readers:
        reader.read()
    clients.leave()
    until_untroubled(daemon)
    quiet(daemon.state)
    check_resources(daemon)
    assert daemon.stop() == 0
    check_disk(daemon, clients)


def until_untroubled(daemon: StoppingDaemon) -> None:
    """What failed in the background is tried again after a second or two, and then `status` says nothing of it."""
    with daemon.connect() as wire:
        ask = lambda: [wire.done("status", relay=relay).get("trouble") for relay in RELAYS]  # noqa: E731
        until(lambda: not any(ask()), 5, f"still in trouble: {ask()}")


def check_disk(daemon: StoppingDaemon, clients: Script) -> None:
    """I1 to I6 of what is on disk; the daemon has stopped."""
    for client in clients.clients:
        assert not client.said.wrong, f"{client.name}: {client.said.wrong[:3]}"
    for relay in RELAYS:
        check(relay, read_relay(daemon.relay(relay)), clients.said(relay))


THREADS_MAX = 12
"""What Trio's pool and the work of three relays come to, and some that have not ended yet."""


def check_resources(daemon: StoppingDaemon) -> None:
    """I9: no descriptor is left over from what failed, no thread. Nobody is connected."""
    expected = idle_descriptors(daemon.zygote)
    until(
        lambda: daemon.descriptors == expected,
        DESCRIPTORS_SECONDS,
        f"{daemon.descriptors} descriptors are open, not {expected}",
    )
    threads = sum(1 for _ in Path(f"/proc/{daemon.process.pid}/task").iterdir())
    assert threads <= THREADS_MAX, f"{threads} threads"


@functools.cache
def idle_descriptors(zygote: Zygote) -> int:
    """How many an undisturbed daemon has in which all relays are open and were written to, and nobody is connected."""
    with life(zygote) as (daemon, clients):
        begin(daemon, clients)
        clients.serve()
        clients.leave()
        quiet(daemon.state)
        counts = [0]
        until(lambda: counts.append(daemon.descriptors) or counts[-5:] == counts[-1:] * 5, 5, "descriptors come and go")
        return counts[-1]
