"""One block of another file over the beginning of active.log took answered events away, and their ordinals were reused.

The block brought the other file's segment id with it. So the watermark counted as none (it names another segment), no
group further on counted (theirs is another id), and where a piece of the events was zeros the table's row 5 said
`torn`: the relay opened, the events went to quarantine/. Where the block held whole groups of the other file, what was
left passed for a stale copy.
"""

import pytest
from chaos.at_rest.judge import Refused
from chaos.at_rest.relay import Relay
from chaos.at_rest.shapes import ACTIVE, ROTATED, spacious
from support.relays import OTHER_SEGMENT, name, sealed, segment

from relayd.recovery.salvage import salvage

LAYER = "files at rest"
WRONG = "answered events were cut as torn, or set aside as stale, where another file's segment id stood in active.log"


@pytest.mark.parametrize("size", [48, 64, 100, 112, 200, 300, 512])
@pytest.mark.parametrize("sealed_meanwhile", [False, True])
def test_the_first_block_of_another_segment_over_active_log_refuses(tmp_path, size, sealed_meanwhile):
    """`journal_corrupt`; with a whole group in the block, whose ordinals others hold, `journal_conflict`."""
    files = spacious()
    assert Relay(tmp_path / "whole").put(files).open().last == 14
    damaged = files | {ACTIVE: files[ROTATED][:size] + files[ACTIVE][size:]}
    if sealed_meanwhile:
        del damaged[ROTATED]
        damaged[f"journal/{name(8, 11, '.log.zst')}"] = sealed(8, 11, segment=OTHER_SEGMENT)
    relay = Relay(tmp_path / "damaged").put(damaged)
    whole_group = size >= len(segment(1, first=8))
    relay.disk.refused("journal_conflict" if whole_group else "journal_corrupt")
    assert relay.open() == (
        Refused("journal_conflict", ACTIVE) if whole_group else Refused("journal_corrupt", ACTIVE, 0)
    )


@pytest.mark.parametrize("size", [48, 64])
def test_salvage_gets_every_event_back(tmp_path, size):
    files = spacious()
    relay = Relay(tmp_path).put(files | {ACTIVE: files[ROTATED][:size] + files[ACTIVE][size:]})
    report = salvage(str(relay.disk.root), "demo", rescued=None, line_of=lambda *_: b"")
    assert (report.marked, report.lost, report.refusal) == ((), None, None)
    served = relay.open()
    assert (set(served.records), served.unreadable) == (set(range(1, 15)), frozenset())


def test_a_stale_copy_that_ends_in_the_middle_of_a_group_is_not_set_aside(tmp_path):
    """Nothing tells it from the damage above."""
    files = spacious()
    relay = Relay(tmp_path).put({**files, ACTIVE: files[ROTATED][:-40]})
    relay.disk.refused("journal_conflict")
