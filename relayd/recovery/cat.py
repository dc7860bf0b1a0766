"""`relayd cat`: the events of a segment, a journal, a relay or a backup (docs/reference/journal.md, "Offline tools").

What cannot be read is said where it is missed, and the events around it are given: each is proven by its own digest.
Ordinals follow each other; where they do not, what is missing between them is said too, and whether it should be there.
"""

import contextlib
from collections.abc import Iterator
from typing import Final, NamedTuple

from relayd.journal.names import ACTIVE, JOURNAL, SegmentKind, SegmentName
from relayd.journal.storage import File
from relayd.protocol.cursor import Cursor, Span
from relayd.protocol.errors import RelaydError
from relayd.protocol.event import Body, decode_body
from relayd.recovery.backup import read_backup, read_backup_frame
from relayd.recovery.backup_format import BackupError
from relayd.recovery.bounds import Bounds, gave_up, read_bounds
from relayd.recovery.file_kinds import file_kind
from relayd.recovery.intact import Damage, Found, scan_segment
from relayd.recovery.intact_sealed import UNKNOWN_RANGE, scan_frame, scan_sealed
from relayd.recovery.places import ActiveView, JournalPlace, is_live, judge_lone, open_place, segment_names, view_active

_TRIES: Final = 5
_GIVEN_UP: Final = "salvage has given these up"
_IN_NO_FILE: Final = "they were answered, and are in no file"


class NoSegmentError(RelaydError):
    """A file that no events can be read from."""

    code = "invalid_input"


class StoredEvent(NamedTuple):
    """An event and its own cursor. `decode` gives its body; msgspec.DecodeError where it is no event's."""

    cursor: Cursor
    stored: bytes

    def decode(self) -> Body:
        """The body."""
        return decode_body(self.stored)


class Unreadable(NamedTuple):
    """A damaged or torn place, or events that are in no file: there `offset` is None.

    `lost`: the ordinals it has cost, None where none are known to be; `at_most`: some of them may never have been used.
    """

    file: str
    offset: int | None
    lost: Span | None
    what: str
    at_most: bool = False


class Collected(NamedTuple):
    """Events that are gone and may be: no reader was owed them any more, or nothing here says that one was."""

    file: str
    gone: Span


class InFlight(NamedTuple):
    """A daemon has the relay open: `bytes` behind the watermark may not be on disk yet, and are not looked at."""

    file: str
    offset: int
    bytes: int


_Found = StoredEvent | Unreadable
Shown = _Found | Collected | InFlight


def iter_path(path: str, *, after: int = 0) -> Iterator[Shown]:
    """What is at `path`, in order of ordinals, from `after` + 1 on; changes nothing.

    `path`: a relay's directory, a journal, a backup, or one segment under whatever name. Raises NotFoundError for
    another directory, NoSegmentError for another file, LaterSealedFormatError, OSError.
    """
    with open_place(path) as place:
        if isinstance(place, JournalPlace):
            yield from _Journal(place, after).shown()
        else:
            yield from _iter_file(path, place, after)


def _show(file: str, scanned: Iterator[Found], after: int) -> Iterator[_Found]:
    for one in scanned:
        if isinstance(one, Damage):
            if one.lost is None or one.last > after:
                yield Unreadable(file, one.offset, one.lost, one.what, one.at_most)
        elif one.ordinal > after:
            yield StoredEvent(one.cursor, bytes(one.body))


def _iter_file(path: str, file: File, after: int) -> Iterator[Shown]:
    """One file, by what is in it; a range in its name helps where its own beginning is damaged."""
    kind = file_kind(path, file)
    match kind.kind:
        case "backup":
            yield from _iter_backup(path, file, after)
        case "lost":
            assert kind.name is not None, "it is told by its name"
            if kind.name.last > after:
                yield _mark(path, kind.name, after)
        case "sealed" | "groups" if kind.name is not None:
            yield from _Ordinals(kind.name.first - 1, after).named(path, _scan_named(file, kind.name), kind.name)
        case "sealed":
            yield from _iter_unnamed(path, file, after)
        case "groups":
            yield from _show(path, _scan_view(judge_lone(file.read(file.size(), 0)), None), after)
        case "map" | "watermark":
            raise NoSegmentError(f"{path}: no segment, and no events are in it; `relayd verify {path}` checks it")
        case "none":
            what = "empty" if kind.what == "empty" else "and no backup either"
            raise NoSegmentError(f"{path}: no segment, {what}")


