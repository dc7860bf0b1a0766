"""What salvage finds in a relay, before it changes anything (docs/reference/journal.md, "Offline tools")."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from relayd.journal.names import ACTIVE, JOURNAL, SegmentKind, SegmentName
from relayd.protocol.cursor import GENESIS, Span
from relayd.protocol.event import Body, Record, decode_body
from relayd.protocol.kinds import RelayCreated, RelayRestored
from relayd.recovery.intact import scan_segment
from relayd.recovery.inventory import (
    ActiveContents,
    Contents,
    Progress,
    everything_in,
    evidence_for,
    records_in,
    take_stock,
    take_stock_of_active,
)
from relayd.recovery.refusal import OpeningError, refusal
from relayd.recovery.salvage_plan import Known, Piece, Plan, plan_salvage
from relayd.recovery.start import Start, starts
from relayd.recovery.survey import Survey
from relayd.relay.fold import FoldError, fold, new_state
from relayd.relay.state import RelayState

_FIRST_KINDS: Final = {"nothing": ("relay.created", RelayCreated), "seed": ("relay.restored", RelayRestored)}

_NOTHING_LEFT: Final = (
    "bring the relay's files back, or move {path} away and make it of a backup: `relayd restore {state} {relay} FILE`"
)


class Analysis(NamedTuple):
    """The files with what they hold, the state that goes on, and what is to be done."""

    found: Survey
    start: Start
    contents: tuple[Contents, ...]
    active: ActiveContents
    plan: Plan

    @property
    def nothing(self) -> bool:
        """Whether everything is in order as it is."""
        return self.plan.nothing and not self.contradicted

    @property
    def contradicted(self) -> bool:
        """Whether there are snapshots that could be used if the journal did not contradict each."""
        return bool(self.found.usable) and not self.start.is_snapshot

    def records(self, pieces: Sequence[Piece]) -> Iterator[Record]:
        """The records of `pieces`, in order. Raises OpeningError where a file cannot be read."""
        for piece in pieces:
            yield from records_in(self.found, piece.source, piece.span, self.active.judged)

    def state_before_cut(self) -> RelayState:
        """The state at the end of the prefix that stays. Raises OpeningError where a file cannot be read."""
        state, cut = self.start.state.capture(), self.plan.cut
        assert cut is not None, "nothing is cut"
        for record in self.records(self.plan.prefix):
            if state.frontier.ordinal < record.ordinal < cut.first:
                fold(state, record.cursor, decode_body(record.body))
        return state


def analyse(found: Survey, progress: Progress, *, tail: bool) -> Analysis:
    """Reads every file and decides. Changes nothing.

    `tail`: accepts the loss of an undecidable tail. Raises OpeningError where salvage is not the way: another relay's
    or a later version's files, two files that contradict each other, an undecidable tail, a failed read.
    """
    found = _with_store(found)
    contents = tuple(take_stock(found, name, progress) for name in found.names)
    start = _choose_start(found, contents)
    above = tuple(one for one in contents if one.name.last > start.base.ordinal)
    _prove_own(found, above)
    active = _judge_active(found, start, progress, tail=tail)
    known = _known(found, start)
    plan = plan_salvage(above, active, known)
    _prove_no_conflict(found, active, plan)
    unfoldable = _first_unfoldable(found, start, active, plan)
    if unfoldable is not None:
        plan = plan_salvage(above, active, known._replace(unfoldable=unfoldable))
    return Analysis(found, start, above, active, plan)


def _with_store(found: Survey) -> Survey:
    """With the store id that the first event tells, where no header and no snapshot does."""
    if found.store is not None:
        return found
    store = next(_stores_told(found), None)
    if store is None:
        message = "nothing readable says which store this is, neither snapshot nor segment: nothing is left to keep"
        raise refusal(found.relay, "snapshot_lost", message, file=JOURNAL, hint=_NOTHING_LEFT)
    return found._replace(store=store)


def _stores_told(found: Survey) -> Iterator[bytes]:
    content = found.active.content
    active = (one for one in scan_segment(memoryview(content), len(content)) if isinstance(one, Record))
    for records in (*(everything_in(found, name) for name in found.names), active):
        first = next(iter(records), None)
        with contextlib.suppress(msgspec.DecodeError):
            body = None if first is None else decode_body(first.body)
            for kind, data in _FIRST_KINDS.values():
                if body is not None and body.kind == kind:
                    yield msgspec.msgpack.decode(body.data, type=data).store
    if found.acknowledged is not None and found.acknowledged.said is not None:
        yield found.acknowledged.said.store


def _prove_own(found: Survey, contents: Sequence[Contents]) -> None:
    foreign = next((one for one in contents if one.foreign), None)
    if foreign is not None:
        message = "it is another relay's by its store id, and salvage does not decide which files belong here"
        raise refusal(found.relay, "journal_conflict", message, file=f"{JOURNAL}/{foreign.name.text}")


def _judge_active(found: Survey, start: Start, progress: Progress, *, tail: bool) -> ActiveContents:
    frontier = start.frontier.ordinal if start.is_snapshot else 0
    # A mark past the state is that of a salvage that was cut off; it tells nothing of where active.log begins.
    names = (name for name in found.names if name.kind is not SegmentKind.LOST or name.last <= frontier)
    before = max((name.last for name in names), default=0)
    evidence = evidence_for(found, max(before, start.base.ordinal), frontier)
    active = take_stock_of_active(found, evidence, progress, tail=tail)
    judged = active.judged
    if judged.tail == "undecidable":
        message = (
            f"{judged.used - judged.stop} bytes at the end are no whole group, and nothing tells a write that was cut "
            "off from answered events that were damaged later"
        )
        raise refusal(found.relay, "journal_undecided", message, file=f"{JOURNAL}/{ACTIVE}", offset=judged.stop)
    return active


def _known(found: Survey, start: Start) -> Known:
    frontiers = [one.snapshot.frontier.ordinal for one in found.usable]
    acknowledged = [ordinal for ordinal, _ in found.acknowledged_cursors]
    seen = max(*frontiers, *acknowledged, start.frontier.ordinal, 0)
    return Known(start.base.ordinal, start.frontier.ordinal, seen)


def _choose_start(found: Survey, contents: Sequence[Contents]) -> Start:
    """As an opening does: the newest snapshot that the journal does not contradict, else the seed, else nothing."""
    if found.usable:
        for start in starts(found):
            if not _contradicted(found, start, contents):
                return start
        found = found._replace(usable=())
    try:
        return next(starts(found))
    except OpeningError:
        # A bad seed: there is no state to go on from, and the journal's own beginning has to do.
        assert found.store is not None, "it was asked for before"
        return Start("nothing", new_state(found.store), GENESIS, GENESIS, found.passed_over)


def _contradicted(found: Survey, start: Start, contents: Sequence[Contents]) -> bool:
    """Whether an intact record at the snapshot's frontier has another digest than it was made after."""
    frontier = start.frontier
    span = Span(frontier.ordinal, frontier.ordinal)
    for one in contents:
        if any(run.first <= frontier.ordinal <= run.last for run in one.runs):
            return all(record.digest != frontier.digest for record in records_in(found, one, span))
    content = found.active.content
    scanned = scan_segment(memoryview(content), len(content))
    digests = [one.digest for one in scanned if isinstance(one, Record) and one.ordinal == frontier.ordinal]
    return bool(digests) and frontier.digest not in digests


