"""SIGKILL at calls of appending, rotating, sealing, snapshotting, collecting, stopping: open again, I1 to I6.

The nth calls are those of the whole life with a stride that meets each sort of call; long.py kills at every one.
"""

import pytest
from chaos.calls.faults import At
from chaos.calls.kills import second_kill, trial_of_serving, trial_of_stopping
from chaos.calls.life import begin, life, until_quiet_or_killed
from chaos.calls.tries import each

STRIDE = 4
SORTS = ("pwritev", "fdatasync", "fsync", "open create", "rename", "unlink", "send")


@pytest.fixture(scope="module")
def names(zygote):
    """The names of the whole life's calls."""
    with life(zygote) as (daemon, clients):
        before = begin(daemon, clients)
        clients.serve()
        until_quiet_or_killed(daemon)
        return sorted(set(daemon.supervisor.names(before)))


def test_killed_at_any_call_of_serving_everything_answered_is_there_once_and_nothing_is_left_over(zygote, names):
    chosen = [name for sort in SORTS for name in [one for one in names if one.startswith(sort)][::STRIDE]]
    assert len({name.split(" ")[0] for name in chosen}) == len(SORTS)
    killed_at = each(lambda name: trial_of_serving(zygote, At(name, 1)), chosen)
    assert [name for name, met in zip(chosen, killed_at, strict=True) if met != name] == []


@pytest.mark.parametrize("nth", [1, 2], ids=["before it", "after it"])
def test_killed_between_the_sync_and_the_answer_or_between_the_answer_and_the_next_request(zygote, nth):
    """What was not answered is there all the same, once; what was answered is there."""
    assert trial_of_serving(zygote, At("send client", 10 + nth)) == "send client"


def test_killed_again_at_a_call_of_the_opening_that_follows(zygote):
    numbers = range(20, 360, 60)
    killed_at = each(lambda nth: trial_of_serving(zygote, At(nth=nth), second_kill(nth)), numbers)
    assert None not in killed_at


def test_killed_at_any_call_of_a_clean_stop(zygote):
    killed_at = each(lambda nth: trial_of_stopping(zygote, At(nth=nth)), range(1, 60, 4))
    assert killed_at[0] is not None
    assert killed_at[-1] is None, "the stop has more calls than are tried"
