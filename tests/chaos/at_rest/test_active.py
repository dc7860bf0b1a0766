"""Damage to active.log at rest: each table row and each row of what may be appended, by its one outcome."""

import itertools

import pytest
from chaos.at_rest.damage import bits, cuts, without
from chaos.at_rest.judge import Refused
from chaos.at_rest.shapes import ACTIVE, ALONE, LASTS, LAYERED, ROTATED, SHAPES, alone, layered, rotating
from support import oracle
from support.relays import OTHER_STORE, ends, event, events, segment

HEADER, FIRST, SECOND, LAST = (each.end for each in ends(1, 2, 1))


def unanswered():
    """As alone, but the last group was written and never answered."""
    return alone() | {"watermark": oracle.watermark(oracle.SEGMENT, SECOND)}


def opens(relay, files, last):
    """Proves that the relay opens with the events up to `last`, as the judge says, and goes on."""
    assert relay.put(files).differences() == []
    served = relay.outcome
    assert (served.last, set(served.records), served.unreadable) == (last, set(range(1, last + 1)), frozenset())
    assert relay.goes_on() == last + 1
    return served


def refused(relay, files, code, offset, file=ACTIVE):
    """Proves that it is refused so, as the judge says, and that no byte changed."""
    assert relay.put(files).differences() == []
    assert relay.outcome == Refused(code, file, offset)


