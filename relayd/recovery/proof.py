"""What stands behind the last whole group of active.log: nothing, a torn write, or damage. Pure.

docs/reference/journal.md, "Opening", is the table that `decide` follows row by row. X is the first offset where no
whole group stands; P, the proof, is how far the file is known to have been synced. Torn bytes were never answered and
are set aside; corrupt ones were, and are nobody's to cut. Where neither can be shown, nothing is guessed.
"""

from typing import Final, Literal, NamedTuple

from relayd.journal.segment import (
    GROUP_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    Group,
    GroupHeader,
    SegmentHeader,
    decode_group_header,
    decode_segment_header,
    find_group_headers,
    walk_groups,
)
from relayd.journal.watermark import Watermark
from relayd.protocol.event import Buffer

PIECE_BYTES: Final = 512
"""A disk persists at least this much of a write whole, or not at all."""
_ZERO_PIECE: Final = bytes(PIECE_BYTES)
_SCAN_BYTES: Final = 1 << 16
_ZEROS: Final = bytes(_SCAN_BYTES)

Word = Literal["clean", "torn", "corrupt", "undecidable"]


class Evidence(NamedTuple):
    """What is known from outside of the file.

    `others`: the segment ids of the other files of this journal. `before`: the last ordinal of the files before this
    one. `proven`: the greatest ordinal known to have been answered (the newest usable snapshot's frontier, the
    acknowledged cursors); 0 for none. `synced`: bytes of this file that this process saw synced; 0 for none.
    """

    watermark: Watermark | None = None
    others: frozenset[bytes] = frozenset()
    before: int = 0
    proven: int = 0
    synced: int = 0


class Verdict(NamedTuple):
    """What the table says. `x`, `proof`, `used`: offsets; `used` is where the last byte that is not zero ends.

    `header` is None where the segment header does not check, or is another file's. `last` is the last ordinal before
    X, of the files before where this one holds none. `only_ordinals`: corrupt for no other reason than ordinals known
    to have been answered, with nothing but free space behind X.
    """

    word: Word
    row: int
    header: SegmentHeader | None
    groups: tuple[Group, ...]
    x: int
    last: int
    proof: int
    used: int
    only_ordinals: bool = False


def decide(buffer: Buffer, evidence: Evidence, expected_first: int | None = None) -> Verdict:
    """Judges the whole content of active.log. Rows 2 to 6 of the table; row 1, a read error, is its caller's.

    `expected_first` is the ordinal its first group must have; None: any. Raises nothing.
    """
    view = memoryview(buffer)
    header = decode_segment_header(view)
    if header is not None and header.segment in evidence.others and not begins_with_group(view, header):
        header = None  # A block of that file was written over the beginning.
    groups = () if header is None else tuple(walk_groups(view, header.segment, expected_first=expected_first))
    x = groups[-1].end if groups else SEGMENT_HEADER_BYTES if header is not None else 0
    last = groups[-1].last if groups else evidence.before
    used = end_of_content(view, x)
    proof = max(evidence.synced, _watermark_proof(evidence, header), _header_proof(view, x, used, header))
    ahead = evidence.proven > last

    def verdict(word: Word, row: int, *, only_ordinals: bool = False) -> Verdict:
        return Verdict(word, row, header, groups, x, last, proof, used, only_ordinals)

    free = used == x
    if proof > x or ahead:
        return verdict("corrupt", 2, only_ordinals=free and proof <= x)
    if free:
        return verdict("clean", 3)
    torn_header = _own_header(view, x, header)
    if used - x < GROUP_HEADER_BYTES or (torn_header is not None and torn_header.end > len(view)):
        return verdict("torn", 4)
    if holds_zero_piece(view, x, used if torn_header is None else torn_header.end):
        return verdict("torn", 5)
    return verdict("undecidable", 6)


def begins_with_group(buffer: Buffer, header: SegmentHeader) -> bool:
    """Whether a group with the header's segment id stands behind it, or nothing does: the id is this file's own."""
    view = memoryview(buffer)
    is_empty = end_of_content(view, SEGMENT_HEADER_BYTES) == SEGMENT_HEADER_BYTES
    return is_empty or next(walk_groups(view, header.segment), None) is not None


def _watermark_proof(evidence: Evidence, header: SegmentHeader | None) -> int:
    watermark = evidence.watermark
    if watermark is None:
        return 0
    if header is None:
        # Whose it is cannot be told from the file; it is this one's unless another file here has that id.
        return 0 if watermark.segment in evidence.others else watermark.offset
    return watermark.offset if watermark.segment == header.segment else 0


def _header_proof(view: memoryview, x: int, used: int, header: SegmentHeader | None) -> int:
    """The offset of the last group header behind X: all before it was synced when it was written."""
    segment = None if header is None else header.segment
    # A header ends in zeros, which `used` does not count.
    content = view[: used + GROUP_HEADER_BYTES]
    return max((found.offset for found in find_group_headers(content, x + 1, segment)), default=0)


def _own_header(view: memoryview, x: int, header: SegmentHeader | None) -> GroupHeader | None:
    """The good header of this segment at X; no length is believed without it."""
    found = decode_group_header(view, x)
    if found is None or header is None or found.segment != header.segment or found.offset != x:
        return None
    return found


def end_of_content(view: memoryview, start: int) -> int:
    """Where the last byte from `start` on that is not zero ends; `start` where all are zeros."""
    end = len(view)
    while end > start:
        begin = max(start, end - _SCAN_BYTES)
        part = view[begin:end]
        if bytes(part) != _ZEROS[: len(part)]:
            return begin + len(bytes(part).rstrip(b"\0"))
        end = begin
    return start


def holds_zero_piece(view: memoryview, start: int, end: int) -> bool:
    """Whether `start` to `end`, cut at multiples of 512 of the file, holds a piece of zeros; the ends may be short."""
    while start < end:
        stop = min(end, start - start % PIECE_BYTES + PIECE_BYTES)
        if bytes(view[start:stop]) == _ZERO_PIECE[: stop - start]:
            return True
        start = stop
    return False
