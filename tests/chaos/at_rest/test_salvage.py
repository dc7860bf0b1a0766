"""Salvage after damage to one record, at every position: every other record returned, one lost range, no ordinal twice.

tests/recovery/test_salvage.py has the same of active.log alone, and of salvage that is killed.
"""

import contextlib
import json

import pytest
from chaos.at_rest.damage import flipped
from chaos.at_rest.relay import Relay
from chaos.at_rest.shapes import ACTIVE, LATE_SEALED, ROTATED, collected, layered
from support import oracle, sealed_oracle
from support.relay_files import read_sealed
from support.relays import event, snapshot

from relayd.journal.real_storage import open_state_directory
from relayd.recovery.salvage import SalvageReport, salvage_relay
from relayd.recovery.salvage_steps import Means

AT_THE_END = {"snapshot": snapshot(16), "snapshot.previous": snapshot(15)}
PLACES = {"length": 0, "ordinal": 4, "digest": 12, "body": 28, "end": -1}


def line_of(cursor, said) -> bytes:
    return json.dumps({"ordinal": cursor.ordinal, "kind": said.kind}).encode()


def run(relay: Relay, rescued: str | None = None) -> SalvageReport:
    with contextlib.closing(open_state_directory(str(relay.disk.path))) as directory:
        return salvage_relay(directory, "demo", Means(rescued, line_of, relay.disk.new_id, 5), tail=False)


def stored(relay: Relay) -> dict[int, bytes]:
    """The bodies that are in files of the journal; an ordinal in two of them fails the test."""
    found: dict[int, bytes] = {}
    for path, content in relay.files().items():
        here = {}
        if path.startswith("journal/") and path.endswith(".zst"):
            here = read_sealed(content)
        elif path.startswith("journal/") and path.endswith(".log"):
            here = oracle.read_segment(content)[1]
        assert not found.keys() & here.keys(), f"{path}: an ordinal is there twice"
        found |= here
    return found


def damaged(files, path, ordinal, place):
    """The files with one bit of the record of `ordinal` flipped."""
    record = oracle.record(ordinal, event(ordinal))
    at = files[path].index(record) + PLACES[place] % len(record)
    return files | {path: flipped(files[path], 8 * at + 2)}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("ordinal", range(8, 17))
def test_damage_that_the_snapshot_is_past_loses_that_record_alone(relay, ordinal, place):
    path = ROTATED if ordinal < 12 else ACTIVE
    relay.put(damaged(layered() | AT_THE_END, path, ordinal, place))
    assert relay.open().code == "journal_corrupt"
    report = run(relay)
    assert (report.marked, report.lost, report.refusal) == (((ordinal, ordinal),), None, None)
    assert stored(relay) == {each: event(each) for each in range(1, 17) if each != ordinal}
    served = relay.open()
    assert (served.last, served.unreadable) == (16, frozenset({ordinal}))
    assert set(served.records) == set(range(1, 17)) - {ordinal}
    assert relay.goes_on() == 17


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("ordinal", range(8, 17))
def test_damage_that_the_fold_would_cross_keeps_what_is_before_and_rescues_the_rest(relay, ordinal, place):
    """One `relay.lost` at the ordinal behind the last that was seen; nothing is used twice."""
    path = ROTATED if ordinal < 12 else ACTIVE
    files = {path: content for path, content in layered().items() if not path.startswith("snapshot")}
    relay.put(damaged(files, path, ordinal, place))
    rescued = relay.disk.root / "rescued.jsonl"
    report = run(relay, str(rescued))
    assert (report.marked, report.lost, report.refusal) == ((), (ordinal, 16), None)
    lines = [json.loads(line)["ordinal"] for line in rescued.read_bytes().splitlines()] if rescued.exists() else []
    assert lines == list(range(ordinal + 1, 17))
    found = stored(relay)
    assert {each: body for each, body in found.items() if each <= 16} == {
        each: event(each) for each in range(1, ordinal)
    }
    served = relay.open()
    assert (served.last, served.unreadable) == (17, frozenset(range(ordinal, 17)))
    assert relay.goes_on() == 18


def with_small_frames():
    """As collected, the sealed segment with one event to a frame, and where each frame stands."""
    content = sealed_oracle.sealed_of([[event(each)] for each in (5, 6, 7)], 5)
    return collected() | {LATE_SEALED: content}, sealed_oracle.read_sealed(content)[0]["frames"]


@pytest.mark.parametrize("ordinal", range(5, 8))
def test_damage_in_a_frame_of_a_sealed_segment_loses_that_frame_and_nothing_else(relay, ordinal):
    """A frame is decompressed whole or not at all; one event to a frame here."""
    files, frames = with_small_frames()
    _, offset, size, _ = frames[ordinal - 5]
    relay.put(files | {LATE_SEALED: flipped(files[LATE_SEALED], 8 * (offset + size // 2))})
    report = run(relay)
    assert (report.marked, report.lost, report.refusal) == (((ordinal, ordinal),), None, None)
    assert stored(relay) == {each: event(each) for each in range(5, 17) if each != ordinal}
    assert relay.open().unreadable == frozenset({ordinal})


@pytest.mark.parametrize("ordinal", range(5, 8))
def test_damage_in_a_frames_checksum_loses_nothing_because_each_record_is_proven_by_its_own_digest(relay, ordinal):
    files, frames = with_small_frames()
    _, offset, size, _ = frames[ordinal - 5]
    relay.put(files | {LATE_SEALED: flipped(files[LATE_SEALED], 8 * (offset + size - 2))})
    assert relay.open().unreadable == frozenset({ordinal})
    report = run(relay)
    assert (report.changed, report.marked, report.lost, report.refusal) == (True, (), None, None)
    assert stored(relay) == {each: event(each) for each in range(5, 17)}
    assert relay.open().unreadable == frozenset()


def test_every_byte_of_one_record_costs_that_record_and_no_other(relay):
    record = oracle.record(13, event(13))
    files = layered() | AT_THE_END
    begin = files[ACTIVE].index(record)
    for at in range(begin, begin + len(record)):
        relay.put(files | {ACTIVE: flipped(files[ACTIVE], 8 * at + at % 8)})
        report = run(relay)
        assert (report.marked, report.lost, report.refusal) == (((13, 13),), None, None)
        assert stored(relay) == {each: event(each) for each in range(1, 17) if each != 13}