@pytest.mark.parametrize("path", [ACTIVE, ROTATED])
def test_every_bit_before_the_watermark_is_journal_corrupt_with_the_offset(relay, path):
    """Of a rotated file all is before the watermark."""
    files = alone() if path == ACTIVE else layered()
    counts = (1, 2, 1) if path == ACTIVE else (3, 1)
    starts = [0, *(each.end for each in ends(*counts, first=1 if path == ACTIVE else 8))]
    flipped = 0
    for bit, damaged in bits(files, path, 1 if path == ACTIVE else 7):
        refused(relay, damaged, "journal_corrupt", max(start for start in starts if start <= bit // 8), path)
        flipped += 1
    assert flipped >= len(files[path]) * 8 // 7


def test_every_shortening_of_the_last_group_with_the_watermark_is_corrupt(relay):
    for _, damaged in cuts(alone(), ACTIVE, begin=SECOND):
        refused(relay, damaged, "journal_corrupt", SECOND)


@pytest.mark.parametrize("marked", [True, False])
def test_every_shortening_of_an_unanswered_last_group_is_torn_or_clean(relay, marked):
    files = unanswered() if marked else without(alone(), "watermark")
    for size, damaged in cuts(files, ACTIVE, begin=SECOND):
        assert opens(relay, damaged, 3).torn == len(ALONE[SECOND:size].rstrip(b"\0"))


@pytest.mark.parametrize("marked", [True, False])
def test_every_bit_of_an_unanswered_last_group_is_undecided(relay, marked):
    """No piece of it is zeros and it is longer than a header: row 6 for every bit."""
    files = unanswered() if marked else without(alone(), "watermark")
    for _, damaged in bits(files, ACTIVE, 1 if marked else 5, SECOND):
        refused(relay, damaged, "journal_undecided", SECOND)


@pytest.mark.parametrize("piece", [512, 4096])
@pytest.mark.parametrize("marked", [True, False])
def test_every_power_cut_of_an_unanswered_last_group_opens_and_is_never_undecidable(relay, piece, marked):
    """Each subset of the pieces of its write that a disk may have kept; the file as long as the write, or as they."""
    before = segment(1, 2)
    whole = before + oracle.group(len(before), 4, [event(4, piece)])
    bounds = [len(before), *range(-(-len(before) // piece) * piece, len(whole), piece), len(whole)]
    pieces = list(itertools.pairwise(bounds))
    assert len(pieces) >= 3
    marks = {"watermark": oracle.watermark(oracle.SEGMENT, len(before))} if marked else {}
    for kept in itertools.product([False, True], repeat=len(pieces)):
        there = [end for (_, end), here in zip(pieces, kept, strict=True) if here]
        content = bytearray(whole)
        for (begin, end), here in zip(pieces, kept, strict=True):
            content[begin:end] = content[begin:end] if here else bytes(end - begin)
        for size in {len(whole), max(there, default=len(before))}:
            opens(relay, {ACTIVE: bytes(content[:size])} | marks, 4 if all(kept) else 3)


@pytest.mark.parametrize("shape", sorted(SHAPES))
@pytest.mark.parametrize("zeros", [1, 511, 4096, 4 << 20])
def test_zeros_appended_are_free_space(relay, shape, zeros):
    files = SHAPES[shape]()
    path = ACTIVE if ACTIVE in files else "watermark"
    assert relay.put(files | {path: files[path] + bytes(zeros)}).differences() == []
    assert relay.files().get(ACTIVE, b"")[: len(files.get(ACTIVE, b""))] == files.get(ACTIVE, b"")
    assert relay.goes_on() == relay.outcome.last + 1 == LASTS[shape] + 1


@pytest.mark.parametrize(
    "content", [None, b"", b"R", segment()[:47], segment(segment=b"n" * 16)], ids=lambda each: str(each and len(each))
)
def test_an_empty_a_one_byte_and_a_header_only_active_segment_open(relay, content):
    """As a rotation that was cut off leaves it; None: it is not there at all."""
    files = rotating() if content is None else rotating() | {ACTIVE: content}
    opens(relay, files, 16)


def others():
    """Files whose blocks may come to stand in active.log."""
    return [layered()[ROTATED], segment(2, 2, first=12, segment=b"f" * 16, store=OTHER_STORE), layered()["snapshot"]]


def test_a_block_of_another_file_written_over_is_corrupt(relay):
    """Wherever it falls, and whether it is a whole group there or not: its segment id or own offset gives it away."""
    starts = [0, *(each.end for each in ends(2, 1, 2, first=12))]
    written = 0
    for other, size, begin in itertools.product(others(), (64, 200, 512), range(HEADER, len(LAYERED), 8)):
        for block in (other[begin : begin + size], other[HEADER : HEADER + size]):
            content = (LAYERED[:begin] + block + LAYERED[begin + len(block) :])[: len(LAYERED)]
            changed = [at for at in range(len(content)) if content[at] != LAYERED[at]]
            if changed:
                expected = max(start for start in starts if start <= changed[0])
                refused(relay, layered() | {ACTIVE: content}, "journal_corrupt", expected)
                written += 1
    assert written > 1000


def test_a_group_that_says_another_place_is_none(relay):
    """Everything else of it is right: its segment, its ordinals, its CRCs."""
    before = segment(1, 2)
    for distance in (-64, -1, 1, 8, 512):
        content = before + oracle.group(len(before) + distance, 4, [event(4)])
        marks = {"watermark": oracle.watermark(oracle.SEGMENT, len(content))}
        refused(relay, {ACTIVE: content} | marks, "journal_corrupt", len(before))
        refused(relay, {ACTIVE: content}, "journal_undecided", len(before))


def test_the_first_block_of_another_relays_file_written_over_is_journal_conflict(relay):
    """It brings its store id with it."""
    other = others()[1]
    for size in (48, 64, 200, 512):
        files = layered() | {ACTIVE: other[:size] + LAYERED[size:]}
        assert relay.put(files).differences() == []
        assert relay.outcome.code == "journal_conflict"


def test_a_payload_that_holds_an_exact_copy_of_groups_of_the_same_segment_is_data(relay):
    """Stored as it was sent, opened as data; a tear anywhere before or in the copies is still torn."""
    before = segment(1)
    planted = before + oracle.group(len(before), 2, [event(2), b"\xc4" + before[48:] + segment(1, 2)], oracle.SEGMENT)
    body = b"\x93\xcd\x03\xe8\xa1x\xc5" + len(planted).to_bytes(2, "big") + planted
    at = len(before)
    whole = before + oracle.group(at, 2, [body])
    marks = {"watermark": oracle.watermark(oracle.SEGMENT, at)}
    assert opens(relay, {ACTIVE: whole} | marks, 2).records[2].body == body
    for size in range(at + 1, len(whole), 5):
        for files in ({ACTIVE: whole[:size]}, {ACTIVE: whole[:size]} | marks):
            assert opens(relay, files, 1).torn == len(whole[at:size].rstrip(b"\0"))
    follows = whole + oracle.group(len(whole), 3, events(3, 4))
    assert opens(relay, {ACTIVE: follows} | marks, 4).records[2].body == body