def _prove_no_conflict(found: Survey, active: ActiveContents, plan: Plan) -> None:
    """What stands in two files is the same in both, but for a sealed copy beside its rotated file: that one counts."""
    for span, one, other in plan.overlaps:
        if _is_pair(one.name, other.name):
            continue
        both = zip(
            records_in(found, one, span, active.judged), records_in(found, other, span, active.judged), strict=True
        )
        differing = next((record.ordinal for record, copy in both if record.digest != copy.digest), None)
        if differing is not None:
            message = (
                f"its ordinal {differing} has another digest than that in {one.name.text}; one of the two does not "
                "belong here, and salvage does not decide which"
            )
            raise refusal(found.relay, "journal_conflict", message, file=f"{JOURNAL}/{other.name.text}")


def _is_pair(one: SegmentName, other: SegmentName) -> bool:
    kinds = {one.kind, other.kind}
    return kinds == {SegmentKind.ROTATED, SegmentKind.SEALED} and (one.first, one.last) == (other.first, other.last)


def _first_unfoldable(found: Survey, start: Start, active: ActiveContents, plan: Plan) -> int | None:
    """The first ordinal of the prefix that is intact and yet no event that can follow the state."""
    state = start.state.capture()
    first = _FIRST_KINDS.get(start.source)
    for piece in plan.prefix:
        if piece.span.last <= state.frontier.ordinal:
            continue
        span = Span(max(piece.span.first, state.frontier.ordinal + 1), piece.span.last)
        for record in records_in(found, piece.source, span, active.judged):
            try:
                body = decode_body(record.body)
                if first is not None and not _begins(body, *first, start):
                    return record.ordinal
                fold(state, record.cursor, body)
            except FoldError as error:
                if error.reason == "later_format":
                    raise refusal(found.relay, "later_format", str(error), file=JOURNAL) from error
                return record.ordinal
            except msgspec.DecodeError:
                return record.ordinal
            first = None
    return None


def _begins(body: Body, kind: str, data: type[RelayCreated | RelayRestored], start: Start) -> bool:
    """Whether it is the event that a journal without a snapshot begins with."""
    if body.kind != kind:
        return False
    said = msgspec.msgpack.decode(body.data, type=data)
    return said.store == start.state.store and (not isinstance(said, RelayRestored) or said.seed == start.state.seed)
