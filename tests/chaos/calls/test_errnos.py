"""An errno at any file call of the daemon: a typed outcome, no traceback, and service is back when the fault is gone.

Each test tries some of the calls of one course of things, with the errnos that are legal there; long.py tries all.
"""

import pytest
from chaos.calls.errnos import calls_of, trials_of, try_it
from chaos.calls.outcomes import judge
from chaos.calls.tries import each

SAMPLES = {"serve": 11, "open": 11, "make": 5, "delete": 4, "stop": 2}


@pytest.mark.parametrize("course", SAMPLES)
def test_a_call_that_fails_has_the_one_outcome_of_its_rule_and_service_comes_back(zygote, course):
    trials = trials_of(course, calls_of(zygote, course))
    assert len(trials) > 5 * SAMPLES[course]
    chosen = trials[3 :: len(trials) // SAMPLES[course]]
    outcomes = each(lambda trial: try_it(zygote, trial), chosen)
    for trial, outcome in zip(chosen, outcomes, strict=True):
        judge(trial, outcome)
    assert sum(outcome is not None for outcome in outcomes) > 0.7 * len(chosen), "few of the calls came again"
