"""Killed at the n-th call, of which course of things: `serve`, `stop`, `open`, `make`, `delete`.

A trial kills once, or twice (the second time at a call of the opening that follows), starts the daemon again without
faults, and checks everything that has to be true then. It tells the name of the call that it was killed at; None where
the course ended before the n-th call: then every call has been tried.
"""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

from chaos.calls.faults import At, Kill, Short
from chaos.calls.life import (
    ask_all,
    begin,
    check_log,
    conclude,
    life,
    opens_all,
    restart,
    until_killed,
    until_quiet_or_killed,
)
from chaos.calls.script import RELAYS, Script, leftovers, quiet
from chaos.calls.stopping import StoppingDaemon, Zygote
from chaos.history import read_relay
from support.daemon import until

SECOND_KILLS_MAX = 60
LAST_CALL_SECONDS = 0.3


def trial_of_serving(zygote: Zygote, at: At, second: int | None = None) -> str | None:
    """Appending, rotating, sealing, snapshotting, collecting; every call until nothing is left to be done."""
    with life(zygote) as (daemon, clients):
        begin(daemon, clients, Kill(at))

        def act() -> None:
            clients.serve()
            until_quiet_or_killed(daemon)
            # The last collection leaves no name by which it could be seen to be due.
            daemon.supervisor.met.wait(LAST_CALL_SECONDS)

        return _trial(daemon, clients, act, second)


def trial_of_stopping(zygote: Zygote, at: At, second: int | None = None) -> str | None:
    """SIGTERM, and the calls until it has exited."""
    with life(zygote) as (daemon, clients):
        begin(daemon, clients)
        clients.serve(2)
        clients.leave()
        daemon.supervisor.plant(Kill(at))

        def act() -> None:
            daemon.process.terminate()
            daemon.process.wait(20)

        return _trial(daemon, clients, act, second)


def _trial(daemon: StoppingDaemon, clients: Script, act: Callable[[], None], second: int | None) -> str | None:
    if not until_killed(daemon, act):
        return None
    name = daemon.supervisor.log[-1].name
    if second is not None:
        kill_while_opening(daemon, At(nth=second))
    restart(daemon)
    check_log(daemon, frozenset())
    conclude(daemon, clients)
    return name


def kill_while_opening(daemon: StoppingDaemon, at: At) -> str | None:
    """Starts it and kills it at that call of what follows: the start, all openings, the work they leave over."""
    daemon.begin_with(Kill(at))

    def act() -> None:
        until(lambda: daemon.supervisor.killed or daemon.said("serving"), 20, "it does not serve")
        if not daemon.supervisor.killed:
            opens_all(daemon)()

    if not until_killed(daemon, act):
        daemon.kill()
        return None
    return daemon.supervisor.log[-1].name


def second_kill(nth: int) -> int:
    """A call of the opening for each n, by chance that is the same in each run."""
    return random.Random(nth).randint(1, SECOND_KILLS_MAX)


# Opening


class Before:
    """A state that a kill left behind, to be opened many times; `what` it holds."""

    def __init__(self, zygote: Zygote, place: Path, what: str, *faults: Kill | Short) -> None:
        self.what = what
        self._zygote = zygote
        self._kept = place / "kept"
        with life(zygote) as (daemon, clients):
            begin(daemon, clients, *faults)
            assert until_killed(daemon, clients.serve), f"{what}: not met"
            shutil.copytree(daemon.state, self._kept)
        self.records, self.status = self._open_undisturbed()

    def _open_undisturbed(self) -> tuple[dict, dict]:
        with life(self._zygote) as (daemon, _):
            shutil.copytree(self._kept, daemon.state)
            return self._look(daemon)

    def _look(self, daemon: StoppingDaemon) -> tuple[dict, dict]:
        """All records, and what `status` tells that a crash may not change."""
        restart(daemon)
        said = ask_all(daemon)
        until(lambda: not leftovers(daemon.state, rotated=True), 5, f"left over: {leftovers(daemon.state)}")
        check_log(daemon, frozenset())
        daemon.kill()
        assert not leftovers(daemon.state, rotated=True)
        records = {relay: read_relay(daemon.relay(relay)).records for relay in RELAYS}
        kept = (
            "store",
            "latest",
            "acknowledged",
            "retained",
            "evicted",
            "consumers",
            "last_event_at",
            "execution_since",
        )
        return records, {relay: {key: said[relay].get(key) for key in kept} for relay in RELAYS}

    def trial(self, at: At, second: int | None = None) -> str | None:
        """Opened, killed at a call of it, opened again: to the same state as if it had not been killed."""
        with life(self._zygote) as (daemon, _):
            shutil.copytree(self._kept, daemon.state)
            name = kill_while_opening(daemon, at)
            if name is None:
                return None
            if second is not None:
                kill_while_opening(daemon, At(nth=second))
            records, status = self._look(daemon)
            assert status == self.status, f"{self.what}: another state after a kill at {name}"
            for relay, expected in self.records.items():
                gone = max(status[relay]["retained"][0], status[relay]["evicted"][0])
                # What may be gone is collected now or later; all the rest is there, and the same.
                assert {at: one for at, one in records[relay].items() if at > gone} == {
                    at: one for at, one in expected.items() if at > gone
                }, f"{self.what}: {relay} has other records after a kill at {name}"
            return name


