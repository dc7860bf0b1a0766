"""A file under the very ordinals of active.log made a good active.log pass for a stale copy.

Opening told a stale active.log by the other files' names alone. With the state at the frontier nothing of a sealed file
is read, so a copy of another segment (or an empty `.lost`) named like the range that active.log holds was enough: the
relay opened, its newest answered events went to quarantine/, and readers were told `unreadable` where every byte of
them was whole.
"""

import pytest
from chaos.at_rest.relay import Relay
from chaos.at_rest.shapes import ACTIVE, ROTATED, SEALED, layered
from support.relays import name, snapshot

from relayd.recovery.salvage import salvage

LAYER = "files at rest"
WRONG = "active.log was set aside as stale for a file's name, though no other file held its events"


@pytest.mark.parametrize("suffix", [".log.zst", ".lost"])
@pytest.mark.parametrize("source", [SEALED, ROTATED, ACTIVE])
def test_active_log_is_no_stale_copy_where_a_name_covers_it_and_no_file_has_its_events(tmp_path, source, suffix):
    files = layered() | {"snapshot": snapshot(16), "snapshot.previous": snapshot(16)}
    content = b"" if suffix == ".lost" else files[source]
    relay = Relay(tmp_path).put(files | {f"journal/{name(12, 16, suffix)}": content})
    refused = relay.disk.refused("journal_conflict")
    assert refused.detail.file == str(relay.disk.path / ACTIVE)
    assert "12 to 16" in str(refused)


@pytest.mark.parametrize("suffix", [".log.zst", ".lost"])
@pytest.mark.parametrize("by", ["hand", "salvage"])
def test_taking_the_file_away_gives_everything_back(tmp_path, by, suffix):
    files = layered() | {"snapshot": snapshot(16), "snapshot.previous": snapshot(16)}
    content = b"" if suffix == ".lost" else files[SEALED]
    relay = Relay(tmp_path).put(files | {f"journal/{name(12, 16, suffix)}": content})
    relay.disk.refused("journal_conflict")
    if by == "hand":
        relay.put(files)
    else:
        report = salvage(str(relay.disk.root), "demo", rescued=None, line_of=lambda *_: b"")
        assert (report.marked, report.lost, report.refusal) == ((), None, None)
    served = relay.open()
    assert (set(served.records), served.unreadable) == (set(range(1, 17)), frozenset())
