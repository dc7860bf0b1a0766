"""A daemon in memory under virtual time, and real ones in processes of their own."""

import inspect
from pathlib import Path

import pytest
from support.daemon import Daemon, short_place
from support.inside import inside, run_virtually


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Asynchronous tests in this directory run under virtual time, but those that ask for `real_time`."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and inspect.iscoroutinefunction(item.obj) and "real_time" not in item.fixturenames:
            item.add_marker(pytest.mark.trio(run=run_virtually), append=False)


@pytest.fixture
def real_time():
    """This test has threads, which virtual time would run ahead of."""


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
