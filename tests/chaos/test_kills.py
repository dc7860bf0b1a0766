import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from chaos.kills import run_campaign


def test_killed_at_random_moments_under_load_nothing_answered_is_lost_or_done_twice():
    """A short campaign of tests/chaos/kills.py; tests/chaos/RESULTS.md has a long one."""
    result = run_campaign(kills=12, seed=20)
    kept, read, short = result.relays
    assert result.while_opening
    assert result.rewritten
    assert result.sources["snapshot"]
    assert kept.answered > 100
    assert kept.sealed
    assert read.collected
    assert short.collected
    assert sum(one.duplicates for one in result.relays) > 2
