"""Which records of a damaged file of groups are intact. Pure (docs/reference/journal.md, "Offline tools").

Opening takes whole groups only. The offline tools look closer: a record is proven by its own digest, so one damaged
record does not cost the group around it. Where a record stands is taken from the file's structure (group headers,
lengths), because a body may hold the bytes of a record: nothing is taken from inside a body unless what follows it
leads, record by record, exactly to the end of the group.
"""

import re
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple
from zlib import crc32

from relayd.journal.segment import (
    GROUP_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    GroupHeader,
    decode_segment_header,
    find_group_headers,
)
from relayd.protocol.cursor import Span
from relayd.protocol.event import RECORD_HEADER, RECORD_HEADER_BYTES, Record, digest_of
from relayd.protocol.limits import EVENT_BODY_BYTES_MAX, ORDINAL_MAX

RECORD_BYTES_MIN: Final = RECORD_HEADER_BYTES + 1

_ORDINAL: Final = struct.Struct("<Q")
_LOW_BITS: Final = 24
"""Bits of an ordinal that a scan leaves open; the bytes above them it looks for."""


class Damage(NamedTuple):
    """A damaged place: where in the file, in a sentence what is wrong, and the ordinals `first` to `last` lost by it.

    None are lost where `last` is below `first`. `at_most`: how many stood there cannot be told; `last` is the greatest
    that could have fitted.
    """

    offset: int
    first: int
    last: int
    what: str
    at_most: bool = False

    @property
    def lost(self) -> Span | None:
        """The ordinals lost."""
        return Span(self.first, self.last) if self.first <= self.last else None


Found = Record | Damage
"""A file as it reads from its beginning: intact records, and damaged places between them."""


def scan_segment(view: memoryview, stop: int, first: int | None = None, last: int | None = None) -> Iterator[Found]:
    """What a file of groups holds in its first `stop` bytes. `view` is the file from its beginning.

    `first`, `last`: the ordinals it begins and ends with, where it does not tell that itself. Ordinals only rise.
    Raises nothing.
    """
    header = decode_segment_header(view)
    segment = None if header is None else header.segment
    headers = list(find_group_headers(view[:stop], SEGMENT_HEADER_BYTES, segment))
    if header is None:
        yield Damage(0, 0, -1, "the segment's header does not check")
        # Every header of one file carries the same id; a stray one of another file does not lead.
        headers = [found for found in headers if found.segment == headers[0].segment]
    expected = _own_first(view, stop, headers) or first
    at = min(SEGMENT_HEADER_BYTES, stop)
    for number, group in enumerate(headers):
        if group.offset < at:
            continue
        if expected is None:
            expected = group.first
            if group.offset > at:
                yield Damage(at, expected, expected - 1, "no group begins here; what stood here cannot be told")
        elif group.first < expected:
            yield Damage(group.offset, expected, expected - 1, f"a group goes back to ordinal {group.first}")
            continue
        elif group.offset > at:
            yield from _scan_records(view, at, group.offset, expected, group.first - 1, in_group=False)
        elif group.first > expected:
            yield Damage(at, expected, group.first - 1, f"a group begins with {group.first} where {expected} belongs")
        following = next((later.offset for later in headers[number + 1 :] if later.offset > group.offset), stop)
        at = min(group.end, following)
        yield from _scan_group(view, group, at)
        expected = group.first + group.count
    if at < stop:
        expected = expected or 1
        known = last if last is not None and expected <= last else None
        yield from _scan_records(view, at, stop, expected, known, in_group=False)


def _own_first(view: memoryview, stop: int, headers: list[GroupHeader]) -> int | None:
    """The ordinal that the file begins with, where its first group still tells."""
    if headers and headers[0].offset == SEGMENT_HEADER_BYTES:
        return headers[0].first
    record = intact_record(view, SEGMENT_HEADER_BYTES + GROUP_HEADER_BYTES, stop)
    return None if record is None else record.ordinal


def _scan_group(view: memoryview, group: GroupHeader, stop: int) -> Iterator[Found]:
    """The records of a group whose header is good; the file, or the next group, begins to differ at `stop`."""
    start, last = group.offset + GROUP_HEADER_BYTES, group.first + group.count - 1
    damaged = False
    for found in _scan_records(view, start, stop, group.first, last, in_group=True):
        damaged = damaged or isinstance(found, Damage)
        yield found
    if not damaged and (stop != group.end or crc32(view[start:stop]) != group.payload_crc):
        yield Damage(group.offset, last + 1, last, "the group's CRC is not that of its records")


def scan_records(view: memoryview, first: int, last: int) -> Iterator[Found]:
    """What stands of the records `first` to `last` in `view`, which should be exactly those."""
    return _scan_records(view, 0, len(view), first, last, in_group=True)