def _iter_unnamed(path: str, file: File, after: int) -> Iterator[Shown]:
    """A file of zstd frames; a sealed segment, where it has an index or a record."""
    none = True
    for one in scan_sealed(file, UNKNOWN_RANGE):
        none = none and isinstance(one, Damage) and one.lost is None
        yield from _show(path, iter((one,)), after)
    if none:
        raise NoSegmentError(f"{path}: no segment, no record is in it")


def _iter_backup(path: str, file: File, after: int) -> Iterator[Shown]:
    try:
        backup = read_backup(file)
    except BackupError as error:
        raise NoSegmentError(f"{path}: no whole backup: {error}; take a new one with `relayd backup`") from error
    evicted = backup.head.evicted.ordinal
    if evicted > after:
        yield Collected(path, Span(after + 1, evicted))
    ordinals = _Ordinals(max(evicted, after), after)
    for frame in backup.end.frames:
        if frame.last <= after:
            continue
        plain, what = None, None
        try:
            plain = read_backup_frame(file, frame)
        except BackupError as error:
            what = str(error)
        span = Span(frame.first, frame.last)
        scanned = scan_frame(plain, file.read(frame.size, frame.offset), span, frame.offset, what)
        for hole, shown in ordinals.follow(_show(path, scanned, after)):
            if hole is not None:
                yield _missing(path, hole, "the relay no longer had these when the backup was made")
            yield shown
    if ordinals.at < backup.head.latest.ordinal:
        hole = Span(ordinals.at + 1, backup.head.latest.ordinal)
        yield _missing(path, hole, "the relay no longer had these when the backup was made")


def _scan_named(file: File, name: SegmentName) -> Iterator[Found]:
    if name.kind is SegmentKind.SEALED:
        yield from scan_sealed(file, name)
        return
    content = file.read(file.size(), 0)
    yield from scan_segment(memoryview(content), len(content), name.first, name.last)


def _scan_view(view: ActiveView, first: int | None) -> Iterator[Found]:
    """What counts of a file that groups are appended to, and a word on what stands behind it."""
    last = (first or 1) - 1
    if view.stop:
        for one in scan_segment(memoryview(view.content), view.stop, first):
            last = max(last, one.last if isinstance(one, Damage) else one.ordinal)
            yield one
    judged = view.judged
    if judged is None:
        return
    if judged.answered_behind:
        shorter = "the file is shorter than it is known to have been synced"
        what = "the file is missing, and is known to have held events" if view.missing else shorter
        yield Damage(len(view.content), last + 1, last + judged.answered_behind, what, at_most=True)
    elif judged.tail != "clean":
        told = (
            "a write that was cut off and never answered"
            if judged.tail == "torn"
            else "no whole group, and no torn one"
        )
        yield Damage(judged.stop, 1, 0, f"{judged.used - judged.stop} bytes: {told}")


def _missing(file: str, hole: Span, what: str) -> Unreadable:
    return Unreadable(file, None, hole, what)


def _mark(file: str, name: SegmentName, after: int) -> Unreadable:
    return _missing(file, Span(max(name.first, after + 1), name.last), _GIVEN_UP)


class _Ordinals:
    """How far the ordinals have been given or told of."""

    def __init__(self, at: int, after: int) -> None:
        self.at = max(at, after)
        self._after = after

    def follow(self, shown: Iterator[_Found]) -> Iterator[tuple[Span | None, _Found]]:
        """Each, with the ordinals that are missing before it."""
        for one in shown:
            span = _span_of(one)
            hole = None if span is None or span.first <= self.at + 1 else Span(self.at + 1, span.first - 1)
            if span is not None:
                self.at = max(self.at, span.last)
            yield hole, one

    def named(self, file: str, scanned: Iterator[Found], name: SegmentName) -> Iterator[_Found]:
        """A segment that should hold exactly what its name says."""
        for hole, one in self.follow(_show(file, scanned, self._after)):
            if hole is not None:
                yield _missing(file, hole, "the file does not hold these, though its name says so")
            yield one
        if self.at < name.last:
            hole = Span(self.at + 1, name.last)
            self.at = name.last
            yield _missing(file, hole, "the file does not hold these, though its name says so")


