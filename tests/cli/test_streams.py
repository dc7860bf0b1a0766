"""Standard streams that are closed, full, or no stream at all: a sentence and an exit code, never a traceback."""

import os
import shlex
import subprocess
import sys

import pytest

from relayd.cli import main

NOWHERE = {**os.environ, "RELAYD_SOCKET": "/nonexistent/relayd.sock"}


def shell(command):
    """Runs `relayd …` with the redirections of a shell."""
    line = f"exec {shlex.quote(sys.executable)} -m relayd {command}"
    return subprocess.run(["sh", "-c", line], env=NOWHERE, capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("version >&-", 74, "relayd: standard output: Bad file descriptor\n"),
        ("version --json >&-", 74, "relayd: standard output: Bad file descriptor\n"),
        ("config show >/dev/full", 74, "relayd: standard output: No space left on device\n"),
        ("version --json >/dev/full", 74, "relayd: standard output: No space left on device\n"),
        ("version <&- 2>&- >/dev/null", 0, ""),
        ("relays <&- >&- 2>&-", 69, ""),
        ("record x 2>&- </dev/null", 69, ""),
    ],
)
def test_a_stream_that_is_closed_or_full_is_told_by_name(command, code, said):
    done = shell(command)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", said)


def test_record_says_that_standard_input_is_closed():
    done = shell("record x <&-")
    assert (done.returncode, done.stdout) == (64, "")
    assert "standard input is closed, and it is what is recorded" in " ".join(done.stderr.split())


def test_an_interrupt_while_a_generator_is_closed_ends_the_process_quietly():
    script = """
import signal, sys
from relayd.cli import main, run
def body():
    try:
        yield 1
    finally:
        signal.raise_signal(signal.SIGINT)
def interrupted(_arguments):
    found = body()
    next(found)
    del found
    return 0
run.run = interrupted
main.main()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=30, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_what_else_cannot_be_raised_is_shown_as_ever(monkeypatch):
    shown = []
    monkeypatch.setattr(sys, "__unraisablehook__", shown.append)
    other = type("Args", (), {"exc_value": ValueError()})()
    main._unraisable(other)
    assert shown == [other]
