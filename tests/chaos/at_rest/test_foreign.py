"""What a later relayd or another relay wrote: refused by its name, nothing written."""

import struct
import zlib

import pytest
from chaos.at_rest.damage import without
from chaos.at_rest.judge import judge
from chaos.at_rest.shapes import ACTIVE, ROTATED, SEALED, layered
from support import oracle, sealed_oracle
from support.relays import OTHER_SEGMENT, OTHER_STORE, event, events, framed, pack, sealed, segment


def code(relay, files):
    """The code of a refusal that the judge gives too, and that changes no byte."""
    assert relay.put(files).differences() == []
    return relay.outcome.code


def with_group_format(content, at, number):
    checked = content[at : at + 4] + struct.pack("<I", number) + content[at + 8 : at + 56]
    return content[:at] + checked + struct.pack("<I", zlib.crc32(checked)) + content[at + 60 :]


def with_magic(content, magic):
    checked = magic + content[8:40]
    return checked + struct.pack("<I", zlib.crc32(checked)) + content[44:]


@pytest.mark.parametrize("number", [2, 255, 1 << 31])
@pytest.mark.parametrize("path", [ACTIVE, ROTATED])
def test_a_group_of_a_later_format_is_later_format(relay, path, number):
    files = layered()
    starts = [at for at in range(48, len(files[path])) if files[path][at : at + 4] == b"RLYG"]
    assert len(starts) >= 2
    for at in starts:
        assert code(relay, files | {path: with_group_format(files[path], at, number)}) == "later_format"


@pytest.mark.parametrize("path", [ACTIVE, ROTATED])
def test_a_segment_of_a_later_format_is_later_format(relay, path):
    files = layered()
    assert code(relay, files | {path: with_magic(files[path], b"RLYSEG02")}) == "later_format"


def test_a_sealed_segment_of_a_later_format_that_is_needed_is_later_format(relay):
    files = without(layered(), "snapshot", "snapshot.previous") | {SEALED: sealed(1, 7, format=2)}
    assert code(relay, files) == "later_format"


@pytest.mark.parametrize("path", ["snapshot", "snapshot.previous", "acknowledged"])
def test_a_small_file_of_a_later_format_is_later_format(relay, path):
    magic = b"RLYACKD1" if path == "acknowledged" else b"RLYSNAP1"
    assert code(relay, layered() | {path: framed(magic, {"format": 2, "unheard": [1]})}) == "later_format"


@pytest.mark.parametrize("prefix", ["relay", "command", "checkpoint", "surface", "reply", "edits"])
@pytest.mark.parametrize("where", ["active", "rotated", "sealed"])
def test_an_unknown_reserved_kind_that_the_fold_meets_is_later_format(relay, prefix, where):
    body = pack([1, f"{prefix}.invented", {"a": 1}])
    files = {ACTIVE: oracle.segment_of([events(1, 3), [body], [event(5)]])}
    if where == "rotated":
        files[f"journal/{1:020}-{5:020}.log"] = files.pop(ACTIVE)
    if where == "sealed":
        files = {f"journal/{1:020}-{4:020}.log.zst": sealed_oracle.sealed_of([events(1, 3), [body]])}
        files[ACTIVE] = segment(1, first=5, segment=OTHER_SEGMENT)
    assert code(relay, files) == "later_format"


@pytest.mark.parametrize("kind", ["relayed", "commander.x", "output", "x", "surfaces.queued", "replay.lost"])
def test_a_kind_that_only_looks_reserved_is_an_applications(relay, kind):
    files = {ACTIVE: oracle.segment_of([events(1, 3), [pack([1, kind, {}])]])}
    assert relay.put(files).differences() == []
    assert relay.put(files).open().last == 4


@pytest.mark.parametrize("path", [ACTIVE, ROTATED])
def test_another_relays_segment_of_groups_is_journal_conflict(relay, path):
    counts, first, id_ = ((2, 1, 2), 12, oracle.SEGMENT) if path == ACTIVE else ((3, 1), 8, OTHER_SEGMENT)
    files = layered()
    for small in ({}, {"acknowledged": b""}):
        foreign = segment(*counts, first=first, segment=id_, store=OTHER_STORE)
        assert code(relay, files | small | {path: foreign}) == "journal_conflict"


def test_another_relays_sealed_segment_is_journal_conflict_where_it_is_needed(relay):
    foreign = sealed(1, 7, store=OTHER_STORE)
    assert code(relay, without(layered(), "snapshot", "snapshot.previous") | {SEALED: foreign}) == "journal_conflict"


def test_another_relays_small_files_are_not_believed(relay):
    """They are set aside; what is this relay's own decides."""
    for path in ("snapshot", "snapshot.previous", "acknowledged"):
        foreign = layered()[path].replace(oracle.STORE, OTHER_STORE)
        foreign = framed(foreign[:8], foreign[48:])
        assert judge(layered() | {path: foreign}).passed_over == {path}
        assert relay.put(layered() | {path: foreign}).differences() == []
        served = relay.put(layered() | {path: foreign}).open()
        assert (served.last, served.quarantined) == (16, (path,))
