"""Decides each call of a daemon that stops at its calls: counts it, names it, and plants faults (faults.py).

One thread decides for all threads of the daemon, so that there is one order and one counter. After a kill nothing more
is let go: what the process still does is what had begun.
"""

import heapq
import os
import select
import signal
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from chaos.calls import notify
from chaos.calls.faults import Delay, Fail, Fault, Kill, Short
from chaos.calls.names import Named, Names, write_some
from chaos.calls.notify import Stopped


class Called(NamedTuple):
    """One counted call. `inode` of the open file it was for, `size` of a write, `fault` that it met."""

    name: str
    inode: int | None
    size: int | None
    fault: Fault | None

    def __str__(self) -> str:
        return self.name


class _Planted:
    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.count = 0

    def meets(self, name: str) -> bool:
        at = self.fault.at
        if not at.names(name):
            return False
        self.count += 1
        return self.count == at.nth or (at.forever and self.count > at.nth)


class Supervisor:
    """`log` is every counted call since the start, in order; `met`: a fault has happened."""

    def __init__(self, pid: int, listener: int, place: Path, faults: Iterable[Fault] = ()) -> None:
        self.log: list[Called] = []
        self.met = threading.Event()
        self.killed = False
        self.failed: BaseException | None = None
        self._pid = pid
        self._listener = listener
        self._names = Names(pid, place)
        self._planted = [_Planted(fault) for fault in faults]
        self._lock = threading.Lock()
        self._delayed: list[tuple[float, int, Stopped]] = []
        self._thread = threading.Thread(target=self._run, name="supervisor", daemon=True)
        notify.wake_at_once(listener)
        self._thread.start()

    def plant(self, *faults: Fault) -> int:
        """Plants faults beside none, counted from now; gives how many calls there were before."""
        with self._lock:
            self._planted = [_Planted(fault) for fault in faults]
            self.met.clear()
            return len(self.log)

    def mend(self) -> None:
        """No fault from now on."""
        with self._lock:
            self._planted = []

    def names(self, since: int = 0) -> list[str]:
        """The calls' names."""
        return [call.name for call in self.log[since:]]

    def join(self) -> None:
        """Returns when the daemon is gone and all was decided."""
        self._thread.join(20)
        assert not self._thread.is_alive(), "the supervisor does not end"
        if self.failed is not None:
            raise self.failed

    # Its thread

    def _run(self) -> None:
        try:
            self._decide_all()
        except BaseException as error:  # noqa: BLE001 - `join` raises it, and the daemon must not wait for ever
            self.failed = error
            os.kill(self._pid, signal.SIGKILL)
        finally:
            os.close(self._listener)

    def _decide_all(self) -> None:
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        while not self.killed:
            for _, events in poll.poll(self._milliseconds_to_wait()):
                if events & select.POLLIN:
                    call = notify.receive(self._listener)
                    if call is not None:
                        self._decide(call)
                elif events & (select.POLLHUP | select.POLLERR):
                    return
            while self._delayed and self._delayed[0][0] <= time.monotonic():
                notify.go_on(self._listener, heapq.heappop(self._delayed)[2])

    def _milliseconds_to_wait(self) -> float | None:
        return max(0, (self._delayed[0][0] - time.monotonic()) * 1000) if self._delayed else None

    def _decide(self, call: Stopped) -> None:
        try:
            named = self._names.name(call)
        except OSError:
            # The process was killed by somebody else while its call was being looked at.
            named = None
        if named is None:
            notify.go_on(self._listener, call)
            return
        name = str(named)
        with self._lock:
            fault = next((one.fault for one in self._planted if one.meets(name)), None)
            self.log.append(Called(name, self._inode(call, named), named.size, fault))
        if fault is None:
            notify.go_on(self._listener, call)
            return
        self._inflict(fault, call, named)
        self.met.set()

    def _inode(self, call: Stopped, named: Named) -> int | None:
        if named.descriptor is None or named.word == "send":
            return None
        try:
            return os.stat(f"/proc/{call.tid}/fd/{named.descriptor}").st_ino  # noqa: PTH116 - asked at each call
        except OSError:
            return None

    def _inflict(self, fault: Fault, call: Stopped, named: Named) -> None:
        match fault:
            case Kill():
                self._kill()
            case Fail(errno=number):
                notify.fail(self._listener, call, number)
            case Short(taken=taken, kill=kill):
                assert named.descriptor is not None, f"{named} is no write"
                descriptor = notify.take_descriptor(self._pid, named.descriptor)
                try:
                    write_some(call, descriptor, taken)
                finally:
                    os.close(descriptor)
                if kill:
                    self._kill()
                else:
                    notify.give(self._listener, call, taken)
            case Delay(seconds=seconds):
                heapq.heappush(self._delayed, (time.monotonic() + seconds, call.id, call))

    def _kill(self) -> None:
        self.killed = True
        os.kill(self._pid, signal.SIGKILL)
