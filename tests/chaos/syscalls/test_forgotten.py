"""The recorder finds a forgotten sync: each kind is taken out of a true log in turn, and the cuts show what is lost."""

import re

import pytest
from chaos.syscalls.cutting import Cutting
from chaos.syscalls.forgetting import forget, syncs_of
from chaos.syscalls.scenarios import SCENARIOS
from chaos.syscalls.states import Bounds

CORNERS = Bounds(states=16, contents=3, unread=1, watermarks=2)
"""Each file as on disk, or as in memory, or as long as in memory: a forgotten sync shows at these."""

SHOWN = {
    # While serving.
    ("everything", "the state directory's name"): "is not there",
    ("everything", "the name of relays/"): "is not there",
    ("everything", "relays/: a made relay renamed"): "is not there",
    ("everything", "relays/: a deleted relay renamed"): "whose deletion was answered",
    ("everything", "a relay being made: journal/active.log"): "snapshot_lost",
    ("everything", "a relay being made: journal"): "snapshot_lost",
    ("everything", "a relay being made: itself"): "snapshot_lost",
    ("everything", "a group"): "journal_corrupt",
    ("everything", "active.log.new"): "journal_corrupt",
    ("everything", "journal: active.log renamed"): "journal_corrupt",
    ("everything", "a sealed file"): r"\.log\.zst",
    ("everything", "snapshot.new"): "snapshot_lost",
    # The relay that collects first has no older snapshot, or one that needs what is gone.
    ("everything", "the relay: snapshot renamed"): "snapshot_lost|journal_gap",
    ("everything", "acknowledged.new"): "acknowledgement",
    ("everything", "the relay: acknowledged renamed"): "acknowledgement",
    # What a start owes to a process that was killed before it.
    ("repeating", "active.log written over itself"): "journal_corrupt",
    ("rotating", "journal: while opening"): "journal_corrupt",
    ("acknowledging", "the relay: while opening"): "acknowledgement",
    ("making", "relays/: at start"): "is not there",
    ("beginning", "the name of relays/"): "is not there",
}
"""A recording, the sync that is taken out of it, and what is then wrong (a regular expression)."""

WITHOUT_CONSEQUENCE = {
    "journal: a sealed file renamed": "the rotated file's name cannot go before the sealed one's has come",
    "journal: segments unlinked": "what comes back lies below the base",
    "relays/: a deleted relay freed": "what is left is removed at the next start",
    "the relay: idle unlinked": "`idle` is a hint, and nothing in these relays is pending",
    "active.log while opening": "in case a group was cut back before it; in these recordings none was",
    "watermark": "written again before segments go: the recordings have no rotation cut with one from before, "
    "corpus/test_watermark_of_a_collected_segment.py has",
    "acknowledged": "written over itself in case its own sync failed; in these recordings none does",
}
"""Kinds whose absence shows in no state of these recordings, and why; all others have to stand in SHOWN."""


def _recording(name: str, everything, restarted):
    return everything if name == "everything" else restarted(name)


@pytest.mark.parametrize(("name", "kind"), SHOWN, ids=lambda text: text.replace(" ", "-"))
def test_a_forgotten_sync_is_found(name, kind, everything, restarted, bench):
    recording = forget(_recording(name, everything, restarted), kind)
    wrong = next(Cutting(recording, bench, CORNERS).run(), None)
    assert wrong is not None, f"nothing shows that {kind} is not synced"
    assert re.search(SHOWN[name, kind], wrong.what)


@pytest.mark.parametrize("name", ["everything", *SCENARIOS])
def test_every_sync_of_the_daemon_is_of_a_kind_that_is_known_here(name, everything, restarted):
    kinds = {sync.kind for sync in syncs_of(_recording(name, everything, restarted))}
    assert kinds <= {kind for _, kind in SHOWN} | WITHOUT_CONSEQUENCE.keys()
