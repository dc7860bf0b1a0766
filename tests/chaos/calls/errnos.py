"""Every file call of the daemon fails once, with each errno it may give, or for ever until the fault is taken away.

A trial tells which outcome it saw, in one of these words, and has checked that nothing else is wrong: the log has no
traceback, every answer is typed, service is back in the same process once the fault is gone, I1 to I6 and I9.

    answered         nobody was told: the work was tried again, or done in another way
    storage_full     who asked was told so, and it was served later; storage_failed: likewise
    unavailable      the relay did not open (`storage_failed`), and did when it was asked for again
    overloaded       no descriptor was free (`descriptors`), and it was served when there was one
    connection lost  the client's own connection was closed, nobody else's
    not started      the daemon said why in one line, and ended; the next start served
"""

import errno
import functools
from collections.abc import Callable, Iterable
from typing import NamedTuple

from chaos.calls.faults import At, Fail
from chaos.calls.life import begin, check_log, conclude, life, restart
from chaos.calls.script import RELAYS, RefusedError, Script, leftovers, quiet
from chaos.calls.stopping import StoppingDaemon, Zygote
from support.daemon import until

CODES = frozenset({"storage_full", "storage_failed", "unavailable", "overloaded"})
ERRNOS = {
    "pwritev": (errno.EIO, errno.ENOSPC, errno.EDQUOT),
    "write": (errno.EIO, errno.ENOSPC),
    "fdatasync": (errno.EIO, errno.ENOSPC, errno.EDQUOT),
    "fsync": (errno.EIO, errno.ENOSPC),
    "ftruncate": (errno.EIO, errno.EACCES),
    "rename": (errno.EIO, errno.ENOSPC, errno.EROFS, errno.EACCES),
    "unlink": (errno.EIO, errno.EROFS, errno.EACCES),
    "rmdir": (errno.EIO, errno.EROFS, errno.EACCES),
    "mkdir": (errno.EIO, errno.ENOSPC, errno.EROFS, errno.EACCES),
    "open create": (errno.EIO, errno.ENOSPC, errno.EMFILE, errno.EROFS, errno.EACCES),
    "open update": (errno.EIO, errno.EMFILE, errno.EROFS, errno.EACCES),
    "open read": (errno.EIO, errno.EMFILE, errno.EACCES),
    "open directory": (errno.EIO, errno.EMFILE, errno.EACCES),
    "pread": (errno.EIO,),
    "stat": (errno.EIO, errno.EACCES),
    "entries": (errno.EIO,),
    "flock": (errno.EIO,),
    "send": (errno.ECONNRESET, errno.EPIPE),
}
"""What a call may fail with."""


class Trial(NamedTuple):
    """`at` which call, with which errno, in the course of what: `serve`, `open`, `make`, `delete`, `stop`."""

    course: str
    at: At
    errno: int

    def __str__(self) -> str:
        return f"{self.course}: {errno.errorcode[self.errno]} at {self.at}"


def sort_of(name: str) -> str:
    """`open create` of `open create kept/snapshot.new`."""
    return " ".join(name.split(" ")[: 2 if name.startswith("open ") else 1])


def trials_of(course: str, names: list[str]) -> list[Trial]:
    """One for each name, and each errno that is legal there."""
    return [Trial(course, At(name), number) for name in dict.fromkeys(names) for number in ERRNOS[sort_of(name)]]


def QUIET() -> None:  # noqa: N802 - a mark in a list of steps
    """The step that waits until nothing is left to be done; under a fault that stays there is always something."""


def calls_of(zygote: Zygote, course: str) -> list[str]:
    """The names of a course's calls without a fault; of `open` those before it serves too."""
    with life(zygote, reads=True) as (daemon, clients):
        before = _prepare(daemon, clients, course)
        for step in _steps(daemon, clients, course):
            step()
        if course in ("serve", "open"):
            quiet(daemon.state)
        return daemon.supervisor.names(before)


def try_it(zygote: Zygote, trial: Trial) -> frozenset[str] | None:
    """The outcomes seen, one where it failed once; None where the call was never made."""
    with life(zygote, reads=True) as (daemon, clients):
        _prepare(daemon, clients, trial.course, Fail(trial.at, trial.errno))
        if trial.course == "open" and not daemon.running:
            return _not_started(daemon, clients)
        for step in _steps(daemon, clients, trial.course):
            if trial.at.forever and step is not QUIET:
                clients.attempt(step)
            elif not trial.at.forever:
                clients.insist(step if step is not QUIET else functools.partial(quiet, daemon.state))
        if not daemon.supervisor.met.is_set():
            return None
        daemon.supervisor.mend()
        seen = _outcomes(clients.refusals, clients.lost)
        assert len(seen) == 1 or trial.at.forever, f"one failure has several outcomes: {clients.refusals}"
        if trial.at.forever:
            _come_back(daemon, clients, trial.course)
        if trial.course in ("serve", "open"):
            conclude(daemon, clients)
        else:
            _after(daemon, clients, trial.course)
        check_log(daemon)
        return seen


