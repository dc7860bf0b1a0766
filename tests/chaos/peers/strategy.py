"""The mutator's draws as a Hypothesis strategy: a stream that is answered wrongly is made as small as it can be."""

from hypothesis import strategies as st

draws = st.randoms(use_true_random=False)
"""For Mutator in place of a seeded Random."""
frames = st.integers(0, 6)
"""How many one connection sends: few, as more say nothing else."""
