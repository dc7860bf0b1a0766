"""What counts of active.log for the offline tools (docs/reference/journal.md, "Opening", 3, and "Offline tools").

Opening stops at X, the first place where no whole group stands. Salvage goes on behind damage to the groups that stand
further on, and has to judge what is behind the last of them in the same way.
"""

from typing import Literal, NamedTuple
from zlib import crc32

from relayd.journal.segment import GROUP_HEADER_BYTES, GroupHeader, find_group_headers
from relayd.recovery.intact import RECORD_BYTES_MIN
from relayd.recovery.proof import Evidence, Verdict, end_of_content, holds_zero_piece


class Judged(NamedTuple):
    """The first `stop` bytes count; `tail` says what is behind them. `used`: where the last byte not zero ends.

    `answered_behind`: how many more records, at most, were answered and stood where the file has nothing any more.
    """

    stop: int
    used: int
    tail: Literal["clean", "torn", "undecidable"]
    damaged: bool
    answered_behind: int = 0


def judge(content: bytes, verdict: Verdict, evidence: Evidence) -> Judged:
    """Judges the whole content of active.log, of which opening said `verdict` by `evidence`."""
    if verdict.word != "corrupt":
        return Judged(verdict.x, verdict.used, verdict.word, damaged=False)
    view = memoryview(content)
    segment = None if verdict.header is None else verdict.header.segment
    headers = list(find_group_headers(view, verdict.x, segment))
    start, last = verdict.x, verdict.last
    if headers:
        newest = headers[-1]
        whole = (
            newest.end <= len(view)
            and crc32(view[newest.offset + GROUP_HEADER_BYTES : newest.end]) == newest.payload_crc
        )
        start = newest.end if whole else newest.offset
        last = max(last, newest.first + newest.count - 1 if whole else newest.first - 1)
    used = end_of_content(view, start)
    synced = _synced(verdict, headers)
    if synced > start or evidence.proven > last:
        told = max(used, headers[-1].end if headers else 0)
        return Judged(max(used, start), used, "clean", damaged=True, answered_behind=_most(synced - told))
    newest_is_torn = headers[-1] if headers and headers[-1].offset == start else None
    return Judged(start, used, _judge_tail(view, start, used, newest_is_torn), damaged=True)


def _synced(verdict: Verdict, headers: list[GroupHeader]) -> int:
    """How far the file is known synced, from outside of it or from the headers in it."""
    by_headers = headers[-1].offset if headers else 0
    return max(verdict.proof, by_headers)


def _most(missing_bytes: int) -> int:
    return max(0, -(-missing_bytes // RECORD_BYTES_MIN))


def _judge_tail(
    view: memoryview, start: int, used: int, header: GroupHeader | None
) -> Literal["clean", "torn", "undecidable"]:
    """Rows 3 to 6 of the table, for what is behind the last whole group."""
    if used == start:
        return "clean"
    if used - start < GROUP_HEADER_BYTES or (header is not None and header.end > len(view)):
        return "torn"
    return "torn" if holds_zero_piece(view, start, used if header is None else header.end) else "undecidable"
