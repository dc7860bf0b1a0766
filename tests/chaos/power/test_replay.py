"""A violation leaves its disk, and a command that shows it again."""

import shlex
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from chaos.power import rounds
from chaos.power.kept import keeping, replay
from chaos.power.machine import NOTHING_FLUSHED
from chaos.power.rounds import Rounds
from chaos.power.station import a_station

REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.fixture
def story():
    with a_station(**rounds.SETTINGS) as station:
        story = Rounds(station, 5, Counter())
        story.cut_after_an_answer(NOTHING_FLUSHED)
        yield story


def kept_of(story):
    """The command that the story's next round ends with, and the disk it names."""
    with pytest.raises(AssertionError) as caught:
        story.cut_after_an_answer(NOTHING_FLUSHED)
    command = shlex.split(caught.value.replay)
    return command, Path(command[-1])


def test_an_event_that_was_answered_and_is_not_there_is_found_and_shown_again_from_the_kept_disk(story):
    said = story.told().relays["kept"][0]
    said.sent[0], said.answered[1_000_000] = "never recorded", 0
    command, image = kept_of(story)
    try:
        command[0] = sys.executable
        again = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False)
        assert again.returncode == 1, again.stderr
        assert "was answered 0 at 1000000" in again.stdout
    finally:
        shutil.rmtree(image.parent)


def test_a_disk_that_holds_what_was_told_shows_no_violation(story):
    def fail():
        with keeping(story.station, story.told):
            raise AssertionError("of the test's own")

    with pytest.raises(AssertionError) as caught:
        fail()
    image = Path(shlex.split(caught.value.replay)[-1])
    try:
        assert replay(image) == []
    finally:
        shutil.rmtree(image.parent)
