"""Random histories of the command lane against the naive model: every answer and every event, through every crash."""

from collections import Counter
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.lane_machine import Machine

SEEDS = range(40)


def live(chance, steps):
    machine = Machine(chance, steps=steps)
    machine.run()
    return machine.counts


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(chance=st.randoms(use_true_random=False))
def test_every_answer_and_every_event_is_the_models_in_a_drawn_history(chance):
    live(chance, 40)


@pytest.mark.parametrize("seed", range(100, 120))
def test_every_answer_and_every_event_is_the_models_in_a_long_history(seed):
    live(Random(seed), 90)


def test_histories_come_by_every_kind_of_answer():
    """The counterproof: what never happens proves nothing."""
    seen = Counter()
    for seed in SEEDS:
        seen.update(live(Random(seed), 90))
    codes = ["cancelled", "conflict", "forbidden", "invalid_request", "invalid_state", "not_found", "overloaded"]
    for what in (*codes, "storage_failed", "timeout"):
        assert seen[f"answer error {what}"], what
    for what in ("accepted", "claimed", "command", "finished", "recorded"):
        assert seen[f"answer {what}"] > len(SEEDS), what
    assert seen["deaths"] > len(SEEDS)
    assert seen["power cuts"] > len(SEEDS)
    assert seen["failed syncs met"]
