"""Which records of a damaged sealed segment are intact (docs/reference/journal.md, "Offline tools").

A reader takes nothing of a frame whose checksum fails. The offline tools expand what they can of it, and prove each
record by its own digest; where the index is damaged they find the frames by reading the file from its beginning.
"""

import contextlib
from collections.abc import Iterator
from typing import Final

import zstandard

from relayd.journal.frames import FRAME_PLAIN_BYTES_MAX, FRAME_STORED_BYTES_MAX
from relayd.journal.names import SegmentKind, SegmentName
from relayd.journal.sealed import LaterSealedFormatError, SealedError, SealedIndex, read_frame, read_index
from relayd.journal.storage import File
from relayd.protocol.cursor import Span
from relayd.protocol.event import RECORD_HEADER_BYTES, Record
from relayd.protocol.limits import MIB, ORDINAL_MAX
from relayd.recovery.intact import Damage, Found, intact_record, scan_records

_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_FEED_BYTES: Final = 256
_WINDOW_BYTES_MAX: Final = 4 * MIB


UNKNOWN_RANGE: Final = SegmentName(SegmentKind.SEALED, 1, ORDINAL_MAX)
"""For a sealed segment under a name without a range."""


def scan_sealed(file: File, name: SegmentName) -> Iterator[Found]:
    """What a sealed segment holds: what its index says, or without one what can be found in the range of its name.

    Raises LaterSealedFormatError where a later version wrote it, OSError.
    """
    try:
        index = read_index(file)
    except LaterSealedFormatError:
        raise
    except SealedError as error:
        yield Damage(error.offset, name.first, name.first - 1, f"{error}; its frames were looked for one by one")
        yield from _scan_without_index(file, name)
        return
    for number in range(len(index.frames)):
        yield from _scan_frame(file, index, number)


def _scan_frame(file: File, index: SealedIndex, number: int) -> Iterator[Found]:
    frame, last = index.frames[number], index.last_of(number)
    try:
        plain, what = read_frame(file, index, number), None
    except SealedError as error:
        plain, what = None, str(error)
    yield from scan_frame(plain, file.read(frame.size, frame.offset), Span(frame.first, last), frame.offset, what)


def scan_frame(plain: bytes | None, stored: bytes, span: Span, offset: int, what: str | None) -> Iterator[Found]:
    """A frame of whole records, which should be `span`. `plain`: what it expands to; None where it is damaged: `what`.

    Of a damaged one, what still can be expanded of the bytes `stored` is taken.
    """
    lost = False
    for found in scan_records(memoryview(_expand(stored)[0] if plain is None else plain), *span):
        if isinstance(found, Record):
            yield found
        else:
            lost = True
            yield found._replace(offset=offset, what=what or found.what)
    if what is not None and not lost:
        yield Damage(offset, span.last + 1, span.last, what)


def _scan_without_index(file: File, name: SegmentName) -> Iterator[Found]:
    """Frame after frame from the beginning; `expected` is the next ordinal wanted."""
    at, size, expected = 0, file.size(), name.first
    known = name != UNKNOWN_RANGE
    while at < size:
        window = file.read(FRAME_STORED_BYTES_MAX, at)
        plain, used = _expand(window) if window.startswith(_MAGIC) else (b"", 0)
        first = _first_of(plain, expected, name.last)
        if first is not None:
            if first > expected and known:
                yield Damage(at, expected, first - 1, "frames before this one cannot be read")
            expected = first
            for found in _scan_unknown(memoryview(plain), first, name.last):
                yield found
                expected = found.ordinal + 1
        at += used or _next_magic(window)
    if expected <= name.last and known:
        yield Damage(at, expected, name.last, "no frame that holds these could be read")


def _first_of(plain: bytes, expected: int, last: int) -> int | None:
    record = intact_record(memoryview(plain), 0, len(plain))
    return record.ordinal if record is not None and expected <= record.ordinal <= last else None


def _scan_unknown(view: memoryview, first: int, last: int) -> Iterator[Record]:
    """Records from `first` on, as far as they follow each other; how many there are is not known."""
    at = 0
    while first <= last and (record := intact_record(view, at, len(view), first)) is not None:
        yield record
        at, first = at + RECORD_HEADER_BYTES + len(record.body), first + 1


def _next_magic(window: bytes) -> int:
    """How far to the next place in `window` where a frame could begin; at least 1."""
    found = window.find(_MAGIC, 1)
    return found if found > 0 else max(1, len(window) - len(_MAGIC) + 1)


def _expand(stored: bytes) -> tuple[bytes, int]:
    """What the frame at the beginning of `stored` expands to, as far as it does, and the bytes it has; 0: not told.

    Of a frame that fails its checksum everything is given.
    """
    plain, used = _feed(stored, _FEED_BYTES)
    # A call that fails hands out nothing, so the last bytes before the failure are fed one by one.
    return (plain, used) if used else _feed(stored, 1)


def _feed(stored: bytes, step: int) -> tuple[bytes, int]:
    expanding = zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES_MAX).decompressobj()
    parts: list[bytes] = []
    plain_bytes, at = 0, 0
    with contextlib.suppress(zstandard.ZstdError):
        while at < len(stored) and not expanding.eof and plain_bytes <= FRAME_PLAIN_BYTES_MAX:
            part = expanding.decompress(stored[at : at + step])
            parts.append(part)
            plain_bytes += len(part)
            at += step
    used = min(at, len(stored)) - len(expanding.unused_data) if expanding.eof else 0
    return b"".join(parts), used
