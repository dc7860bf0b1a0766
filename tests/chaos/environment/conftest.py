"""Real daemons in places that can be mounted, filled, limited and broken; all is given back at the end.

Those that are started without a prefix are copies of one process that has imported relayd already
(tests/chaos/calls/zygote.py): real processes all the same, some 300 ms sooner.
"""

import subprocess

import pytest
from chaos.calls.stopping import Copy, StoppingDaemon, zygote
from support.daemon import Daemon, short_place


class SoonDaemon(StoppingDaemon):
    """Stops at no call; as any daemon where it has a prefix."""

    def begin(self) -> subprocess.Popen | Copy:
        self._faults = None
        return super().begin()

    def start(self) -> "SoonDaemon":
        Daemon.start(self)
        return self

    def spawn(self, flags: list[str], environment: dict[str, str]) -> subprocess.Popen | Copy:
        return Daemon.spawn(self, flags, environment) if self.prefix else super().spawn(flags, environment)


@pytest.fixture(scope="session")
def imported():
    with zygote() as started:
        yield started


@pytest.fixture
def place():
    """A directory with a short path."""
    with short_place() as path:
        yield path


@pytest.fixture
def make(place, imported):
    """Makes a daemon that is not started yet; whatever became of it, it is gone at the end."""
    made = []

    def make_daemon(where=None, **settings):
        made.append(SoonDaemon(imported, place if where is None else where, **settings))
        return made[-1]

    yield make_daemon
    for daemon in made:
        daemon.end()


@pytest.fixture
def serving(make):
    """Starts a daemon."""
    return lambda where=None, **settings: make(where, **settings).start()
