"""Numbers, times and progress as people see them."""

import io
import sys
import time

import pytest

from relayd.cli import output
from relayd.cli.output import BytesRead, Progress, format_age, format_bytes, format_time, print_table, printable


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1_258_291, "1.2 MiB"), (2**30, "1.0 GiB"), (2**41, "2.0 TiB")],
)
def test_sizes_have_the_largest_unit_that_they_reach(size, text):
    assert format_bytes(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(-5, "0 s ago"), (59, "59 s ago"), (60, "1 min ago"), (7200, "2 h ago"), (200_000, "2 d ago")]
)
def test_ages_have_the_largest_unit_that_they_reach(seconds, text):
    assert format_age(1_000_000_000, 1_000_000_000 + seconds * 1000) == text


def test_times_are_local_to_the_millisecond_and_impossible_ones_do_not_fail(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    assert format_time(1_700_000_000_123) == "2023-11-14 22:13:20.123"
    assert format_time(-(2**62)) == f"{-(2**62)} ms"
    monkeypatch.undo()
    time.tzset()


def test_what_could_steer_a_terminal_is_an_escape():
    assert printable("é\x1b[2J\x9b\n\u202e") == "é\\x1b[2J\\x9b\\n\\u202e"


def test_a_table_aligns_and_escapes(capsys):
    print_table(("NAME", ">SIZE"), [("a\t", "1"), ("longer", "1000")])
    assert capsys.readouterr().out == "NAME    SIZE\na\\t        1\nlonger  1000\n"


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until it is moved."""
    now = [100.0]
    monkeypatch.setattr(output.time, "monotonic", lambda: now[0])
    return now


def test_progress_is_one_line_on_a_terminal_that_is_gone_in_the_end(clock, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with Progress() as progress:
        read = BytesRead(progress, 4096)
        read(1024)
        assert sys.stderr.getvalue() == ""
        clock[0] += 1
        read(1024)
        read(1024)
    assert sys.stderr.getvalue() == "\r\x1b[K2.0 KiB of 4.0 KiB, 2.0 KiB/s\r\x1b[K"


@pytest.mark.parametrize(("stream", "quiet"), [(io.StringIO, False), (Terminal, True)])
def test_progress_is_silent_where_no_terminal_is_or_none_is_wanted(stream, quiet, clock, monkeypatch):
    monkeypatch.setattr(sys, "stderr", stream())
    with Progress(quiet=quiet) as progress:
        clock[0] += 10
        BytesRead(progress)(1024)
        progress.show("x")
    assert sys.stderr.getvalue() == ""
