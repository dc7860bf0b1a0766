"""Whole relay directories damaged in several ways at once: what opening makes of each is what the judge says."""

from collections import Counter

import pytest
from chaos.at_rest.judge import judge
from chaos.at_rest.mutate import mutated
from chaos.at_rest.shapes import LASTS, SHAPES

SEED = 1
RELAYS = 2000


def test_opening_a_mutated_relay_gives_what_the_judge_says(relay):
    """Same outcome, same records; a refusal changes no byte, and a second opening is the same."""
    outcomes = Counter()
    for number in range(RELAYS):
        files, done = mutated(SEED, number)
        assert relay.put(files).differences() == [], f"seed {SEED}, number {number}: {done}"
        outcomes[getattr(judge(files), "code", "opens")] += 1
    assert outcomes.keys() == {
        "opens",
        "journal_corrupt",
        "journal_undecided",
        "journal_gap",
        "journal_conflict",
        "snapshot_lost",
        "snapshot_ahead",
        "snapshot_conflict",
    }
    assert min(outcomes.values()) >= 5, "every outcome is met often enough to mean something"


@pytest.mark.parametrize("shape", sorted(SHAPES))
def test_an_undamaged_relay_opens_whole_and_verify_finds_nothing(relay, shape):
    """What all damage here begins from."""
    files = SHAPES[shape]()
    assert relay.put(files).findings() == []
    expected = judge(files)
    assert (expected.last, expected.unreadable, expected.doubtful, expected.torn) == (LASTS[shape], set(), set(), 0)
    assert set(expected.records) == set(range(expected.base + 1, expected.last + 1))
    assert relay.differences() == []


def test_the_same_seed_and_number_give_the_same_relay():
    assert [mutated(3, number) for number in range(50)] == [mutated(3, number) for number in range(50)]
