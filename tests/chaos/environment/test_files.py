"""Immutable file, wrong owner or mode, a link or fifo in place of a file: a typed outcome, and no busy loop."""

import contextlib
import itertools
import os
import shutil
import socket
import subprocess
import time

import pytest
from chaos.environment.account import Account, settle, trouble
from chaos.environment.mounts import needs_root
from chaos.environment.users import NOBODY
from support.daemon import until

_numbers = itertools.count()
PUT = ("link", "link to nowhere", "fifo", "directory", "socket")
OUTCOMES = {
    "snapshot": "unavailable", "snapshot.previous": "unavailable", "acknowledged": "unavailable",
    "watermark": "unavailable", "seed": "unavailable", "journal": "unavailable", "journal/active.log": "unavailable",
    "journal/rotated": "unavailable", "journal/sealed": "unavailable",
    "idle": "opens", "quarantine": "opens", "snapshot.new": "opens", "acknowledged.new": "opens", "probe.new": "opens",
    "journal/active.log.new": "opens",
}  # fmt: skip
"""What becomes of a relay in which something else stands at this place."""


def put(what, path):
    """Moves what is there aside, out of the relay, and puts something else at its place."""
    aside = path.parents[3] / f"aside-{next(_numbers)}"
    if path.exists():
        path.rename(aside)
    match what:
        case "link":
            path.symlink_to(aside)
        case "link to nowhere":
            path.symlink_to("nowhere")
        case "fifo":
            os.mkfifo(path)
        case "directory":
            path.mkdir()
        case "socket":
            with socket.socket(socket.AF_UNIX) as bound, contextlib.chdir(path.parent):
                bound.bind(path.name)
    return aside


def put_back(path, aside):
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    if os.path.lexists(aside):
        aside.rename(path)


def is_quiet(daemon):
    cpu = daemon.cpu_seconds
    time.sleep(0.3)
    assert daemon.cpu_seconds - cpu < 0.15
