"""Power cuts under load, at every sort of moment: the relays open, and nothing answered or shown is lost or done twice.

Short runs of what tests/chaos/power/long.py does for as long as it is given.
"""

from collections import Counter

from chaos import kills
from chaos.power import rounds
from chaos.power.campaign import PowerCampaign
from chaos.power.machine import LOG_FLUSHED, NOTHING_FLUSHED
from chaos.power.rounds import FLAGS, GROUP_SYNC, Rounds
from chaos.power.station import Cut, a_station


def test_power_cuts_at_random_moments_under_load_lose_nothing_answered():
    covered = Counter()
    with a_station(**kills.SETTINGS) as station:
        PowerCampaign(station, 6, 7, covered).run_and_keep()
    assert covered["events"] > 500
    assert covered["openings that wrote bytes over themselves"]


def test_power_cuts_at_group_boundaries_lose_nothing_answered():
    """Right after an answer, right before a group is written, between its write and its sync, and before its answer."""
    covered = Counter()
    with a_station(**rounds.SETTINGS) as station:
        story = Rounds(station, 1, covered)
        for flag in FLAGS:
            story.cut_after_an_answer(flag)
            for call in ("pwritev active.log", GROUP_SYNC, "pwritev watermark"):
                story.cut_at(Cut(story.random.randint(5, 20), flag, call))
        story.finish()
    assert covered[f"cut before {GROUP_SYNC}"] == 2


def test_power_cuts_while_rotating_sealing_snapshotting_and_collecting_lose_nothing_answered():
    covered = Counter()
    calls = [
        ("renameat active.log", 2),
        ("renameat active.log.new", 3),
        ("fsync journal", 6),
        ("pwritev snapshot.new", 3),
        ("renameat snapshot.new", 2),
        ("pwritev acknowledged.new", 1),
    ]
    with a_station(**rounds.SETTINGS) as station:
        story = Rounds(station, 2, covered)
        for at, (call, nth) in enumerate(calls):
            story.cut_at(Cut(nth, FLAGS[at % 2], call))
        story.finish()
    assert covered["of them collected"]
    assert covered["cuts that left a rotated file, not sealed"]


def test_a_power_cut_takes_nothing_that_was_answered_after_a_kill_and_a_restart():
    """Kill, restart, serve, then a power cut: repeats answered as duplicates too. Killed with whole groups unsynced."""
    covered = Counter()
    with a_station(**rounds.SETTINGS) as station:
        story = Rounds(station, 3, covered)
        for call in (GROUP_SYNC, GROUP_SYNC, "pwritev watermark", "fsync journal", "renameat snapshot.new"):
            story.kill_restart_and_cut(Cut(story.random.randint(2, 8), LOG_FLUSHED, call), NOTHING_FLUSHED)
        story.finish()
    assert covered["answered as duplicates"] >= 2
