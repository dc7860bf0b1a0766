"""`relayd cat`: the events of a segment, a journal or a relay, as they are on disk (docs/reference/journal.md).

What cannot be read is said where it is missed, and the events around it are given: each is proven by its own digest.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from relayd.journal.names import ACTIVE, SegmentKind, SegmentName, parse_segment_name
from relayd.journal.storage import File
from relayd.protocol.cursor import Cursor, Span
from relayd.protocol.event import Body, decode_body
from relayd.recovery.intact import Damage, Found, scan_segment
from relayd.recovery.intact_sealed import UNKNOWN_RANGE, scan_sealed
from relayd.recovery.places import ActiveView, JournalPlace, is_live, judge_lone, open_place, segment_names, view_active

_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_TRIES: Final = 5


class StoredEvent(NamedTuple):
    """An event and its own cursor. `decode` gives its body; msgspec.DecodeError where it is no event's."""

    cursor: Cursor
    stored: bytes

    def decode(self) -> Body:
        """The body."""
        return decode_body(self.stored)


class Unreadable(NamedTuple):
    """A damaged or torn place. `lost`: the ordinals it has cost, None where none are known to be."""

    file: str
    offset: int
    lost: Span | None
    what: str


class InFlight(NamedTuple):
    """A daemon has the relay open: `bytes` behind the watermark may not be on disk yet, and are not looked at."""

    file: str
    offset: int
    bytes: int


Shown = StoredEvent | Unreadable | InFlight


def iter_path(path: str, *, after: int = 0) -> Iterator[Shown]:
    """What is at `path`, in order of ordinals, from `after` + 1 on; changes nothing.

    `path`: a relay's directory, a journal, or one segment under whatever name. Raises NotFoundError for anything else,
    LaterSealedFormatError, OSError.
    """
    with open_place(path) as place:
        if not isinstance(place, JournalPlace):
            yield from _show(path, _scan_file(path, place), after)
        else:
            yield from _iter_journal(place, after)


def _show(file: str, scanned: Iterator[Found], after: int) -> Iterator[StoredEvent | Unreadable]:
    for one in scanned:
        if isinstance(one, Damage):
            if one.lost is None or one.last > after:
                yield Unreadable(file, one.offset, one.lost, one.what)
        elif one.ordinal > after:
            yield StoredEvent(one.cursor, bytes(one.body))


def _scan_file(path: str, file: File) -> Iterator[Found]:
    """One file, by what is in it; a range in its name helps where its own beginning is damaged."""
    name = parse_segment_name(Path(path).name)
    if (name is not None and name.kind is SegmentKind.SEALED) or file.read(len(_ZSTD), 0) == _ZSTD:
        yield from scan_sealed(file, name if name is not None and name.kind is SegmentKind.SEALED else UNKNOWN_RANGE)
        return
    if name is not None and name.kind is SegmentKind.ROTATED:
        yield from _scan_named(file, name)
    else:
        yield from _scan_view(judge_lone(file.read(file.size(), 0)), None)


def _scan_view(view: ActiveView, first: int | None) -> Iterator[Found]:
    """What counts of a file that groups are appended to, and a word on what stands behind it."""
    if view.stop:
        yield from scan_segment(memoryview(view.content), view.stop, first)
    judged = view.judged
    if judged is not None and judged.tail != "clean":
        told = (
            "a write that was cut off and never answered"
            if judged.tail == "torn"
            else "no whole group, and no torn one"
        )
        yield Damage(judged.stop, 1, 0, f"{judged.used - judged.stop} bytes: {told}")


def _iter_journal(place: JournalPlace, after: int) -> Iterator[Shown]:
    """File after file. One that a daemon has rotated, sealed or collected meanwhile is looked up again."""
    live = place.relay is not None and is_live(place.relay)
    at, tries = after, 0
    while True:
        active = view_active(place, at, live=live)
        names = [name for name in segment_names(place.journal) if name.last > at]
        if not names:
            yield from _show_active(place, active, at)
            return
        try:
            yield from _iter_segment(place, names[0], at)
            at, tries = names[0].last, 0
        except FileNotFoundError:
            tries += 1
            if tries > _TRIES:
                raise


def _iter_segment(place: JournalPlace, name: SegmentName, after: int) -> Iterator[Shown]:
    """Raises FileNotFoundError before anything is given, or not at all."""
    file = place.prefix + name.text
    if name.kind is SegmentKind.LOST:
        yield Unreadable(file, 0, Span(max(name.first, after + 1), name.last), "salvage has given these up")
        return
    with contextlib.closing(place.journal.open(name.text, "read")) as opened:
        yield from _show(file, _scan_named(opened, name), after)


def _scan_named(file: File, name: SegmentName) -> Iterator[Found]:
    if name.kind is SegmentKind.SEALED:
        yield from scan_sealed(file, name)
        return
    content = file.read(file.size(), 0)
    yield from scan_segment(memoryview(content), len(content), name.first, name.last)


def _show_active(place: JournalPlace, view: ActiveView | None, after: int) -> Iterator[Shown]:
    if view is None:
        return
    file = place.prefix + ACTIVE
    yield from _show(file, _scan_view(view, after + 1), after)
    if view.in_flight > 0:
        yield InFlight(file, view.stop, view.in_flight)
