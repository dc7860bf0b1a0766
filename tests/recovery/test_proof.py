"""The table that tells torn bytes from corrupt ones, row by row, against bytes made by hand."""

import itertools
import json
from pathlib import Path

import pytest
from support import oracle
from support.relays import OTHER_SEGMENT, ends, event, segment

from relayd.journal.watermark import Watermark, decode_watermark
from relayd.recovery.proof import Evidence, decide, end_of_content, holds_zero_piece

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "opening.json").read_text())["cases"]
COUNTS = (1, 2, 1)
WHOLE = segment(*COUNTS)
HEADER, FIRST, SECOND, LAST = (each.end for each in ends(*COUNTS))


def marked(offset: int, segment_id: bytes = oracle.SEGMENT) -> Evidence:
    return Evidence(watermark=Watermark(segment_id, offset))


@pytest.mark.parametrize("case", VECTORS, ids=[case["name"] for case in VECTORS])
def test_known_answer(case):
    mark = case["watermark_hex"]
    evidence = Evidence(watermark=None if mark is None else decode_watermark(bytes.fromhex(mark)))
    verdict = decide(bytes.fromhex(case["active_hex"]), evidence)
    assert (verdict.word, verdict.last) == (case["decision"], case["last"])


def test_row_2_corrupt_where_the_watermark_is_past_x():
    verdict = decide(WHOLE[:LAST] + b"junk", marked(LAST + 1))
    assert (verdict.word, verdict.row, verdict.x, verdict.proof) == ("corrupt", 2, LAST, LAST + 1)


def test_row_2_corrupt_where_a_good_group_header_stands_further_on():
    damaged = bytearray(WHOLE)
    damaged[FIRST + 70] ^= 1
    verdict = decide(damaged, Evidence())
    assert (verdict.word, verdict.x, verdict.last, verdict.proof) == ("corrupt", FIRST, 1, SECOND)


def test_row_2_a_header_further_on_proves_even_where_its_records_are_gone():
    damaged = bytearray(WHOLE[: SECOND + 64])
    damaged[FIRST + 70] ^= 1
    assert decide(damaged + bytes(1000), Evidence()).proof == SECOND


def test_row_2_corrupt_where_an_answered_ordinal_is_past_x_and_bytes_stand_there():
    verdict = decide(WHOLE + b"junk", Evidence(proven=5))
    assert (verdict.word, verdict.only_ordinals) == ("corrupt", False)


def test_row_2_only_ordinals_where_nothing_stands_at_x():
    for content in (WHOLE, WHOLE + bytes(700)):
        verdict = decide(content, Evidence(proven=5))
        assert (verdict.word, verdict.only_ordinals) == ("corrupt", True)


def test_row_2_not_only_ordinals_where_the_watermark_is_past_x_too():
    verdict = decide(WHOLE[:SECOND], Evidence(watermark=Watermark(oracle.SEGMENT, LAST), proven=4))
    assert (verdict.word, verdict.only_ordinals) == ("corrupt", False)


@pytest.mark.parametrize("zeros", [0, 1, 511, 4096])
def test_row_3_clean_where_nothing_or_zeros_follow(zeros):
    verdict = decide(WHOLE + bytes(zeros), marked(LAST))
    assert (verdict.word, verdict.row, verdict.x, verdict.used, verdict.last) == ("clean", 3, LAST, LAST, 4)


def test_row_4_torn_where_a_good_headers_length_passes_the_end():
    for size in (SECOND + 64, LAST - 1):
        verdict = decide(WHOLE[:size], marked(SECOND))
        assert (verdict.word, verdict.row, verdict.x, verdict.last) == ("torn", 4, SECOND, 3)


def test_row_4_torn_where_fewer_than_64_bytes_are_not_zero():
    for tail in (b"x", b"x" * 63, bytes(62) + b"x", b"x" * 63 + bytes(5000)):
        assert decide(WHOLE + tail, Evidence())[:2] == ("torn", 4)


def test_row_6_undecidable_from_64_bytes_on():
    assert decide(WHOLE + b"x" * 64, Evidence())[:2] == ("undecidable", 6)


def test_row_4_needs_a_header_of_this_segment_at_its_own_offset():
    body = event(5, 40)
    for foreign in (oracle.group(LAST, 5, [body], OTHER_SEGMENT), oracle.group(LAST + 8, 5, [body])):
        assert decide(WHOLE + foreign[:-1], Evidence()).word == "undecidable"


def test_row_5_torn_where_a_piece_of_the_group_is_zeros():
    group = oracle.group(LAST, 5, [event(5, 900)])
    begin = 512 - LAST % 512
    for at in (0, begin, begin + 512):
        stop = begin if at == 0 else at + 512
        content = WHOLE + group[:at] + bytes(stop - at) + group[stop:]
        assert decide(content, marked(LAST))[:2] == ("torn", 5)


def test_row_5_a_short_last_piece_counts_up_to_the_groups_end():
    group = oracle.group(LAST, 5, [event(5, 900)])
    short = (LAST + len(group)) % 512
    assert 0 < short < 512
    content = WHOLE + group[:-short] + bytes(short)
    assert decide(content, marked(LAST))[:2] == ("torn", 5)


