"""A kill at every call of making and of deleting a relay: there whole, or not there."""

import itertools

import pytest
from chaos.calls.faults import At
from chaos.calls.kills import COURSES, second_kill
from chaos.calls.tries import SIDE_BY_SIDE, each


@pytest.mark.parametrize("course", ["make", "delete"])
def test_killed_at_every_call_the_relay_is_there_whole_or_not_there(zygote, course):
    """Every second time the daemon is killed again while it starts."""
    trial = COURSES[course]
    killed_at = []
    for first in itertools.count(1, SIDE_BY_SIDE):
        numbers = range(first, first + SIDE_BY_SIDE)
        killed_at += each(
            lambda nth: trial(zygote, At(nth=nth), second_kill(nth) % 4 + 1 if nth % 2 else None), numbers
        )
        if None in killed_at:
            break
    names = killed_at[: killed_at.index(None)]
    assert len(names) >= 12
    relay = "one" if course == "make" else "kept"
    assert any(name.startswith("rename") and relay in name for name in names)
    assert "fsync state/relays" in names
    assert any(name == "send client" for name in names)
