import re
import sys
from pathlib import Path

import anyio
import pytest
from support.daemon import running_daemon, short_place

from relayd.client.aclient import connect
from relayd.client.backoff import Backoff
from relayd.client.sync import Client

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Pauses are kept, and short."""
    monkeypatch.setattr(Backoff, "next_seconds", lambda _self: 0.0002)


@pytest.fixture
def daemon(tmp_path):
    from fake_daemon import FakeDaemon  # noqa: PLC0415 - found through the path above

    one = FakeDaemon(str(tmp_path / "s"))
    one.start()
    yield one
    one.stop()


@pytest.fixture(params=["trio", "asyncio"])
def backend(request):
    return request.param


@pytest.fixture(scope="module")
def served():
    """A real daemon, whose leases are short: a worker that is gone for two seconds has lost what it had."""
    with running_daemon(lease=2) as one:
        yield one


@pytest.fixture
def relay(request, served):
    """A relay of the test's own, with room for eight tasks at once."""
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower())[-60:].strip("-")
    with Client(str(served.socket)) as client:
        client.open(name, create=True, max_active=8)
    return name


@pytest.fixture
def way(served):
    """A way to it that loses what it is told to lose."""
    from cutting import Way  # noqa: PLC0415 - found through the path above

    with short_place() as place:
        one = Way(place / "s", served.socket)
        yield one
        one.close()


@pytest.fixture
def client(daemon):
    with Client(daemon.path, client="test") as one:
        yield one


@pytest.fixture
def run(daemon, backend):
    """Runs an async function with a connected client, within ten seconds."""

    def start(function, **settings):
        async def main():
            with anyio.fail_after(10):
                async with connect(daemon.path, **settings) as client:
                    return await function(client)

        return anyio.run(main, backend=backend)

    return start


@pytest.fixture
def run_served(served, backend):
    """Runs an async function with a controller's client, within thirty seconds."""

    def start(function):
        async def main():
            with anyio.fail_after(30):
                async with connect(str(served.socket)) as client:
                    return await function(client)

        return anyio.run(main, backend=backend)

    return start
