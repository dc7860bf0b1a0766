"""What opening has to make of a relay's files: a second opinion, from docs/reference/journal.md and nothing else.

`judge` takes a relay's directory as bytes by path and gives the one outcome: it opens, with which records and through
which ordinal, or it is refused, by which code and where. Imports nothing of relayd. A `seed` is not judged.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from chaos.at_rest import judge_files as files_
from chaos.at_rest.judge_files import Frame, Group, LaterFormatError, Records, Span
from chaos.at_rest.judge_fold import Fold, NoEventError, lost_span, made_by
from chaos.at_rest.judge_look import ACTIVE, NOTHING, ConflictError, Looked, State, look
from chaos.at_rest.judge_proof import Evidence, Verdict, weigh


class Opens(NamedTuple):
    """`records`: what readers get above `base`; `unreadable`: the ordinals up to `last` that are lost to them.

    `doubtful`: what of `records` a reader may lose, because its frame is not what compressing the records gives.
    `x`: where whole groups end in active.log, `torn`: the bytes from there that are set aside. `stale`: active.log is
    a copy put back. `passed_over`: small files that are not believed. `frontier`, `producers`: the folded state's.
    """

    source: str
    base: int
    last: int
    records: Records
    unreadable: frozenset[int]
    doubtful: frozenset[int]
    x: int
    torn: int
    stale: bool
    passed_over: frozenset[str]
    frontier: tuple[int, bytes]
    producers: dict


class Refused(NamedTuple):
    """`file` and `offset` where the code has such; `also`: what refuses as well, so that it might be named instead."""

    code: str
    file: str = ""
    offset: int | None = None
    also: tuple["Refused", ...] = ()


def judge(files: Mapping[str, bytes]) -> Opens | Refused:
    """The one outcome of opening a relay that has these files."""
    try:
        looked = look(files)
        return _decide(looked)
    except LaterFormatError:
        return Refused("later_format")
    except ConflictError:
        return Refused("journal_conflict")


def _decide(looked: Looked) -> Opens | Refused:
    """Where the first generation is in conflict with the journal the other is tried; it helps if it opens."""
    outcomes = []
    for state in looked.states or [NOTHING]:
        outcome = _Opening(looked, state).decide()
        outcomes.append(outcome)
        if isinstance(outcome, Opens) or outcome.code != "snapshot_conflict":
            break
    first, last = outcomes[0], outcomes[-1]
    if first is not last and isinstance(last, Opens):
        return last._replace(passed_over=last.passed_over | {first.file})
    return first


class _Opening:
    """One opening from one state. Everything that refuses is gathered, in the order of the steps."""

    def __init__(self, looked: Looked, state: State) -> None:
        self.looked, self.state = looked, state
        self.spans = _spans_above(looked, state.base)
        self.before = max((span.last for span in looked.spans), default=0)
        self.held: Records = {}
        self.unreadable: set[int] = set()
        self.doubtful: set[int] = set()
        self.refusals: list[Refused] = []

    def decide(self) -> Opens | Refused:
        self._refuse_overlaps_and_foreign()
        self._read_rotated()
        self._read_sealed()
        verdict, stale = self._weigh_active()
        groups = [] if stale else verdict.groups
        for group in groups:
            self.held |= group.records
        last = groups[-1].last if groups else self.before
        if self.state is NOTHING:
            self._refuse_without_beginning(groups)
        lost = self._refuse_gaps(groups)
        if self.state.frontier[0] > last or any(ordinal > last for ordinal, _ in self.looked.acknowledged):
            self._refuse("snapshot_ahead")
        ordinal, digest = self.state.frontier
        if ordinal in self.held and self.held[ordinal].digest != digest:
            self._refuse("snapshot_conflict", self.state.source)
        fold = self._fold(last, lost)
        if self.refusals:
            return self.refusals[0]._replace(also=tuple(self.refusals[1:]))
        return self._opens(verdict, last, lost, fold, stale=stale)

    def _refuse(self, code: str, file: str = "", offset: int | None = None) -> None:
        self.refusals.append(Refused(code, file, offset))

    def _refuse_overlaps_and_foreign(self) -> None:
        for one, following in zip(self.spans, self.spans[1:], strict=False):
            if following.first <= one.last:
                self._refuse("journal_conflict", following.name)
                self._refuse("journal_conflict", one.name)
        for span in self.spans:
            if span in self.looked.rotated and self.looked.rotated[span].store != self.looked.store:
                self._refuse("journal_conflict", span.name)

    def _read_rotated(self) -> None:
        """Rotated files are whole to their exact end."""
        for span in self.spans:
            if span.suffix != ".log":
                continue
            header, data = self.looked.rotated.get(span), self.looked.files[span.name]
            groups = [] if header is None else files_.groups_in(data, header.segment, span.first - 1)
            while groups and groups[-1].last > span.last:
                groups.pop()
            x = groups[-1].end if groups else 0 if header is None else files_.HEADER_BYTES
            if x != len(data) or not groups or groups[-1].last != span.last:
                self._refuse("journal_corrupt", span.name, x)
            for group in groups:
                self.held |= group.records

    def _weigh_active(self) -> tuple[Verdict, bool]:
        """The verdict on active.log, and whether it is a stale copy."""
        looked, data = self.looked, self.looked.files.get(ACTIVE, b"")
        others = {one.segment for one in (*looked.rotated.values(), *looked.sealed.values())}
        answered = max(
            [state.frontier[0] for state in looked.states[:1]] + [each[0] for each in looked.acknowledged] + [0]
        )
        evidence = Evidence(looked.watermark, frozenset(others), answered, self.before)
        verdict = weigh(data, looked.header, evidence)
        overlaps = bool(verdict.groups) and verdict.groups[0].first <= self.before
        if overlaps:
            # Ordinals that other files hold prove nothing of this one.
            alone = weigh(data, looked.header, evidence._replace(answered=0))
            if alone.last <= self.before and alone.word == "clean" and self._holds(alone.groups):
                return alone, True
        if overlaps:
            self._refuse("journal_conflict", ACTIVE)
            for span in filter(self._is_foreign, self.spans):
                self._refuse("journal_conflict", span.name)
        codes = {"corrupt": "journal_corrupt", "undecided": "journal_undecided"}
        if verdict.word == "ahead":
            self._refuse("snapshot_ahead")
        elif verdict.word in codes:
            self._refuse(codes[verdict.word], ACTIVE, verdict.x)
        return verdict, False

    def _holds(self, groups: list[Group]) -> bool:
        """Whether other files have every record of these that may not be gone: only then is this one a copy."""
        above = {
            ordinal: record
            for group in groups
            for ordinal, record in group.records.items()
            if ordinal > self.state.base
        }
        return above.items() <= self.held.items()

    def _read_sealed(self) -> None:
        """What can be read of sealed segments. Only what the fold needs may refuse."""
        for span in self.spans:
            if span.suffix != ".log.zst":
                continue
            index = self.looked.sealed.get(span)
            readable = index is not None and not self._is_foreign(span)
            for frame in index.frames if readable else [Frame(span.first, span.last, None)]:
                first, last, records, doubtful = frame
                if records is not None:
                    self.held |= records
                    self.doubtful.update(records if doubtful else ())
                    continue
                self.unreadable.update(range(first, last + 1))
                if last > self.state.frontier[0] and not self._is_foreign(span):
                    self._refuse("journal_corrupt", span.name)
            if self._is_foreign(span) and last >= self.state.frontier[0]:
                self._refuse("journal_conflict", span.name)

    def _is_foreign(self, span: Span) -> bool:
        return span in self.looked.sealed and self.looked.sealed[span].store != self.looked.store

    def _refuse_without_beginning(self, groups: list[Group]) -> None:
        """Without a state the journal begins with ordinal 1, `relay.created`."""
        first = next((first for first, _, _ in _stretches(self.spans, groups)), None)
        store = made_by(self.held[1]) if 1 in self.held else None
        if first != 1 or (1 in self.held and store is None):
            self._refuse("snapshot_lost")
        elif store not in (None, self.looked.store):
            self._refuse("journal_conflict")

    def _refuse_gaps(self, groups: list[Group]) -> set[int]:
        """Spans rise from base + 1 without a hole that no `relay.lost` names; gives the ordinals given up."""
        given_up: set[int] = set()
        expected = self.state.base + 1
        for first, last, name in _stretches(self.spans, groups):
            if first > expected and not self._is_named(expected, first - 1):
                self._refuse("journal_gap", name)
                if name != ACTIVE and self._is_foreign(files_.span_of(name)):
                    self._refuse("journal_conflict", name)
            given_up.update(range(expected, first))
            if name.endswith(".lost"):
                if last > self.state.frontier[0]:
                    self._refuse("journal_gap", name)
                given_up.update(range(first, last + 1))
            expected = max(expected, last + 1)
        return given_up

    def _is_named(self, first: int, last: int) -> bool:
        """Whether the record behind the hole gave it up."""
        named = lost_span(self.held[last + 1]) if last + 1 in self.held else None
        return named is not None and named[0] <= first and named[1] == last

    def _fold(self, last: int, lost: set[int]) -> Fold:
        fold = Fold(self.state.frontier, dict(self.state.producers))
        for ordinal in range(self.state.frontier[0] + 1, last + 1):
            if ordinal in lost or ordinal not in self.held:
                continue
            try:
                fold.take(ordinal, self.held[ordinal])
            except NoEventError:
                where = next((span.name for span in self.spans if span.first <= ordinal <= span.last), ACTIVE)
                self._refuse("journal_corrupt", where)
        return fold

    def _opens(self, verdict: Verdict, last: int, lost: set[int], fold: Fold, *, stale: bool) -> Opens:
        base, held, looked = self.state.base, self.held, self.looked
        forged = any(ordinal in held and held[ordinal].digest != digest for ordinal, digest in looked.acknowledged)
        return Opens(
            source=self.state.source,
            base=base,
            last=last,
            records={ordinal: record for ordinal, record in held.items() if ordinal > base},
            unreadable=frozenset(ordinal for ordinal in self.unreadable | lost if ordinal > base),
            doubtful=frozenset(self.doubtful),
            x=0 if stale else verdict.x,
            torn=0 if stale else verdict.torn,
            stale=stale,
            passed_over=looked.passed_over | ({"acknowledged"} if forged else set()),
            frontier=fold.frontier,
            producers=fold.producers,
        )


def _spans_above(looked: Looked, base: int) -> list[Span]:
    """The files that count, in order: none at or below the base, and no sealed copy of a rotated file."""
    names = {span for span in looked.spans if span.last > base}
    return sorted(span for span in names if span.suffix != ".log.zst" or span._replace(suffix=".log") not in names)


def _stretches(spans: list[Span], groups: list[Group]) -> Iterator[tuple[int, int, str]]:
    yield from ((span.first, span.last, span.name) for span in spans)
    if groups:
        yield groups[0].first, groups[-1].last, ACTIVE
