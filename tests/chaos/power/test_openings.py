from collections import Counter

from chaos.power import rounds
from chaos.power.openings import Openings
from chaos.power.station import a_station


def test_an_opening_that_is_cut_off_at_any_call_twice_ends_in_the_same_state():
    """I7, with every fifth call here, and every one in tests/chaos/power/long.py."""
    covered = Counter()
    with a_station(**rounds.SETTINGS) as station:
        openings = Openings(station, 1, covered)
        call = 1
        while openings.cut_at(call):
            call += 5
    assert call > 30, "an opening of this disk has many calls"
    assert covered["openings cut"] >= 12
    assert sum(name.startswith("openings cut before") for name in covered) >= 4, "of several sorts"
