"""A daemon in memory under virtual time, and real ones in processes of their own."""

import pytest
import trio.testing
from support.daemon import Daemon, short_place
from support.inside import inside


@pytest.fixture
def place():
    """A directory with a short path."""
    with short_place() as path:
        yield path


@pytest.fixture
async def daemon(place):
    """A daemon in memory: no threads, no sockets, no real time."""
    async with inside(place) as running:
        yield running


@pytest.fixture
def process(place):
    """Starts real daemons, all on the same place unless told otherwise; they are gone at the end."""
    made = []

    def start(where=None, **settings):
        made.append(Daemon(place if where is None else where, **settings))
        return made[-1].start()

    yield start
    for each in made:
        each.end()


@pytest.fixture
def settle():
    """Everything that can go on without time has gone on."""
    return trio.testing.wait_all_tasks_blocked
