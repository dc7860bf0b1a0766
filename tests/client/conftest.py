import sys
from pathlib import Path

import pytest

from relayd.client.backoff import Backoff

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
