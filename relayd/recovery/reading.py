"""The reading half of an opening (docs/reference/journal.md, "Opening", 1 to 5): changes nothing, alone may refuse.

In memory at once: active.log, and one other segment. Sealed files are not opened, but for those that the fold needs,
that share a range with a rotated one, that follow a hole, or that hold the state's frontier: a start's cost follows
what lies after the snapshot, never the history.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from relayd.journal.catalogue import Segment
from relayd.journal.names import ACTIVE, JOURNAL, SegmentKind, SegmentName
from relayd.journal.segment import Group, is_later_group
from relayd.protocol.cursor import Span
from relayd.protocol.event import iter_records
from relayd.recovery.folding import Folder, Place
from relayd.recovery.layout import lay_out
from relayd.recovery.proof import Evidence, Verdict, begins_with_group, decide
from relayd.recovery.refusal import OpeningError, refusal
from relayd.recovery.settled import SettledReader
from relayd.recovery.start import Start, starts
from relayd.recovery.survey import Survey, sealed_newest_first
from relayd.relay.acknowledged import Acknowledgements
from relayd.relay.state import RelayState

ACTIVE_FILE: Final = f"{JOURNAL}/{ACTIVE}"


class Reading(NamedTuple):
    """What an opening found out, all of it proven; what the writing half goes by.

    `segments`: the files but active.log. `rotated`: those to be sealed. `same`, `different`: sealed copies that hold
    what their rotated file holds, and that do not. `stale`: active.log is an old copy of what other files hold. `end`:
    the last ordinal there is. `acknowledged_believed`: the file says something that nothing speaks against.
    """

    found: Survey
    start: Start
    state: RelayState
    acknowledgements: Acknowledgements
    acknowledged_believed: bool
    segments: tuple[Segment, ...]
    rotated: tuple[SegmentName, ...]
    same: tuple[SegmentName, ...]
    different: tuple[SegmentName, ...]
    verdict: Verdict
    stale: bool
    end: int
    folded_events: int
    folded_bytes: int


def read_relay(found: Survey) -> Reading:
    """Proves the journal and folds it. Raises OpeningError."""
    conflict: OpeningError | None = None
    for start in starts(found):
        try:
            return _Attempt(found, start).run()
        except OpeningError as error:
            if conflict is not None:
                raise conflict from error
            if error.reason != "snapshot_conflict" or not start.is_snapshot:
                raise
            conflict = error
    assert conflict is not None, "there is always a state to start from"
    raise conflict


class _Attempt:
    """One pass over the files, from one state."""

    def __init__(self, found: Survey, start: Start) -> None:
        self._found = found
        self._start = start
        self._acknowledged = dict(found.acknowledged_cursors)
        self._folder = Folder(found.relay, start, {*self._acknowledged, start.frontier.ordinal} - {0})
        self._settled = SettledReader(found, self._folder, start.frontier.ordinal)
        self._layout = lay_out(found.relay, found.names, start.base.ordinal)
        self._position = start.base.ordinal
        """The spans from base up to here have no hole."""

    def run(self) -> Reading:
        layout = self._layout
        copies = {(name.first, name.last): name for name in layout.doubled}
        segments = [Segment(name.kind, name.first, name.last) for name in layout.leftovers]
        same: list[SegmentName] = []
        for name in layout.settled:
            copy = copies.get((name.first, name.last))
            segment, copy_is_same = self._settled.read(
                name, self._hole_before(name.first, f"{JOURNAL}/{name.text}"), copy
            )
            self._position = name.last
            segments.append(segment)
            if copy is not None and copy_is_same:
                same.append(copy)
        verdict, stale = self._read_active()
        end = layout.end if stale or not verdict.groups else verdict.last
        self._prove_end(end)
        self._prove_frontier()
        said = self._believed()
        return Reading(
            found=self._found,
            start=self._start,
            state=self._folder.state,
            acknowledgements=said or Acknowledgements(),
            acknowledged_believed=said is not None,
            segments=tuple(segments),
            rotated=tuple(name for name in layout.settled if name.kind is SegmentKind.ROTATED),
            same=tuple(same),
            different=tuple(name for name in layout.doubled if name not in same),
            verdict=verdict,
            stale=stale,
            end=end,
            folded_events=self._folder.events,
            folded_bytes=self._folder.bytes,
        )

    def _hole_before(self, first: int, file: str) -> Span | None:
        """The ordinals that are in no file, before the file that begins with `first`."""
        self._prove_beginning(first, file)
        return None if first <= self._position + 1 else Span(self._position + 1, first - 1)

    def _prove_beginning(self, first: int, file: str) -> None:
        """Without a snapshot, the journal has to begin where the seed ends, or with the first event of all."""
        if self._start.is_snapshot or self._position != self._start.base.ordinal:
            return
        wanted = self._position + 1
        if first > wanted:
            message = f"no snapshot is usable, and the journal begins with ordinal {first} where {wanted} is needed"
            raise refusal(self._found.relay, "snapshot_lost", message, file=file)
        if first < wanted:
            message = f"the journal begins with ordinal {first}; the seed beside it ends with {self._position}"
            raise refusal(self._found.relay, "snapshot_conflict", message, file=file)

    def _read_active(self) -> tuple[Verdict, bool]:
        """Judges active.log and folds its groups; whether it is stale, and then nothing of it counts."""
        content, before = self._found.active.content, self._layout.end
        verdict = decide(content, self._evidence(before))
        groups = verdict.groups
        if verdict.word != "clean" and is_later_group(content, verdict.x):
            raise refusal(
                self._found.relay, "later_format", "a group of a later format", file=ACTIVE_FILE, offset=verdict.x
            )
        if groups and self._is_stale(verdict):
            return verdict, True
        if groups and groups[0].first <= self._layout.end:
            message = (
                f"it holds the ordinals {groups[0].first} to {verdict.last}; those up to {self._layout.end} are in "
                "other files too, and one of them does not belong here"
            )
            raise refusal(self._found.relay, "journal_conflict", message, file=ACTIVE_FILE)
        self._prove_tail(verdict)
        if groups:
            hole = self._hole_before(groups[0].first, ACTIVE_FILE)
            for group in groups:
                place = Place(ACTIVE_FILE, group.offset)
                self._folder.take(group.payload, group.first, group.last, place, hole)
                hole = None
        return verdict, False

    def _evidence(self, before: int) -> Evidence:
        found = self._found
        proven = max(self._acknowledged, default=0)
        if self._start.is_snapshot:
            proven = max(proven, self._start.frontier.ordinal)
        # A watermark of a segment whose later sync failed here counts for nothing: what this process saw does.
        watermark = None if found.active.synced else found.watermark
        return Evidence(watermark, self._other_ids(), before, proven, found.active.synced)

    def _other_ids(self) -> frozenset[bytes]:
        """Segment ids of other files. Sealed ones are asked only where active.log cannot say its own, or may not."""
        found = self._found
        ids = {header.segment for header in found.rotated_headers.values()}
        asked = set[bytes]() if found.watermark is None else {found.watermark.segment}
        if (header := found.active.header) is not None:
            asked = set[bytes]() if begins_with_group(found.active.content, header) else {header.segment}
        sealed = sealed_newest_first(found.journal, found.names)
        while asked - ids and (index := next(sealed, None)) is not None:
            ids.add(index.segment)
        return frozenset(ids)

    def _is_stale(self, verdict: Verdict) -> bool:
        """Whether everything active.log ever held is at or below the other files' end, and in them, or below the base.

        One that was synced past its last whole group, or may have been, may have held more: that is no stale copy. Nor
        is one with anything behind that group.
        """
        if verdict.last > self._layout.end or verdict.proof > verdict.x or verdict.used > verdict.x:
            return False
        return self._settled.holds(self._layout.settled, self._digests_above_base(verdict.groups))

    def _digests_above_base(self, groups: Iterable[Group]) -> dict[int, bytes]:
        records = (record for group in groups for record in iter_records(group.payload))
        return {record.ordinal: record.digest for record in records if record.ordinal > self._start.base.ordinal}

    def _prove_tail(self, verdict: Verdict) -> None:
        """Rows 2 and 6: what was answered is damaged, or it cannot be told whether it was."""
        relay, x, last = self._found.relay, verdict.x, verdict.last
        if verdict.word == "corrupt" and verdict.only_ordinals:
            raise self._ahead(last)
        if verdict.word == "corrupt":
            gone = "active.log is missing" if self._found.active.missing else _does_not_check(last)
            until = (
                f"the file is known to have been synced up to offset {verdict.proof}"
                if verdict.proof > x
                else f"ordinals up to {self._greatest_proven()} were answered"
            )
            message = f"{gone}, though {until}"
            raise refusal(relay, "journal_corrupt", message, file=ACTIVE_FILE, offset=x)
        if verdict.word == "undecidable":
            message = (
                f"{_does_not_check(last)}, and nothing tells whether its {verdict.used - x} bytes are a write that was "
                "cut off, or answered events that were damaged later"
            )
            raise refusal(relay, "journal_undecided", message, file=ACTIVE_FILE, offset=x)

    def _greatest_proven(self) -> int:
        frontier = self._start.frontier.ordinal if self._start.is_snapshot else 0
        return max(frontier, *self._acknowledged) if self._acknowledged else frontier

    def _ahead(self, end: int) -> OpeningError:
        frontier = self._start.frontier.ordinal if self._start.is_snapshot else 0
        who = f"the {self._start.source}" if frontier > end else "a consumer's acknowledged cursor"
        message = (
            f"the journal ends with ordinal {end}; {who} stands at {self._greatest_proven()}: ordinals {end + 1} to "
            f"{self._greatest_proven()} were answered and are gone"
        )
        return refusal(self._found.relay, "snapshot_ahead", message, file=JOURNAL)

    def _prove_end(self, end: int) -> None:
        if self._greatest_proven() > end:
            raise self._ahead(end)
        if not self._start.is_snapshot and end <= self._start.base.ordinal:
            message = "no snapshot is usable, and the journal holds no record"
            raise refusal(self._found.relay, "snapshot_lost", message, file=JOURNAL)

    def _prove_frontier(self) -> None:
        """The record at the snapshot's frontier is the one it was made after; one that cannot be read, nobody asks."""
        frontier = self._start.frontier
        if not self._start.is_snapshot or frontier.ordinal == 0:
            return
        digest = self._folder.digests.get(frontier.ordinal)
        if digest is None:
            names = (*self._layout.leftovers, *self._layout.settled)
            holder = next((name for name in names if name.first <= frontier.ordinal <= name.last), None)
            digest = None if holder is None else self._settled.digest_in(holder, frontier.ordinal)
        if digest is not None and digest != frontier.digest:
            assert frontier.digest is not None, "a usable snapshot's frontier has its digest"
            message = (
                f"it was made after ordinal {frontier.ordinal} with digest {frontier.digest.hex()}; in the journal "
                f"that ordinal has {digest.hex()}"
            )
            raise refusal(self._found.relay, "snapshot_conflict", message, file=self._start.source)

    def _believed(self) -> Acknowledgements | None:
        """What consumers acknowledged, where no record that was read has another digest than they said."""
        acknowledged = self._found.acknowledged
        if acknowledged is None or acknowledged.said is None:
            return None
        for ordinal, digest in self._found.acknowledged_cursors:
            if self._folder.digests.get(ordinal, digest) != digest:
                return None
        said = acknowledged.said
        return Acknowledgements(said.acknowledged, said.consumers)


def _does_not_check(last: int) -> str:
    """What stands at X, where `last` is the last ordinal before it."""
    return f"the group after ordinal {last} does not check" if last else "the first group does not check"
