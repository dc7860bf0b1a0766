"""The hardships of this room with chance in them; each is one history: lived through, then proven (I1 to I6).

A hardship is given a place of its own and a source of chance, and says what it covered, by what is to be counted.
"""

import contextlib
import resource
import shutil
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from chaos.environment.account import Account, trouble
from chaos.environment.cgroup import MIB, memory_limit
from chaos.environment.crowd import ask_and_take_nothing, crowd
from chaos.environment.mounts import KIB, tmpfs
from chaos.environment.room import is_quiet, leftovers_by_kind, serves_readers, standing_still, until_full
from chaos.environment.working import at_work, get_on
from chaos.history import check, read_relay
from support.daemon import Daemon, until

RESUMES_SECONDS = 15
CAP = 96 * MIB
Counts = dict[str, int]


@contextlib.contextmanager
def _serving(place: Path, *prefix: str, **settings: object):
    daemon = Daemon(place, **settings)
    daemon.prefix = list(prefix)
    try:
        yield daemon.start()
    finally:
        daemon.end()


def _prove(daemon: Daemon, accounts: list[Account]) -> None:
    """Started again without limits, each sends what is left and repeats all of it; then the files are read."""
    assert not trouble(daemon), trouble(daemon)
    daemon.end()
    daemon.prefix = []
    daemon.start()
    with daemon.connect() as wire:
        for account in accounts:
            account.insist(wire)
            account.repeat(wire)
    daemon.kill()
    check("a", read_relay(daemon.relay("a")), [account.said for account in accounts])


def _small(chance: Random) -> dict[str, int]:
    """Settings with which everything happens often."""
    return {
        "segment_bytes": chance.choice((4, 16, 64, 256)) * KIB,
        "snapshot_bytes": chance.choice((8, 32, 128)) * KIB,
        "snapshot_events": chance.choice((10, 50, 1000)),
    }


def full(place: Path, chance: Random) -> Counts:
    """A tmpfs filled up to a byte of chance."""
    with tmpfs(place / "state", "size=4m") as mount, _serving(place, **_small(chance)) as daemon:
        account = Account(seed=chance.randrange(1 << 30))
        with daemon.connect() as wire:
            account.open(wire)
            account.insist(wire)
            mount.fill(chance.randrange(chance.choice((4 * KIB, 64 * KIB, 512 * KIB))))
            until_full(wire, account, chance.choice((50, 500, 5000, 60_000)))
            serves_readers(wire, account)
            is_quiet(daemon)
            leftovers_by_kind(daemon.relay("a"))
            killed = chance.random() < 0.5
        if killed:
            daemon.kill()
            daemon.start()
        mount.free()
        with daemon.connect() as wire:
            account.insist(wire, seconds=RESUMES_SECONDS)
            until(
                lambda: wire.done("status", relay="a").get("trouble") is None, RESUMES_SECONDS, "side work is not done"
            )
            until(lambda: not leftovers_by_kind(daemon.relay("a")), 5, "something unfinished is left")
        _prove(daemon, [account])
    return {"fill levels": 1, "of them killed while full": int(killed)}


def resized(place: Path, chance: Random) -> Counts:
    """A tmpfs shrunk, grown, filled and freed at random moments under load."""
    changes = 0
    with tmpfs(place / "state", "size=6m") as mount, _serving(place, **_small(chance)) as daemon:
        with at_work(daemon, str(chance.random()), size_max=4000) as workers:
            for _ in range(chance.randrange(3, 10)):
                time.sleep(chance.uniform(0, 0.4))
                with contextlib.suppress(OSError):
                    # Another has taken the room meanwhile: then it is not shrunk, this time.
                    mount.remount(f"size={mount.used_bytes // KIB + 4 * chance.randrange(1, 200)}k")
                    changes += 1
            mount.remount("size=256m")
            get_on(workers, RESUMES_SECONDS)
        _prove(daemon, [worker.account for worker in workers])
    return {"sizes under load": changes}


def few_descriptors(place: Path, chance: Random) -> Counts:
    """A limit on descriptors of any size, used up by clients."""
    limit = chance.randrange(48, 300)
    with _serving(place, "prlimit", f"--nofile={limit}:{limit}", **_small(chance)) as daemon:
        account = Account(seed=limit)
        with daemon.connect() as wire, contextlib.ExitStack() as stack:
            account.open(wire, retention="acknowledged")
            clients = []
            for _ in range(limit + 20):
                clients.append(stack.enter_context(socket.socket(socket.AF_UNIX)))
                clients[-1].connect(str(daemon.socket))
            daemon.until_said("accept_failed")
            for _ in range(40):
                account.insist(wire, size=chance.randrange(4000))
                if chance.random() < 0.2:
                    wire.done("acknowledge", relay="a", through=wire.done("status", relay="a")["latest"])
            assert wire.done("status", relay="a").get("trouble") is None
            used = daemon.descriptors
            for client in clients:
                client.close()
            until(lambda: daemon.descriptors < used - 10, 5, "descriptors are not given back")
            with daemon.connect() as newcomer:
                newcomer.done("relays")
        _prove(daemon, [account])
    return {"limits on descriptors": 1}


