"""What a person is told while a command waits: once, after a second, and that it goes on."""

import io
import sys

import pytest

from relayd.cli import waiting
from relayd.cli.waiting import Waits
from relayd.client.errors import ConnectionLostError, NotConnectedError
from relayd.protocol.errors import OverloadedError, StorageFullError


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(waiting.time, "monotonic", lambda: now[0])
    return now


def told(monkeypatch, clock, *troubles, stream=None, quiet=False):
    """What is said when the troubles come half a second apart."""
    stream = Terminal() if stream is None else stream
    monkeypatch.setattr(sys, "stderr", stream)
    waits = Waits(quiet=quiet)
    for trouble in troubles:
        waits(trouble)
        clock[0] += 0.5
    return stream.getvalue().splitlines()


GONE = NotConnectedError("x")
FULL = StorageFullError("x")


@pytest.mark.parametrize(
    ("troubles", "said"),
    [
        ([GONE, GONE, None], []),
        ([GONE] * 9 + [None], ["the daemon is gone; waiting, nothing is lost", "going on"]),
        ([ConnectionLostError("x"), GONE, GONE], ["the daemon is gone; waiting, nothing is lost"]),
        ([FULL] * 4 + [None, None], ["the disk has no room; waiting", "going on"]),
        ([OverloadedError("x")] * 3, ["the daemon cannot take it now (overloaded); waiting"]),
        (
            [GONE] * 3 + [None] + [FULL] * 3,
            ["the daemon is gone; waiting, nothing is lost", "going on", "the disk has no room; waiting"],
        ),
    ],
)
def test_a_wait_is_told_once_after_a_second(troubles, said, monkeypatch, clock):
    assert told(monkeypatch, clock, *troubles) == said


def test_nothing_is_told_where_no_terminal_is_or_none_is_wanted(monkeypatch, clock):
    assert told(monkeypatch, clock, *[GONE] * 9, None, stream=io.StringIO()) == []
    assert told(monkeypatch, clock, *[GONE] * 9, None, quiet=True) == []
