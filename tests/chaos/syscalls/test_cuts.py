"""The power goes at every call that the real daemon made, in every way that may be; what is left is opened."""

import pytest
from chaos.syscalls.cutting import Cutting
from chaos.syscalls.disk import File, Write
from chaos.syscalls.forgetting import syncs_of
from chaos.syscalls.machine import Step
from chaos.syscalls.scenarios import SCENARIOS
from chaos.syscalls.states import Bounds

FEW = Bounds(states=14, contents=10, unread=2, watermarks=3)
ALL_OF_A_GROUP = Bounds(states=4096, contents=2048, unread=1, watermarks=2)
"""Of active.log every content there is."""


def test_the_power_goes_at_every_call_of_appending_rotating_sealing_snapshotting_collecting(everything, bench):
    """The relay opens, twice to the same; what was answered is there, nothing else, without a hole, once."""
    cutting = Cutting(everything, bench, FEW, twice_every=150)
    assert [*cutting.run()] == []
    kinds = {sync.kind for sync in syncs_of(everything)}
    assert kinds >= {
        "a group",
        "journal: active.log renamed",
        "journal: a sealed file renamed",
        "the relay: snapshot renamed",
        "the relay: acknowledged renamed",
        "journal: segments unlinked",
        "relays/: a made relay renamed",
        "relays/: a deleted relay renamed",
    }
    assert cutting.figures.distinct > 1000
    assert cutting.figures.second_cuts > 20


@pytest.mark.parametrize("name", SCENARIOS)
def test_killed_started_again_served_and_then_a_power_cut(name, restarted, bench):
    """Nothing answered after the restart is lost, repeats that were answered as duplicates too."""
    recording = restarted(name)
    assert recording.kills == 1
    cutting = Cutting(recording, bench, FEW)
    assert [*cutting.run()] == []
    assert cutting.figures.answers > 1


def test_every_legal_state_of_an_unanswered_last_group_opens(everything, bench):
    """Any of its pieces of 512 bytes missing, any size between: never undecidable; groups of one to five pieces."""
    cutting = Cutting(everything, bench, ALL_OF_A_GROUP)
    left = {1: 3, 2: 3, 3: 2, 4: 2, 5: 1}
    for step, relays in cutting.steps():
        file = _appended_to(cutting, step)
        pieces = 0 if file is None else _pieces(file.pending[-1])
        if left.get(pieces):
            left[pieces] -= 1
            before = cutting.figures.complete
            assert [*cutting.cut(step, relays)] == []
            assert cutting.figures.complete == before + 1
            assert len(file.variants(ALL_OF_A_GROUP.contents, 1).contents) >= 2**pieces
    assert not any(left.values()), f"no such groups were recorded: {left}"


def _appended_to(cutting: Cutting, step: Step) -> File | None:
    """The active.log that has just got a group."""
    if step.what != "change" or step.call.name != "pwritev2":
        return None
    file = cutting.machine.node(step.call.descriptor())
    write = file.pending[-1]
    is_group = write.content.startswith(b"RLYG") and write.offset == len(file.durable)
    return file if is_group else None


def _pieces(write: Write) -> int:
    return (write.offset + len(write.content) - 1) // 512 - write.offset // 512 + 1
