"""What importing costs: commands that only ask must start fast."""

import subprocess
import sys

import pytest

import relayd
from relayd.protocol import errors

HEAVY = ("anyio", "trio", "asyncio", "structlog", "click", "zstandard")


def loaded_by(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split())


def test_importing_relayd_loads_nothing_else_of_it():
    modules = loaded_by("import relayd")
    assert {name for name in modules if name.startswith("relayd")} == {"relayd", "relayd.version"}
    assert "msgspec" not in modules


def test_the_synchronous_client_imports_no_event_loop():
    assert loaded_by("from relayd import Client").isdisjoint(HEAVY)


@pytest.mark.parametrize("name", [name for name in relayd.__all__ if name != "__version__"])
def test_every_name_offered_is_there(name):
    assert getattr(relayd, name) is not None
    assert name in dir(relayd)


def test_errors_is_the_tree():
    assert relayd.errors is errors


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        relayd.nothing  # noqa: B018
