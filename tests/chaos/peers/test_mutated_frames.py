"""One million mutated frames (30,000 of them here): no untyped error in the log, and each has the one right answer.

What that is says chaos/peers/model.py by protocol.md alone; at the end every relay holds what was asked for rightly,
byte for byte, and nothing else. `python tests/chaos/peers/long.py` runs the million.
"""

import pytest
from chaos.peers.inside_batch import hostile
from chaos.peers.mutated import EPOCH_FRAMES, draw, run_epoch
from chaos.peers.mutator import BYTE_MUTATIONS, ENDINGS, FIELD_MUTATIONS, Mutator
from chaos.peers.strategy import draws, frames
from hypothesis import HealthCheck, given, settings
from support.daemon import short_place
from support.inside import run_virtually

SEED = 7


@pytest.mark.parametrize("epoch", range(15))
def test_each_mutated_frame_is_answered_as_protocol_md_says_and_nothing_else_is_stored(epoch):
    counts = run_epoch(SEED, epoch)
    assert counts.frames > EPOCH_FRAMES * 0.9
    assert counts.events > 50
    assert not {*FIELD_MUTATIONS, *BYTE_MUTATIONS} - counts.mutations.keys(), "each mutation was made"
    assert "internal" not in counts.outcomes


def test_every_way_to_end_a_stream_and_every_outcome_is_met():
    mutations, outcomes = set(), set()
    for epoch in range(15, 18):
        counts = run_epoch(SEED, epoch)
        mutations |= counts.mutations.keys()
        outcomes |= counts.outcomes.keys()
    assert ENDINGS.keys() <= mutations
    assert outcomes >= {
        "welcome", "relays", "opened", "done", "status", "recorded", "page", "acknowledged", "invalid_request",
        "hello_required", "invalid_state", "not_found", "already_exists", "desynchronized", "too_large", "timeout",
        "cancelled",
    }  # fmt: skip


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(draws, frames)
def test_a_stream_that_hypothesis_draws_is_answered_as_protocol_md_says(random, count):
    async def main():
        with short_place() as place:
            async with hostile(place) as target:
                mutator = Mutator(random, target.model)
                await target.good_client()
                await target.send(draw(mutator, count))
                await target.good_client()
                await target.everything_is_as_it_was_recorded()

    run_virtually(main)
