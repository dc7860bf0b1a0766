"""A violation's one command opens that very state again."""

import shlex
import shutil
import subprocess
import sys

from chaos.syscalls.cutting import Cutting
from chaos.syscalls.forgetting import syncs_of
from chaos.syscalls.keeping import keep
from chaos.syscalls.recording import load
from chaos.syscalls.states import Bounds
from support.daemon import REPOSITORY

CORNERS = Bounds(states=16, contents=3, unread=1, watermarks=2)


def without_group_syncs(kept, directory):
    """A true log with the lines of every group's sync taken out."""
    shutil.copytree(kept, directory)
    gone = {
        place
        for sync in syncs_of(load(kept))
        if sync.kind == "a group"
        for place in (sync.call.began, sync.call.returned)
    }
    (file,) = directory.glob("strace.*")
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(line for place, line in enumerate(lines) if place not in gone))
    return directory


def replay(command):
    program, *arguments = shlex.split(command)
    assert program == "python"
    return subprocess.run(
        [sys.executable, *arguments], cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False
    )


def test_the_command_of_a_violation_shows_it_again(everything_log, tmp_path, bench):
    directory = without_group_syncs(everything_log[0], tmp_path / "log")
    wrong = next(Cutting(load(directory), bench, CORNERS).run())
    shown = replay(keep(directory, CORNERS, wrong))
    assert "WRONG: it does not open: journal_corrupt" in shown.stdout, shown.stderr
    assert shown.returncode == 1


def test_what_is_right_is_shown_as_right(everything_log, tmp_path, bench):
    directory = shutil.copytree(everything_log[0], tmp_path / "log")
    cutting = Cutting(load(directory), bench, CORNERS)
    step, relays = next((step, relays) for step, relays in cutting.steps() if step.call.name == "fdatasync")
    assert relays
    command = f"{keep(directory, CORNERS)} --prefix {step.number} --choice 0.0.0.0"
    shown = replay(command)
    assert shown.stdout == "violations: 0\n", shown.stderr
    assert shown.returncode == 0
