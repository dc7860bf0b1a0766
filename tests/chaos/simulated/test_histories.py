"""Whole histories: the same one from the same seed, a fixed set of them, sweeps, disks that lie, and planted faults."""

import hashlib
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from chaos.simulated.disk import Disk
from chaos.simulated.figures import Outcome
from chaos.simulated.lies import REFUSALS, Lie
from chaos.simulated.plans import Life, draw, from_text, to_text
from chaos.simulated.replay import command
from chaos.simulated.sweep import SCENES, SEED, Sweep, sweeps
from chaos.simulated.world import History
from support.faults import Fail, Kill

from relayd.daemon.output_commit import OutputCommit
from relayd.recovery import settling
from relayd.relay import recording

HERE = Path(__file__).parent


def trace_of(seed):
    lines = []
    History(seed, trace=lines.append).run()
    return lines


@pytest.mark.parametrize("seed", [3, 4])
def test_the_same_seed_gives_the_same_calls_and_the_same_answers(seed):
    first = trace_of(seed)
    assert first == trace_of(seed)
    assert len(first) > 200
    assert first != trace_of(seed + 10)


def test_the_command_of_a_violation_shows_the_same_history_in_another_process():
    """Whatever Python's hashes of texts begin from there."""
    shown = set()
    line = command(History(3), drawn=True).split()
    for hash_seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        done = subprocess.run(
            [sys.executable, *line[1:], "--trace"],
            cwd=HERE.parents[2], env=environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        shown.add(hashlib.blake2b(done.stdout.encode()).hexdigest())
    assert len(shown) == 1
    assert "\n".join(trace_of(3)) in done.stdout


def test_a_plan_is_the_same_after_it_was_a_text():
    for seed in range(300):
        lives = draw(random.Random(seed))
        assert from_text(to_text(lives)) == lives


@pytest.mark.parametrize("first", range(1, 101, 20))
def test_a_fixed_set_of_histories_keeps_what_is_always_true(first):
    """I1 to I7 after one to three lives that end by whatever chance has drawn for them."""
    for seed in range(first, first + 20):
        History(seed).run()


def ended(scene):
    """The history at the end of a scene's life."""
    history = History(SEED, [], everything=True)
    history.live(SCENES[scene], history.act)
    assert history.faults.met_any or not SCENES[scene].faults
    return history


def test_the_scenes_that_openings_are_swept_over_are_what_they_say():
    left = {scene: ended(scene).disk.tree("relays") for scene in SCENES}
    sealing = left["killed while sealing"]
    assert any(path.endswith(".zst") and path.removesuffix(".zst") in sealing for path in sealing)
    assert "read/journal/active.log" not in left["killed in a rotation"]
    named = left["killed while a snapshot got its name"]
    previous = [path for path in named if path.endswith("/snapshot.previous")]
    assert any(path.removesuffix(".previous") not in named for path in previous)
    assert History(SEED, [SCENES["torn"]], everything=True).run().torn
    lost = ended("a failed sync, then killed").disk
    assert lost.cut(random.Random(0), "nothing").tree("relays") != lost.tree("relays")


def test_the_workload_of_the_sweeps_meets_every_kind_of_change():
    history = ended("at rest")
    assert {call.name for call in history.faults.log} >= {
        "write", "sync", "replace", "unlink", "open create", "make_directory", "remove_tree", "truncate",
    }  # fmt: skip
    targets = {str(call).split()[-1].lstrip("0123456789-") for call in history.faults.log}
    assert targets >= {"active.log", "snapshot", "snapshot.previous", "acknowledged", ".log", ".log.zst", "watermark"}


QUICK = sweeps(survivors=2, taken=(63,))


@pytest.mark.parametrize("number", range(len(QUICK)), ids=[sweep.name for sweep in QUICK])
def test_sweep(number):
    """Every so many-th call of the fixed workload; long.py strikes at each."""
    sweep = QUICK[number]
    opening = sweep.scene is not None
    stride = (30 if opening else 60) if sweep.of == "changing" else 40
    ran = 0
    for history in sweep.histories(1 + 7 * number % 23, stride, calls=50 if opening else None):
        history.run()
        ran += 1
    assert ran


@pytest.mark.parametrize("after", [False, True])
def test_power_cut_at_every_call_of_opening_a_relay_whose_last_group_is_torn(after):
    """I7, for each call of the part that changes something, and the harshest cut."""
    sweep = Sweep("", lambda n: Kill(n, after=after), scene="torn")
    for history in sweep.histories(calls=22):
        history.run()


def test_fsync_lies_then_a_power_cut():
    """A consistent prefix, `snapshot_ahead` or `journal_corrupt`; a reader with a newer cursor is told `ahead`."""
    told = Counter()
    for seed in range(1, 41):
        told += Lie(seed).run()
    assert set(told) == {*REFUSALS, "prefix", "ahead", "answered and gone"}


# The harness finds what is planted


def caught(make, seeds):
    """The first seed whose history is found wrong."""
    for seed in seeds:
        try:
            make(seed).run()
        except BaseException:  # noqa: BLE001 - whatever it is found by
            return seed
    return None


def lying(*names):
    def make(chance):
        disk = Disk(chance)
        disk.lies = lambda name: any(name.endswith(each) for each in names)
        return disk

    return make


@pytest.mark.parametrize("names", [("active.log", ".new"), ("journal/",), ("relays/",), ("snapshot.new",)])
def test_a_disk_whose_syncs_do_nothing_is_found(names):
    lives = [Life(end="cut"), Life(end="cut")]
    make = lambda seed: History(seed, lives, disk=lying(*names), everything=seed % 2 == 0)  # noqa: E731
    assert caught(make, range(60)) is not None


def test_bytes_that_an_earlier_failed_sync_left_in_the_page_cache_and_nobody_wrote_again_are_found(monkeypatch):
    monkeypatch.setattr(settling._Settling, "_rewrite", lambda _: None)
    lives = lambda n: [Life((Fail(n), Kill(1)), of="sync", left=3), Life((Kill(24),), end="cut")]  # noqa: E731
    assert caught(lambda n: History(SEED, lives(n), everything=True), range(15, 30)) is not None


def test_an_answer_before_its_event_is_durable_is_found(monkeypatch):
    monkeypatch.setattr(OutputCommit, "hold", lambda self, _, reply, answer: self.hold_now(reply, answer))
    monkeypatch.setattr(OutputCommit, "hold_now", lambda _, reply, answer: reply.answer(answer), raising=False)
    assert caught(History, range(1, 60)) is not None


def test_a_repeat_that_is_stored_again_is_found(monkeypatch):
    monkeypatch.setattr(recording, "_already_there", lambda *_: 0)
    assert caught(History, range(1, 20)) is not None


def test_an_outcome_counts():
    outcome = History(SEED, [Life(end="cut", left=1)], everything=True).run()
    assert isinstance(outcome, Outcome)
    assert min(outcome.calls, outcome.answered, outcome.shown, outcome.sealed, outcome.collected, outcome.cuts) > 0
