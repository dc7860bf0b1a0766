"""The table that tells torn bytes from corrupt ones (docs/reference/journal.md, "Opening", 3), written a second time.

Part of the judge (judge.py). Imports nothing of relayd.
"""

from collections.abc import Iterator
from typing import NamedTuple

from chaos.at_rest.judge_files import (
    GROUP_HEADER_BYTES,
    HEADER_BYTES,
    Group,
    LaterFormatError,
    SegmentHeader,
    Watermark,
    group_header,
    groups_in,
)

PIECE = 512


class Evidence(NamedTuple):
    """What speaks beside active.log: its watermark, the ids of other files here, the greatest ordinal answered.

    `before`: the last ordinal in the files before this one.
    """

    watermark: Watermark | None
    other_segments: frozenset[bytes]
    answered: int
    before: int


class Verdict(NamedTuple):
    """`word`: clean, torn, corrupt, ahead (corrupt by an answered ordinal alone), undecided; `torn`: so many bytes."""

    word: str
    row: int
    x: int
    last: int
    groups: list[Group]
    torn: int


def weigh(data: bytes, header: SegmentHeader | None, evidence: Evidence) -> Verdict:
    """The first row that fits."""
    groups = [] if header is None else groups_in(data, header.segment, None)
    if (
        header is not None
        and header.segment in evidence.other_segments
        and not groups
        and data[HEADER_BYTES:].strip(b"\0")
    ):
        header = None
    x = groups[-1].end if groups else 0 if header is None else HEADER_BYTES
    last = groups[-1].last if groups else evidence.before
    content = len(data[x:].rstrip(b"\0"))
    good = None if header is None else group_header(data, x, header.segment)
    if good is not None and good.format != 1:
        raise LaterFormatError

    def row(number: int, word: str) -> Verdict:
        return Verdict(word, number, x, last, groups, content if word == "torn" else 0)

    if _proof(data, x, header, evidence) > x:
        return row(2, "corrupt")
    if evidence.answered > last:
        return row(2, "corrupt" if content else "ahead")
    if not content:
        return row(3, "clean")
    if content < GROUP_HEADER_BYTES or (good is not None and x + GROUP_HEADER_BYTES + good.length > len(data)):
        return row(4, "torn")
    end = x + content if good is None else x + GROUP_HEADER_BYTES + good.length
    if any(not piece.strip(b"\0") for piece in _pieces(data, x, end)):
        return row(5, "torn")
    return row(6, "undecided")


def _proof(data: bytes, x: int, header: SegmentHeader | None, evidence: Evidence) -> int:
    """P, as far as bytes tell it."""
    mark = evidence.watermark
    if mark is None:
        counted = 0
    elif header is None:
        counted = 0 if mark.segment in evidence.other_segments else mark.offset
    else:
        counted = mark.offset if mark.segment == header.segment else 0
    return max([counted, *_headers_behind(data, x, None if header is None else header.segment)])


def _headers_behind(data: bytes, x: int, segment: bytes | None) -> Iterator[int]:
    at = data.find(b"RLYG", x + 1)
    while at >= 0:
        if group_header(data, at, segment) is not None:
            yield at
        at = data.find(b"RLYG", at + 1)


def _pieces(data: bytes, begin: int, end: int) -> Iterator[bytes]:
    """The bytes from `begin` to `end`, cut at multiples of 512 of the file."""
    while begin < end:
        stop = min(end, begin - begin % PIECE + PIECE)
        yield data[begin:stop]
        begin = stop
