"""What salvage makes of a damaged journal. Pure (docs/reference/journal.md, "Offline tools").

The plan follows from the intact records alone, wherever they stand, and from what is known to have been answered. So a
salvage that was killed half way plans to the same end when it is run again: its copies hold the same records, a span
that a `relay.lost` names stays given up, and so does what stands in it.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from relayd.journal.names import SegmentKind, SegmentName
from relayd.protocol.cursor import Span
from relayd.recovery.inventory import ActiveContents, Contents


class Piece(NamedTuple):
    """The intact records `span`, to be taken from one file."""

    span: Span
    source: Contents


class Overlap(NamedTuple):
    """Ordinals that two files have."""

    span: Span
    one: Contents
    other: Contents


class Known(NamedTuple):
    """What stands around the journal.

    Nothing up to `base` is needed; the state stands at `frontier`; `seen`: the greatest ordinal that anything outside
    of the segments names. `unfoldable`: the first ordinal that is intact and yet no event that can follow the state.
    """

    base: int
    frontier: int
    seen: int
    unfoldable: int | None = None


class Plan(NamedTuple):
    """What is to be done.

    `prefix`: all intact records that stay; `overlaps`: what stands intact in two files. `parts`: sealed segments to
    write, each from pieces that follow each other. `lost`: spans to be marked by an empty file. `remove`: files that go
    to quarantine. `unmark`: marks that hold no longer. `cut`: what the next event gives up, everything after the
    prefix; `at_most`: how many were used is not known, and it ends with the greatest that can have been. `rescued`: the
    intact records in it. `fresh`: active.log is made anew.
    """

    prefix: tuple[Piece, ...]
    overlaps: tuple[Overlap, ...]
    parts: tuple[tuple[Piece, ...], ...]
    lost: tuple[Span, ...]
    remove: tuple[SegmentName, ...]
    unmark: tuple[SegmentName, ...]
    cut: Span | None
    rescued: tuple[Piece, ...]
    fresh: bool
    at_most: bool = False

    @property
    def nothing(self) -> bool:
        """Whether the journal is left as it is."""
        return not (self.parts or self.lost or self.remove or self.unmark or self.cut or self.fresh)


class Cover:
    """Spans that do not overlap, in order, each with the file that it is taken from."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self.pieces: list[Piece] = []
        self.overlaps: list[Overlap] = []

    def add(self, span: Span, source: Contents) -> None:
        """Takes of `span` what no earlier source has."""
        at = span.first
        while at <= span.last:
            number = bisect_left(self._firsts, at + 1)
            before = self.pieces[number - 1] if number else None
            if before is not None and before.span.last >= at:
                until = min(before.span.last, span.last)
                self.overlaps.append(Overlap(Span(at, until), before.source, source))
                at = until + 1
                continue
            until = min(self._firsts[number] - 1, span.last) if number < len(self._firsts) else span.last
            self._firsts.insert(number, at)
            self.pieces.insert(number, Piece(Span(at, until), source))
            at = until + 1


def cover_all(contents: Sequence[Contents], given_up: Iterable[Span]) -> Cover:
    """Every intact ordinal once: from whole files first, then rotated ones, sealed ones, active.log.

    What a `relay.lost` has given up is not taken, wherever it still stands.
    """
    gone = sorted(given_up)
    cover = Cover()
    for one in sorted(contents, key=_preference):
        for run in one.runs:
            for span in without(run, gone):
                cover.add(span, one)
    return cover


_ORDER = (SegmentKind.ROTATED, SegmentKind.SEALED, SegmentKind.ACTIVE, SegmentKind.LOST)


def _preference(contents: Contents) -> tuple[bool, int, int, int]:
    name = contents.name
    return not contents.whole, name.first, -name.last, _ORDER.index(name.kind)


def without(span: Span, gone: Iterable[Span]) -> list[Span]:
    """What is left of `span` without the spans `gone`, which are in order."""
    left: list[Span] = []
    at = span.first
    for hole in gone:
        if hole.last < at or hole.first > span.last:
            continue
        if hole.first > at:
            left.append(Span(at, hole.first - 1))
        at = hole.last + 1
    if at <= span.last:
        left.append(Span(at, span.last))
    return left


def standing_losses(contents: Iterable[Contents]) -> tuple[Span, ...]:
    """The spans that `relay.lost` events name."""
    return tuple(sorted({span for one in contents for span in one.gave_up}))


