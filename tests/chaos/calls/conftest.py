"""One zygote for all tests of this room."""

import pytest
from chaos.calls import notify
from chaos.calls.stopping import zygote as made


@pytest.fixture(scope="session")
def zygote():
    """What daemons are copies of."""
    reason = notify.unsupported()
    if reason is not None:
        pytest.skip(reason)
    with made() as started:
        yield started
