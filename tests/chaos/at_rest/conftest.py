import pytest
from chaos.at_rest.relay import Relay, in_memory


@pytest.fixture
def relay():
    """A relay's directory, empty."""
    with in_memory() as place:
        yield Relay(place)
