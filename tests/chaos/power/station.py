"""A daemon on a machine: started, cut off, started again."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from chaos.kills import SETTINGS
from chaos.power import machine as machines
from chaos.power import shim as shims
from chaos.power.forked import ForkedDaemon
from chaos.power.machine import Machine
from chaos.power.shim import Shim
from support.daemon import until


def why_not() -> str | None:
    """Why there can be none here; None where there can."""
    return machines.why_not() or shims.why_not()


class Cut(NamedTuple):
    """When the power goes, as Shim.stop_at takes it, and what is still flushed then."""

    call: int
    flag: int
    only: str = ""
    write_out: int = 0


class Station:
    """`machine` with a daemon whose state is on it; its socket is elsewhere, as /run is."""

    def __init__(self, place: Path, machine: Machine, **settings: object) -> None:
        self.machine = machine
        self.shim = Shim(place, machine.root)
        self.last_image = place / "last.ext4"
        state = machine.root / "state"
        self.daemon = ForkedDaemon(place, self.shim, state=state, **{**SETTINGS, **settings})

    def start(self) -> None:
        """Starts it, with nothing to happen to it."""
        self.shim.reset()
        self.daemon.start()

    def cut(self, flag: int) -> None:
        """The power is cut under the running daemon, and is back: the disk can be looked at, nothing runs.

        The daemon is stopped first, because it must not come to an answer any more when its disk is gone. It can: where
        it syncs at this very moment, the kernel sometimes tells it that all is well.
        """
        self._end_power(flag)
        self.back()

    def kill(self) -> None:
        """The process is gone, and the file system's memory stays."""
        self.daemon.kill()

    def cutting_at(self, cut: Cut, *, may_miss: bool = False) -> contextlib.AbstractContextManager[None]:
        """Within this, the power is cut at the call that `cut` says; after it, it is back as after `cut`."""
        return self._ending_at(cut, lambda: self._end_power(cut.flag), self.back, may_miss=may_miss)

    def killing_at(self, cut: Cut) -> contextlib.AbstractContextManager[None]:
        """Within this, the process is killed at the call that `cut` says."""
        return self._ending_at(cut, self.daemon.process_kill, self.daemon.end, may_miss=False)

    @contextlib.contextmanager
    def _ending_at(
        self, cut: Cut, end: Callable[[], None], then: Callable[[], None], *, may_miss: bool
    ) -> Iterator[None]:
        self.shim.stop_at(cut.call, only=cut.only, write_out=cut.write_out)
        over = threading.Event()

        def when_reached() -> None:
            # It may come to the call before this process knows its number.
            stopped = lambda: self.shim.reached and self.daemon.running  # noqa: E731
            until(lambda: stopped() or over.is_set(), 60, "the daemon does not come to the call")
            if stopped():
                end()

        with ThreadPoolExecutor(1) as pool:
            ending = pool.submit(when_reached)
            try:
                yield
            finally:
                over.set()
            ending.result()
        assert self.shim.reached or may_miss, f"the daemon did not come to the call: {self.daemon.log}"
        then()

    def _end_power(self, flag: int) -> None:
        self.daemon.freeze()
        self.machine.cut(flag)
        self.daemon.process_kill()

    def back(self) -> None:
        """After a cut; a copy of the disk as it is now is `last_image`."""
        self.daemon.end()
        self.machine.unmount()
        self.machine.copy_image(self.last_image)
        self.machine.mount()

    def relay(self, name: str) -> Path:
        return self.daemon.relay(name)

    def active(self, name: str) -> Path:
        return self.relay(name) / "journal/active.log"

    def close(self) -> None:
        self.daemon.end()


@contextlib.contextmanager
def a_station(kind: type[Machine] = Machine, *, options: str = "", **settings: object) -> Iterator[Station]:
    """One with an empty disk, nothing started; nothing of it stays."""
    with machines.a_place() as place:
        machine = kind(place, options=options)
        machine.make()
        station = Station(place, machine, **settings)
        try:
            yield station
        finally:
            station.close()