def _come_back(daemon: StoppingDaemon, clients: Script, course: str) -> None:
    """Whatever failed for ever: without the fault everything asked is answered in a few seconds."""
    if course in ("serve", "open"):
        for client in clients.clients:
            clients.insist(client.again)
    elif course != "stop":
        for step in _steps(daemon, clients, course):
            clients.insist(step)


def _prepare(daemon: StoppingDaemon, clients: Script, course: str, *faults: Fail) -> int:
    """As it is when the course begins; gives how many calls there were until then."""
    if course == "open":
        _leave_to_be_mended(daemon, clients)
        daemon.begin_with(*faults)
        until(lambda: daemon.said("serving") or not daemon.running, 20, "it neither serves nor ends")
        return 0
    begin(daemon, clients)
    if course in ("stop", "delete"):
        clients.serve(2)
        clients.leave()
        quiet(daemon.state)
    if course == "delete":
        clients.store = clients.asker.ask("open", relay="kept")["store"]
    return daemon.supervisor.plant(*faults)


def _leave_to_be_mended(daemon: StoppingDaemon, clients: Script) -> None:
    """Killed after some rounds, with half a group at the end of `kept`."""
    daemon.start(stops=False)
    with daemon.connect() as wire:
        clients.make(wire)
    clients.serve(2)
    clients.leave()
    quiet(daemon.state)
    daemon.kill()
    with (daemon.relay("kept") / "journal" / "active.log").open("ab") as file:
        file.write(b"RLYG\1\0\0\0")


def _steps(daemon: StoppingDaemon, clients: Script, course: str) -> Iterable[Callable[[], object]]:
    ask = clients.asker.ask
    if course == "serve":
        yield from clients.steps(4)
        yield QUIET
    elif course == "open":
        yield from [functools.partial(ask, "status", relay=relay) for relay in RELAYS]
        yield from [client.again for client in clients.clients]
        yield QUIET
    elif course == "make":
        yield functools.partial(ask, "open", relay="one", create=True)
    elif course == "delete":
        yield functools.partial(_delete, clients)
        if not clients.refusals:
            # What it held is freed behind the answer; where that fails, the next start does it.
            freed = lambda: daemon.said("freeing_failed") or not leftovers(daemon.state)  # noqa: E731
            yield lambda: until(freed, 5, "it is not freed")
    else:
        yield lambda: check_equal(daemon.stop(), 0)


def _delete(clients: Script) -> None:
    """One that was refused, or whose answer was lost, may have been done."""
    before = bool(clients.refusals or clients.lost)
    try:
        clients.asker.ask("delete_relay", relay="kept", store=clients.store)
    except RefusedError as error:
        if not (before and error.response["code"] == "not_found"):
            raise
        clients.asker.refusals.pop()


def check_equal(found: object, expected: object) -> None:
    assert found == expected


def _not_started(daemon: StoppingDaemon, clients: Script) -> frozenset[str]:
    status = daemon.wait()
    assert status not in (0, 70), status
    said = [line["text"] for line in daemon.log if line["event"] == "text"]
    assert len(said) == 1, said
    assert said[0].startswith("relayd: "), said
    restart(daemon)
    conclude(daemon, clients)
    return frozenset({"not started"})


def _after(daemon: StoppingDaemon, clients: Script, course: str) -> None:
    """What making, deleting or stopping came to, now and after the next start."""
    clients.leave()
    if course != "stop":
        with daemon.connect() as wire:
            names = [one["relay"] for one in wire.done("relays")["relays"]]
            assert names == (["kept", "one", "short", "taken"] if course == "make" else ["short", "taken"])
        assert daemon.stop() == 0
    check_log(daemon)
    restart(daemon)
    with daemon.connect() as wire:
        again = [one["relay"] for one in wire.done("relays")["relays"]]
        assert course == "stop" or again == names
        if course == "make":
            assert [one.kind for one in wire.read_all("one")] == ["relay.created"]
    if course == "stop":
        conclude(daemon, clients)
    else:
        quiet(daemon.state)
        assert daemon.stop() == 0
        check_log(daemon)


def _outcomes(refusals: list[tuple[str, str, str]], lost: int) -> frozenset[str]:
    codes = {code for _, code, _ in refusals}
    assert codes <= CODES, f"untyped, or of another kind: {codes - CODES}"
    reasons = {reason for _, code, reason in refusals if code == "unavailable"}
    assert reasons <= {"storage_failed"}, reasons
    if lost:
        codes.add("connection lost")
    return frozenset(codes or {"answered"})
