import sys
from pathlib import Path

import anyio
import pytest

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