BEFORE: dict[str, tuple[Kill | Short, ...]] = {
    "a whole group that was not answered": (Kill(At("pwritev kept/watermark", 4)),),
    "a torn group": (Short(At("pwritev kept/journal/active.log", 6), taken=70, kill=True),),
    "no active.log": (Kill(At("rename kept/journal/active.log.new active.log", 2)),),
    "a rotated file to be sealed": (Kill(At("pwritev kept/journal/RANGE.log.zst.new", 2)),),
    "a rotated file beside its sealed copy": (Kill(At("unlink kept/journal/RANGE.log", 1)),),
    "an unfinished snapshot": (Kill(At("rename taken/snapshot.new snapshot", 2)),),
    "segments to be collected": (Kill(At("unlink taken/journal/RANGE.log.zst", 1)),),
    "an unfinished file of acknowledgements": (Kill(At("rename taken/acknowledged.new acknowledged", 2)),),
}
"""States to be opened, by what they hold, and the fault that leaves each of them."""


# Making and deleting


def trial_of_making(zygote: Zygote, at: At, second: int | None = None) -> str | None:
    """There whole, or not there; what was answered is there."""
    with life(zygote) as (daemon, _):
        daemon.start()
        answered: list[dict] = []
        with daemon.connect() as wire:
            daemon.supervisor.plant(Kill(at))
            if not until_killed(daemon, lambda: answered.append(wire.done("open", relay="one", create=True))):
                return None
        name = daemon.supervisor.log[-1].name
        if second is not None:
            kill_while_starting(daemon, At(nth=second))
        restart(daemon)
        with daemon.connect() as wire:
            check_no_unfinished_relay(daemon)
            there = [one["relay"] for one in wire.done("relays")["relays"]]
            assert there == ["one"] * daemon.relay("one").exists()
            assert there or not answered, f"it was answered as made, and is gone after a kill at {name}"
            if there:
                kinds = [one.kind for one in wire.read_all("one")]
                assert kinds == ["relay.created"], f"it is not there whole: {kinds}"
            else:
                assert wire.call("status", relay="one")["code"] == "not_found"
            opened = wire.done("open", relay="one", create=True)
            assert opened["created"] is not bool(there)
            assert wire.done("record", relay="one", events=[["work", 1]])["first"] == 2
        quiet(daemon.state)
        check_log(daemon, frozenset())
        return name


def trial_of_deleting(zygote: Zygote, at: At, second: int | None = None) -> str | None:
    """There whole, or not there; what was answered as deleted is not."""
    with life(zygote) as (daemon, clients):
        begin(daemon, clients)
        clients.serve(2)
        clients.leave()
        until_quiet_or_killed(daemon)
        before = {relay: _listed(daemon, relay) for relay in RELAYS}
        answered: list[dict] = []
        with daemon.connect() as wire:
            store = wire.done("open", relay="kept")["store"]
            daemon.supervisor.plant(Kill(at))

            def act() -> None:
                answered.append(wire.done("delete_relay", relay="kept", store=store))
                until_quiet_or_killed(daemon)

            if not until_killed(daemon, act):
                return None
        name = daemon.supervisor.log[-1].name
        if second is not None:
            kill_while_starting(daemon, At(nth=second))
        restart(daemon)
        check_no_unfinished_relay(daemon)
        with daemon.connect() as wire:
            there = "kept" in [one["relay"] for one in wire.done("relays")["relays"]]
            assert not (there and answered), f"it was answered as deleted, and is there after a kill at {name}"
            if not there:
                assert wire.call("status", relay="kept")["code"] == "not_found"
        for relay in RELAYS:
            if relay != "kept" or there:
                assert _listed(daemon, relay) == before[relay], f"{relay} is not whole after a kill at {name}"
        with daemon.connect() as wire:
            assert wire.done("open", relay="kept", create=True)["created"] is not there
        quiet(daemon.state)
        check_log(daemon, frozenset())
        return name


def check_no_unfinished_relay(daemon: StoppingDaemon) -> None:
    """What was being made or deleted is gone when it serves; a relay's own unfinished files, when it is open."""
    found = [one.name for one in (daemon.state / "relays").iterdir() if one.name.startswith(".")]
    assert not found, f"left over: {found}"


def kill_while_starting(daemon: StoppingDaemon, at: At) -> None:
    """Starts it and kills it at that call, or when it serves."""
    daemon.begin_with(Kill(at))
    until(lambda: daemon.supervisor.killed or daemon.said("serving"), 20, "it does not serve")
    daemon.kill()


def _listed(daemon: StoppingDaemon, relay: str) -> list[tuple[int, bytes]]:
    with daemon.connect() as wire:
        return [(one.ordinal, one.digest) for one in wire.read_all(relay)]


COURSES: dict[str, Callable[[Zygote, At, int | None], str | None]] = {
    "serve": trial_of_serving,
    "stop": trial_of_stopping,
    "make": trial_of_making,
    "delete": trial_of_deleting,
}
__all__ = ["BEFORE", "COURSES", "Before", "kill_while_opening", "second_kill"]
