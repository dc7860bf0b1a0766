"""SIGKILL at every call of opening (I7): opening is repeatable, and ends the same however often it was cut short."""

import pytest
from chaos.calls.faults import At
from chaos.calls.kills import BEFORE, Before, second_kill
from chaos.calls.tries import each

STRIDE = 12


@pytest.mark.parametrize("what", BEFORE)
def test_killed_at_any_call_of_opening_the_next_one_ends_in_the_same_state(zygote, tmp_path, what):
    before = Before(zygote, tmp_path, what, *BEFORE[what])
    # Each state begins at another call, so that all of them together miss few.
    first = 1 + list(BEFORE).index(what)
    killed_at = each(lambda nth: before.trial(At(nth=nth)), range(first, 70, STRIDE))
    assert len([name for name in killed_at if name is not None]) >= 3
    assert killed_at[-1] is None, "opening has more calls than are tried"


def test_killed_again_and_again_while_it_opens(zygote, tmp_path):
    what = "a torn group"
    before = Before(zygote, tmp_path, what, *BEFORE[what])
    killed_at = each(lambda nth: before.trial(At(nth=nth), second_kill(nth)), (5, 14, 23))
    assert None not in killed_at