def told_to_stop(place: Path, chance: Random) -> Counts:
    """SIGTERM at random moments under load, and a start after each."""
    times = chance.randrange(1, 5)
    with _serving(place, **_small(chance)) as daemon:
        with at_work(daemon, str(chance.random()), count=4) as workers:
            for _ in range(times):
                time.sleep(chance.uniform(0, 0.5))
                began = time.monotonic()
                assert daemon.stop() == 0
                assert time.monotonic() - began < 5, "it takes longer than 5 s to stop"
                assert not daemon.said("drain_cut_short")
                assert not trouble(daemon)
                daemon.start()
        _prove(daemon, [worker.account for worker in workers])
    return {"SIGTERMs under load": times}


def stopped(place: Path, chance: Random, seconds: float = 2.0) -> Counts:
    """SIGSTOP under load for a while, then SIGCONT."""
    with _serving(place, **_small(chance)) as daemon:
        with at_work(daemon, str(chance.random())) as workers:
            time.sleep(chance.uniform(0, 0.3))
            daemon.signal(signal.SIGSTOP)
            time.sleep(seconds)
            daemon.signal(signal.SIGCONT)
            get_on(workers, 5)
        told = [line for line in daemon.log if line.get("level") in ("warning", "error", "critical")]
        assert not told, told
        _prove(daemon, [worker.account for worker in workers])
    return {"seconds of SIGSTOP": round(seconds)}


def stopped_for_a_minute(place: Path, chance: Random) -> Counts:
    return stopped(place, chance, 60.0)


def slow_readers(place: Path, chance: Random) -> Counts:
    """1,000 readers that take nothing, with 96 MiB."""
    size = chance.randrange(200, 2000)
    account = Account(seed=size)
    with memory_limit(CAP) as limit, _serving(place, *limit.enter, segment_bytes=4 * MIB) as daemon:
        with daemon.connect() as wire:
            account.open(wire)
            count = 16 * MIB // size
            for _ in range(0, count, 200):
                account.insist(wire, size=size, count=200)
            highest: list[int] = []
            for _ in range(3):
                with crowd(daemon, 1000) as lazy:
                    ask_and_take_nothing(lazy, "a", count // 2)
                    account.insist(wire)
                    highest.append(limit.held)
                account.insist(wire)
            assert max(highest) < CAP, highest
            assert highest[-1] < highest[0] + 6 * MIB, f"memory of crowds that are gone is not used again: {highest}"
        assert limit.kills == 0
        assert daemon.stop() == 0
        _prove(daemon, [account])
    return {"crowds of 1,000 slow readers": len(highest)}


def short_of_size(place: Path, chance: Random) -> Counts:
    """A limit on the size of files that falls anywhere in a group."""
    with _serving(place, **_small(chance)) as daemon:
        account = Account(seed=chance.randrange(1 << 30))
        with daemon.connect() as wire:
            account.open(wire)
            account.insist(wire)
            active = daemon.relay("a") / "journal/active.log"
            before = active.read_bytes()
            hard = resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE)[1]
            limit = len(before) + chance.randrange(600)
            resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (limit, hard))
            assert account.record(wire, size=chance.randrange(600, 3000))["code"] == "storage_full"
            assert active.read_bytes() == before, "half a group is left"
            account.read(wire)
            resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (hard, hard))
            account.insist(wire, seconds=RESUMES_SECONDS)
        _prove(daemon, [account])
    return {"exact short writes": 1}


def taken_away(place: Path, chance: Random) -> Counts:
    """The relay's directory is moved away at a random moment, with requests on their way, and comes back."""
    with _serving(place, **_small(chance)) as daemon:
        account = Account(seed=chance.randrange(1 << 30))
        with daemon.connect() as wire:
            account.open(wire)
            requests = [account.send(wire, chance.randrange(2000)) for _ in range(200)]
            time.sleep(chance.uniform(0, 0.1))
            copied = chance.random() < 0.5
            if copied:
                # A copy of what is being written to would be whatever it is.
                while requests:
                    account.take(wire.answer(requests.pop(0)))
            with standing_still(daemon):
                daemon.relay("a").rename(place / "aside")
                if copied:
                    shutil.copytree(place / "aside", daemon.relay("a"))
            if copied:
                requests = [account.send(wire, chance.randrange(2000)) for _ in range(50)]
            for request in requests:
                account.take(wire.answer(request))
            codes = {refused["code"] for refused in account.refusals}
            assert codes <= {"relay_removed", "not_found", "invalid_state", "unavailable"}, codes
            held = check("a", read_relay(place / "aside"), [account.said])
            assert held.answered == len(account.said.answered)
            if copied:
                shutil.rmtree(daemon.relay("a"))
            (place / "aside").rename(daemon.relay("a"))
            # Where the copy had been opened meanwhile, it is the next that is found removed.
            until(lambda: account.record(wire)["re"] == "recorded", RESUMES_SECONDS, "it is not served again")
            account.insist(wire)
        _prove(daemon, [account])
    return {"directories taken away": 1}


HARDSHIPS: dict[str, Callable[[Path, Random], Counts]] = {
    hardship.__name__: hardship
    for hardship in (
        full, resized, few_descriptors, told_to_stop, stopped, stopped_for_a_minute, slow_readers, short_of_size,
        taken_away,
    )
}  # fmt: skip
SHARES = {
    "full": 6, "resized": 4, "few_descriptors": 4, "told_to_stop": 5, "short_of_size": 4, "taken_away": 4, "stopped": 1,
    "slow_readers": 1,
}  # fmt: skip
"""How often each is drawn; the minute comes once in a run."""
NEEDS_ROOT = {"full", "resized", "slow_readers"}