def _scan_records(
    view: memoryview, at: int, stop: int, expected: int, last: int | None, *, in_group: bool
) -> Iterator[Found]:
    """Records from `at` to `stop`, `expected` and following, up to `last` where that is known.

    `in_group`: nothing but records stands here; else a damaged group header may come before each.
    """
    while at < stop and (last is None or expected <= last):
        record = intact_record(view, at, stop, expected)
        if record is not None:
            yield record
            at, expected = _end(record, at), expected + 1
            continue
        resumed = _resume(view, at, stop, expected, last, in_group=in_group)
        if resumed is None:
            break
        place, ordinal = resumed
        what = "a record's bytes are not those its digest was made of" if ordinal > expected else "no group begins here"
        yield Damage(at, expected, ordinal - 1, what)
        at, expected = place, ordinal
    if last is None:
        if at < stop:
            most = min(expected - 1 + (stop - at) // RECORD_BYTES_MIN, ORDINAL_MAX)
            yield Damage(at, expected, most, "nothing here can be read", at_most=True)
    elif expected <= last:
        yield Damage(at, expected, last, "a record's bytes are damaged, or missing")
    elif at < stop:
        yield Damage(at, expected, expected - 1, "bytes stand here that belong to no record")


def intact_record(view: memoryview, at: int, stop: int, expected: int | None = None) -> Record | None:
    """The record that stands whole between `at` and `stop`, its digest right; `expected`: with this ordinal only."""
    header = _header(view, at, stop)
    if header is None or (expected is not None and header[1] != expected):
        return None
    length, ordinal, digest = header
    start = at + RECORD_HEADER_BYTES
    body = view[start : start + length]
    return Record(ordinal, digest, body) if digest_of(ordinal, body) == digest else None


def _end(record: Record, at: int) -> int:
    return at + RECORD_HEADER_BYTES + len(record.body)


def _header(view: memoryview, at: int, stop: int) -> tuple[int, int, bytes] | None:
    """Length, ordinal and digest of what could be a record at `at`, where its length is possible before `stop`."""
    if at < 0 or at + RECORD_BYTES_MIN > stop:
        return None
    length, ordinal, digest = RECORD_HEADER.unpack_from(view, at)
    if not 1 <= length <= EVENT_BODY_BYTES_MAX or at + RECORD_HEADER_BYTES + length > stop or ordinal == 0:
        return None
    return length, ordinal, digest


def _resume(
    view: memoryview, at: int, stop: int, expected: int, last: int | None, *, in_group: bool
) -> tuple[int, int] | None:
    """Where reading goes on behind the damage at `at`, and with which ordinal; None: nowhere before `stop`."""
    header = _header(view, at, stop)
    if header is not None:
        end = at + RECORD_HEADER_BYTES + header[0]
        if end == stop and last in (None, expected) and header[1] == expected:
            return end, expected + 1
        if end < stop and _leads_to(view, end, stop, expected + 1, last, in_group=in_group):
            return end, expected + 1
    if not in_group and intact_record(view, at + GROUP_HEADER_BYTES, stop, expected) is not None:
        return at + GROUP_HEADER_BYTES, expected
    for place in _candidates(view, at + 1, stop, expected + 1, last):
        ordinal = _ORDINAL.unpack_from(view, place + 4)[0]
        in_range = expected < ordinal and (last is None or ordinal <= last)
        if not in_range or not _leads_to(view, place, stop, ordinal, last, in_group=in_group):
            continue
        if intact_record(view, place, stop, ordinal) is not None:
            return place, ordinal
    return None


def _leads_to(view: memoryview, at: int, stop: int, ordinal: int, last: int | None, *, in_group: bool) -> bool:
    """Whether headers of records, from `ordinal` at `at` upward, follow each other exactly to `stop` and `last`."""
    while at < stop:
        header = _header(view, at, stop)
        if (header is None or header[1] != ordinal) and not in_group:
            at += GROUP_HEADER_BYTES
            header = _header(view, at, stop)
        if header is None or header[1] != ordinal:
            return False
        at, ordinal = at + RECORD_HEADER_BYTES + header[0], ordinal + 1
    return at == stop and last in (None, ordinal - 1)


def _candidates(view: memoryview, start: int, stop: int, first: int, last: int | None) -> Iterator[int]:
    """Offsets where a possible length stands before the upper bytes of an ordinal from `first` to `last`."""
    greatest = first + (stop - start) // RECORD_BYTES_MIN if last is None else last
    uppers = range(first >> _LOW_BITS, (greatest >> _LOW_BITS) + 1)[:8]
    upper = b"|".join(re.escape(number.to_bytes(5, "little")) for number in uppers)
    pattern = re.compile(rb"(?=(?!\x00{4})..[\x00-\x20]\x00...(?:" + upper + rb"))", re.DOTALL)
    for found in pattern.finditer(view[:stop], start):
        if found.start() + RECORD_BYTES_MIN <= stop:
            yield found.start()
