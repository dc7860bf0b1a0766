"""What each file of a journal holds, record by record (docs/reference/journal.md, "Offline tools").

Read for salvage: nothing is changed, and one segment is in memory at a time.
"""

import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import NamedTuple

import msgspec

from relayd.journal.names import ACTIVE, JOURNAL, SegmentKind, SegmentName
from relayd.journal.sealed import LaterSealedFormatError, SealedError, read_index
from relayd.journal.segment import decode_segment_header, is_later_group, is_later_segment
from relayd.journal.storage import File
from relayd.protocol.cursor import Span
from relayd.protocol.event import Record, decode_body
from relayd.protocol.kinds import RelayLost
from relayd.recovery.intact import Damage, Found, scan_segment
from relayd.recovery.intact_sealed import scan_sealed
from relayd.recovery.judged import Judged, judge
from relayd.recovery.proof import Evidence, decide
from relayd.recovery.refusal import refusal
from relayd.recovery.survey import Survey, refusing, sealed_newest_first

Progress = Callable[[int], None]
"""Told how many bytes were read since it was last called."""


class Contents(NamedTuple):
    """One file. `runs`: its intact records, as spans without a hole. `segment`: its id, where it still tells.

    `foreign`: it is another relay's. `gave_up`: what `relay.lost` events at the beginning of runs name.
    """

    name: SegmentName
    runs: tuple[Span, ...]
    damages: tuple[Damage, ...]
    segment: bytes | None = None
    foreign: bool = False
    gave_up: tuple[Span, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether it is exactly what its name says."""
        return not self.damages and not self.foreign and self.runs == (Span(self.name.first, self.name.last),)

    @property
    def last_named(self) -> int:
        """The greatest ordinal that it, or its name, tells of or leaves room for; 0 where it is not this relay's.

        Under a wrong name only its records count.
        """
        return self._last(self.damages)

    @property
    def last_told(self) -> int:
        """As `last_named`, without those of which only room is known."""
        return self._last(damage for damage in self.damages if not damage.at_most)

    def _last(self, damages: Iterable[Damage]) -> int:
        if self.foreign:
            return 0
        greatest = max((run.last for run in self.runs), default=0)
        named = self.name.kind is not SegmentKind.ACTIVE
        if named and any(run.first < self.name.first or run.last > self.name.last for run in self.runs):
            return greatest
        return max(greatest, self.name.last, *(damage.last for damage in damages), 0)


class ActiveContents(NamedTuple):
    """active.log: what it holds, and how its end was judged."""

    contents: Contents
    judged: Judged


def evidence_for(found: Survey, before: int, frontier: int) -> Evidence:
    """What speaks about active.log from outside; `frontier`: that of the newest usable snapshot, 0 without one."""
    ids = {header.segment for header in found.rotated_headers.values()}
    ids.update(index.segment for index in sealed_newest_first(found.journal, found.names))
    proven = max((ordinal for ordinal, _ in found.acknowledged_cursors), default=0)
    return Evidence(found.watermark, frozenset(ids), before, max(proven, frontier))


def take_stock(found: Survey, name: SegmentName, progress: Progress) -> Contents:
    """What the rotated, sealed or lost segment `name` holds. Raises OpeningError for a later format, a failed read."""
    if name.kind is SegmentKind.LOST:
        return Contents(name, (), ())
    with _open(found, name) as file:
        segment, store = _ids(file, name)
        if store is not None and store != found.store:
            return Contents(name, (), (), segment, foreign=True)
        contents = _collect(name, _scan(found, file, name), segment)
        progress(file.size())
    return _with_ends(contents)


def take_stock_of_active(found: Survey, evidence: Evidence, progress: Progress, *, tail: bool) -> ActiveContents:
    """What active.log holds. `tail`: what is undecidable at its end counts as damage to what was answered."""
    content = found.active.content
    verdict = decide(content, evidence)
    if verdict.word != "clean" and is_later_group(content, verdict.x):
        raise refusal(
            found.relay, "later_format", "a group of a later format", file=f"{JOURNAL}/{ACTIVE}", offset=verdict.x
        )
    judged = judge(content, verdict, evidence)
    if judged.tail == "undecidable" and tail:
        judged = judged._replace(stop=judged.used, tail="clean", damaged=True)
    name = SegmentName(SegmentKind.ACTIVE, evidence.before + 1, 0)
    contents = _collect(name, _scan_active(content, judged, name), content[24:40] if verdict.header else None)
    if judged.answered_behind:
        last = max(contents.last_named, evidence.before)
        shorter = "the file is shorter than it is known to have been synced"
        what = "the file is missing, and is known to have held events" if found.active.missing else shorter
        behind = Damage(len(content), last + 1, last + judged.answered_behind, what, at_most=True)
        contents = contents._replace(damages=(*contents.damages, behind))
    progress(len(content))
    return ActiveContents(contents, judged)


def records_in(found: Survey, contents: Contents, span: Span, judged: Judged | None = None) -> Iterator[Record]:
    """The intact records of one file whose ordinals are in `span`. `judged`: for active.log."""
    if judged is not None and contents.name.kind is SegmentKind.ACTIVE:
        yield from _within(_scan_active(found.active.content, judged, contents.name), span)
        return
    with _open(found, contents.name) as file:
        yield from _within(_scan(found, file, contents.name), span)


def everything_in(found: Survey, name: SegmentName) -> Iterator[Record]:
    """The intact records of one file but active.log, whatever store it belongs to."""
    if name.kind is not SegmentKind.LOST:
        with _open(found, name) as file:
            yield from (one for one in _scan(found, file, name) if isinstance(one, Record))


def _within(scanned: Iterator[Found], span: Span) -> Iterator[Record]:
    for one in scanned:
        if isinstance(one, Record) and span.first <= one.ordinal <= span.last:
            yield one


def _scan(found: Survey, file: File, name: SegmentName) -> Iterator[Found]:
    path = f"{JOURNAL}/{name.text}"
    if name.kind is SegmentKind.SEALED:
        try:
            yield from scan_sealed(file, name)
        except LaterSealedFormatError as error:
            raise refusal(found.relay, "later_format", str(error), file=path) from error
        return
    content = file.read(file.size(), 0)
    if is_later_segment(content):
        raise refusal(found.relay, "later_format", "a segment of a later format", file=path, offset=0)
    for one in scan_segment(memoryview(content), len(content), name.first, name.last):
        if isinstance(one, Damage) and is_later_group(content, one.offset):
            raise refusal(found.relay, "later_format", "a group of a later format", file=path, offset=one.offset)
        yield one


def _scan_active(content: bytes, judged: Judged, name: SegmentName) -> Iterator[Found]:
    """What counts of active.log; where it does not tell its first ordinal itself, that is the one in `name`."""
    if content and (judged.stop or judged.damaged):
        yield from scan_segment(memoryview(content), judged.stop, name.first)


def _collect(name: SegmentName, scanned: Iterator[Found], segment: bytes | None) -> Contents:
    runs: list[Span] = []
    damages: list[Damage] = []
    gave_up: list[Span] = []
    for one in scanned:
        if isinstance(one, Damage):
            damages.append(one)
        elif runs and one.ordinal == runs[-1].last + 1:
            runs[-1] = Span(runs[-1].first, one.ordinal)
        else:
            runs.append(Span(one.ordinal, one.ordinal))
            gave_up += _gave_up(one)
    return Contents(name, tuple(runs), tuple(damages), segment, gave_up=tuple(gave_up))


def _gave_up(record: Record) -> list[Span]:
    """The span that a `relay.lost` names, where it is one and stands right behind it."""
    if b"relay.lost" not in bytes(record.body[:64]):
        return []
    try:
        body = decode_body(record.body)
        said = msgspec.msgpack.decode(body.data, type=RelayLost)
    except msgspec.DecodeError:
        return []
    return [Span(said.first, said.last)] if body.kind == "relay.lost" and said.last + 1 == record.ordinal else []


def _with_ends(contents: Contents) -> Contents:
    """With what is missing at the beginning and the end of the range in its name."""
    name, runs = contents.name, contents.runs
    told = {ordinal for damage in contents.damages for ordinal in (damage.first, damage.last) if damage.lost}
    missing: list[Damage] = []
    if not runs and not contents.damages:
        missing.append(Damage(0, name.first, name.last, "the file holds none of its records"))
    elif runs and runs[0].first > name.first and name.first not in told:
        missing.append(Damage(0, name.first, runs[0].first - 1, "the file begins behind its first ordinal"))
    if runs and runs[-1].last < name.last and name.last not in told:
        missing.append(Damage(0, runs[-1].last + 1, name.last, "the file ends before its last ordinal"))
    return contents._replace(damages=(*contents.damages, *missing))


def _ids(file: File, name: SegmentName) -> tuple[bytes | None, bytes | None]:
    """Segment id and store id that the file tells, each None where it does not."""
    if name.kind is SegmentKind.SEALED:
        with contextlib.suppress(SealedError):
            index = read_index(file)
            return index.segment, index.store
        return None, None
    header = decode_segment_header(file.read(48, 0))
    return (None, None) if header is None else (header.segment, header.store)


@contextlib.contextmanager
def _open(found: Survey, name: SegmentName) -> Generator[File]:
    with refusing(found.relay, f"{JOURNAL}/{name.text}"):
        file = found.journal.open(name.text, "read")
        with contextlib.closing(file):
            yield file