def test_row_5_without_a_good_header_zeros_behind_the_content_count_for_nothing():
    """Else every damaged group before free space would look torn."""
    assert decide(WHOLE + b"x" * 1000 + bytes(4096), Evidence()).word == "undecidable"


def test_header_bad_and_nothing_known_is_torn_or_clean_at_zero():
    assert decide(b"", Evidence(before=7))[:2] == ("clean", 3)
    verdict = decide(WHOLE[:47], Evidence(before=7))
    assert (verdict.word, verdict.x, verdict.last) == ("torn", 0, 7)


def test_header_bad_any_watermark_counts_but_that_of_another_file_here():
    bad = b"\xff" + WHOLE[1:48]
    assert decide(bad, marked(48, OTHER_SEGMENT)).word == "corrupt"
    evidence = Evidence(watermark=Watermark(OTHER_SEGMENT, 48), others=frozenset({OTHER_SEGMENT}))
    assert decide(bad, evidence).word == "torn"
    assert decide(b"", marked(48, OTHER_SEGMENT)).word == "corrupt"


def test_header_bad_a_group_of_any_id_counts():
    bad = b"\xff" * 48 + segment(1, segment=OTHER_SEGMENT)[48:]
    verdict = decide(bad, Evidence())
    assert (verdict.word, verdict.x, verdict.proof) == ("corrupt", 0, 48)


def test_a_watermark_of_another_segment_counts_as_none():
    assert decide(WHOLE[:SECOND], marked(LAST, OTHER_SEGMENT)).word == "clean"


def test_what_this_process_saw_synced_is_proof():
    assert decide(WHOLE[:SECOND], Evidence(synced=LAST)).word == "corrupt"
    assert decide(WHOLE[:SECOND], Evidence(synced=SECOND)).word == "clean"


def test_a_copy_of_groups_inside_a_payload_is_data():
    """Own offsets tell: a tear before the copy is still torn."""
    planted = oracle.group(LAST, 5, [b"\xc4" + WHOLE])
    verdict = decide(WHOLE + planted[: len(planted) - 3], marked(LAST))
    assert (verdict.word, verdict.last) == ("torn", 4)
    assert decide(WHOLE + planted, marked(LAST)).last == 5


def test_every_shortening_of_the_last_group():
    """Answered: corrupt, each. Unanswered: torn, or clean where nothing of it is left."""
    for size in range(SECOND, LAST):
        assert decide(WHOLE[:size], marked(LAST)).word == "corrupt"
        for evidence in (marked(SECOND), Evidence()):
            verdict = decide(WHOLE[:size], evidence)
            assert (verdict.word, verdict.last) == ("clean" if size == SECOND else "torn", 3)


def test_every_bit_of_the_last_group():
    """Answered: corrupt, each. Unanswered and without zeros in it: nobody can tell, and none goes unnoticed."""
    for at, bit in itertools.product(range(SECOND, LAST), range(8)):
        damaged = bytearray(WHOLE)
        damaged[at] ^= 1 << bit
        assert decide(damaged, marked(LAST)).word == "corrupt"
        assert decide(damaged, Evidence()).word in {"undecidable", "torn"}


def test_every_bit_before_the_watermark_is_noticed():
    for at, bit in itertools.product(range(LAST), range(8)):
        damaged = bytearray(WHOLE)
        damaged[at] ^= 1 << bit
        verdict = decide(damaged, marked(LAST))
        assert verdict.word == "corrupt"
        assert verdict.x <= at


@pytest.mark.parametrize("piece", [512, 4096])
def test_every_power_cut_of_an_unanswered_group_is_decidable(piece):
    """Each subset of the pieces of a write that a disk may have kept, the file grown to its end or not."""
    group = oracle.group(LAST, 5, [event(5, 8 * piece // 20)])
    whole = WHOLE + group
    bounds = sorted({LAST, len(whole), *range(LAST - LAST % piece + piece, len(whole), piece)})
    pieces = list(itertools.pairwise(bounds))
    for kept in itertools.product([False, True], repeat=len(pieces)):
        content = bytearray(whole)
        for (begin, end), here in zip(pieces, kept, strict=True):
            if not here:
                content[begin:end] = bytes(end - begin)
        verdict = decide(content, marked(LAST))
        assert verdict.word == ("clean" if not any(kept) or all(kept) else "torn")
        assert verdict.last == (5 if all(kept) else 4)
        stop = max((end for (_, end), here in zip(pieces, kept, strict=True) if here), default=LAST)
        assert decide(content[:stop], Evidence()).word == verdict.word


def test_end_of_content_and_pieces_at_their_edges():
    view = memoryview(bytes(3) + b"x" + bytes(200_000) + b"y" + bytes(70_000))
    assert end_of_content(view, 0) == 200_005
    assert end_of_content(view, 200_005) == 200_005
    assert holds_zero_piece(memoryview(b"x" * 511 + b"\0"), 511, 512)
    assert not holds_zero_piece(memoryview(b"x" * 511 + b"\0" * 511 + b"x" * 2), 0, 1024)
