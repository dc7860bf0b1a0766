"""Real daemons in places that can be mounted, filled, limited and broken; all is given back at the end."""

import pytest
from support.daemon import Daemon, short_place


@pytest.fixture
def place():
    """A directory with a short path."""
    with short_place() as path:
        yield path


@pytest.fixture
def make(place):
    """Makes a daemon that is not started yet; whatever became of it, it is gone at the end."""
    made = []

    def make_daemon(where=None, **settings):
        made.append(Daemon(place if where is None else where, **settings))
        return made[-1]

    yield make_daemon
    for daemon in made:
        daemon.end()


@pytest.fixture
def serving(make):
    """Starts a daemon."""
    return lambda where=None, **settings: make(where, **settings).start()
