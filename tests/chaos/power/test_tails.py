"""An unanswered group of which any pages reached the disk: the relay opens, without it or with all of it."""

import pytest
from chaos.power.machine import LOG_FLUSHED
from chaos.power.rounds import FLAGS
from chaos.power.station import a_station
from chaos.power.tails import DELAYED, ZEROED, Tail

PAGES = 4


@pytest.mark.parametrize("options", [DELAYED, ZEROED], ids=["delayed allocation", "sizes before data"])
@pytest.mark.parametrize("flag", FLAGS, ids=["log flushed", "nothing flushed"])
def test_a_group_of_which_any_pages_reached_the_disk_is_there_whole_or_not_at_all(options, flag):
    """Write reordering and zero tails: opens, never undecidable, cut to the group before."""
    # With nothing flushed, no size reaches the disk, and no set of pages differs from another.
    masks = range(1 << PAGES) if flag == LOG_FLUSHED else (0, 0b0101, 0b1111)
    outcomes = set()
    for mask in masks:
        with a_station(options=options) as station:
            outcomes.add(Tail(station, flag, mask, PAGES).check())
    assert outcomes == ({"whole", "torn", "clean"} if flag == LOG_FLUSHED else {"clean"})