def plan_salvage(contents: Sequence[Contents], active: ActiveContents, known: Known) -> Plan:
    """Decides what becomes of the files above the base; `contents`: all of them but active.log."""
    everything = [*contents, active.contents]
    given_up = standing_losses(everything)
    cover = cover_all(everything, given_up)
    told = max(known.base, known.frontier, known.seen, *(one.last_told for one in everything), 0)
    top = max(told, *(one.last_named for one in everything))
    holes = _holes(cover, given_up, known.base, top)
    cut = _cut(holes, known, top)
    end = top if cut is None else cut.first - 1
    lost = _merged(Span(hole.first, min(hole.last, known.frontier)) for hole in holes if hole.first <= known.frontier)
    stays, remove = _stays(contents, cover, end)
    prefix = tuple(_until(cover.pieces, end))
    kept = [piece for piece in prefix if piece.source.name not in stays]
    fresh = cut is not None or not _active_stays(active, cover, lost, end)
    if not fresh:
        kept = [piece for piece in kept if piece.source is not active.contents]
    marks = {(name.first, name.last) for name in _marks(contents)}
    return Plan(
        prefix=prefix,
        overlaps=tuple(cover.overlaps),
        parts=_parts(kept),
        lost=tuple(span for span in lost if span not in marks),
        remove=remove,
        unmark=tuple(name for name in _marks(contents) if Span(name.first, name.last) not in lost),
        cut=cut,
        rescued=() if cut is None else tuple(_from(cover.pieces, cut.first)),
        fresh=fresh,
        at_most=cut is not None and top > told,
    )


def _holes(cover: Cover, given_up: tuple[Span, ...], base: int, top: int) -> list[Span]:
    """Ordinals above the base that no file has intact and no event gave up, as spans."""
    whole = Span(base + 1, top)
    taken = sorted([*given_up, *(piece.span for piece in cover.pieces)])
    return without(whole, taken)


def _cut(holes: Iterable[Span], known: Known, top: int) -> Span | None:
    """What the fold cannot cross: from the first ordinal it lacks to the last there ever was."""
    crossing = [max(hole.first, known.frontier + 1) for hole in holes if hole.last > known.frontier]
    if known.unfoldable is not None:
        crossing.append(known.unfoldable)
    return Span(min(crossing), top) if crossing else None


def _merged(spans: Iterable[Span]) -> list[Span]:
    merged: list[Span] = []
    for span in sorted(spans):
        if merged and merged[-1].last + 1 == span.first:
            merged[-1] = Span(merged[-1].first, span.last)
        else:
            merged.append(span)
    return merged


def _stays(
    contents: Sequence[Contents], cover: Cover, end: int
) -> tuple[frozenset[SegmentName], tuple[SegmentName, ...]]:
    """Which files are left as they are, and which go to quarantine.

    One that stays is whole, ends with the prefix at the latest, and is what its range is taken from. Where a rotated
    one stays, the sealed copy of its range is left to the next opening.
    """
    used = {
        piece.source.name
        for piece in cover.pieces
        if piece.span == Span(piece.source.name.first, piece.source.name.last)
    }
    stays = frozenset(one.name for one in contents if one.whole and one.name in used and one.name.last <= end)
    rotated = {(name.first, name.last) for name in stays if name.kind is SegmentKind.ROTATED}
    others = (one.name for one in contents if one.name not in stays and one.name.kind is not SegmentKind.LOST)
    remove = (name for name in others if name.kind is not SegmentKind.SEALED or (name.first, name.last) not in rotated)
    return stays, tuple(remove)


def _active_stays(active: ActiveContents, cover: Cover, lost: Sequence[Span], end: int) -> bool:
    """Whether active.log can be left to the next opening: undamaged, its records in their place, and the newest."""
    contents, judged = active
    if judged.damaged or contents.damages:
        return False
    own = [piece.span for piece in cover.pieces if piece.source is contents]
    others = [*lost, *(piece.span for piece in cover.pieces if piece.source is not contents)]
    newest = max((span.last for span in others), default=0)
    if not contents.runs:
        return newest <= end
    if not own:
        # Everything it holds stands in other files: a stale copy, which opening sets aside.
        return contents.runs[-1].last <= newest <= end
    return tuple(own) == contents.runs and newest < own[0].first and own[-1].last <= end


def _until(pieces: Iterable[Piece], end: int) -> list[Piece]:
    """What of `pieces` lies at or below `end`."""
    return [
        piece._replace(span=Span(piece.span.first, min(piece.span.last, end)))
        for piece in pieces
        if piece.span.first <= end
    ]


def _from(pieces: Iterable[Piece], begin: int) -> list[Piece]:
    """What of `pieces` lies at or above `begin`."""
    return [
        piece._replace(span=Span(max(piece.span.first, begin), piece.span.last))
        for piece in pieces
        if piece.span.last >= begin
    ]


def _parts(pieces: Iterable[Piece]) -> tuple[tuple[Piece, ...], ...]:
    parts: list[list[Piece]] = []
    for piece in pieces:
        if parts and parts[-1][-1].span.last + 1 == piece.span.first:
            parts[-1].append(piece)
        else:
            parts.append([piece])
    return tuple(map(tuple, parts))


def _marks(contents: Iterable[Contents]) -> list[SegmentName]:
    return [one.name for one in contents if one.name.kind is SegmentKind.LOST]
