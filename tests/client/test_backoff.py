import pytest

from relayd.client import backoff
from relayd.client.backoff import Backoff

NEXT_SECONDS = Backoff.next_seconds


@pytest.fixture(autouse=True)
def real(quick, monkeypatch):
    monkeypatch.setattr(Backoff, "next_seconds", NEXT_SECONDS)


def test_waits_double_to_the_bound():
    waits = Backoff(chance=lambda: 1.0)
    assert [waits.next_seconds() for _ in range(9)] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]


def test_jitter_takes_away_up_to_half():
    waits = Backoff(first_seconds=1.0, seconds_max=1.0, chance=iter([0.0, 0.5, 1.0]).__next__)
    assert [waits.next_seconds() for _ in range(3)] == [0.5, 0.75, 1.0]


def test_success_begins_anew():
    waits = Backoff(chance=lambda: 1.0)
    waits.next_seconds()
    waits.next_seconds()
    waits.reset()
    assert waits.next_seconds() == backoff.FIRST_SECONDS