def _span_of(one: _Found) -> Span | None:
    return Span(one.cursor.ordinal, one.cursor.ordinal) if isinstance(one, StoredEvent) else one.lost


class _Journal:
    """File after file. One that a daemon has rotated, sealed or collected meanwhile is looked up again."""

    def __init__(self, place: JournalPlace, after: int) -> None:
        self._place = place
        self._after = after
        self._live = place.relay is not None and is_live(place.relay)
        self._bounds: Bounds = read_bounds(place)
        self._ordinals = _Ordinals(after, after)
        self._label = JOURNAL if place.relay is not None else "."
        self._begun = False

    def shown(self) -> Iterator[Shown]:
        tries = 0
        while True:
            at = self._ordinals.at
            active = view_active(self._place, at, live=self._live)
            names = [name for name in segment_names(self._place.journal) if name.last > at]
            follows = names[0].first if names else _first_of(active)
            if self._live and tries < _TRIES and follows is not None and follows > at + 1:
                # A name that was given while the names were listed may not be among them.
                tries += 1
                continue
            if not names:
                yield from self._show_active(active)
                return
            try:
                yield from self._show_segment(names[0])
                tries = 0
            except FileNotFoundError:
                tries += 1
                if tries > _TRIES:
                    raise

    def _show_segment(self, name: SegmentName) -> Iterator[Shown]:
        """Raises FileNotFoundError before anything is given, or not at all."""
        file = self._place.prefix + name.text
        if name.kind is SegmentKind.LOST:
            yield from self._follow(iter((_mark(file, name, self._ordinals.at),)))
            return
        with contextlib.closing(self._place.journal.open(name.text, "read")) as opened:
            # Nothing of it is given again, where another file had it.
            at = self._ordinals.at
            ordinals = _Ordinals(max(name.first - 1, at), at)
            yield from self._follow(ordinals.named(file, _scan_named(opened, name), name))

    def _show_active(self, view: ActiveView | None) -> Iterator[Shown]:
        if view is not None:
            file = self._place.prefix + ACTIVE
            at = self._ordinals.at
            yield from self._follow(_show(file, _scan_view(view, at + 1), at))
            if view.in_flight > 0:
                # What a daemon has answered may be among them: nothing is missing for all that is known here.
                yield InFlight(file, view.stop, view.in_flight)
                return
        at, answered = self._ordinals.at, self._bounds.answered
        if at < answered:
            yield from self._hole(Span(at + 1, answered), None)

    def _follow(self, shown: Iterator[_Found]) -> Iterator[Shown]:
        for hole, one in self._ordinals.follow(shown):
            if hole is not None:
                yield from self._hole(hole, one)
            self._begun = True
            yield one

    def _hole(self, hole: Span, behind: _Found | None) -> Iterator[Shown]:
        """What becomes of ordinals that no file holds; `behind`: what comes after them."""
        if isinstance(behind, StoredEvent) and gave_up(behind.cursor.ordinal, behind.stored, hole):
            yield _missing(self._label, hole, _GIVEN_UP)
            return
        if self._live:
            # What was there when this began may have been collected since.
            self._bounds = read_bounds(self._place)
        base = self._bounds.base
        if base is None:
            # Nothing tells where the journal may begin; once it has, ordinals follow each other.
            base = self._after if self._begun else hole.last
        if hole.first <= base:
            yield Collected(self._label, Span(hole.first, min(hole.last, base)))
        if hole.last > base:
            yield _missing(self._label, Span(max(hole.first, base + 1), hole.last), _IN_NO_FILE)


def _first_of(view: ActiveView | None) -> int | None:
    """The first ordinal in active.log, where it holds any."""
    if view is None or not view.stop:
        return None
    found = next(iter(_show(ACTIVE, scan_segment(memoryview(view.content), view.stop), 0)), None)
    span = None if found is None else _span_of(found)
    return None if span is None else span.first
