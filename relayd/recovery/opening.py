"""How a relay starts, and starts again after any trouble (docs/reference/journal.md, "Opening").

There is one way: `survey` and `read_relay` prove what is on disk and change nothing, then `settle` makes it ready to be
appended to. What refuses does so before a byte is written.
"""

import contextlib
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from relayd.journal.active import SyncedEnd
from relayd.journal.catalogue import Catalogue, Segment
from relayd.journal.groups import GroupIndex
from relayd.journal.names import SegmentKind, SegmentName
from relayd.journal.segment import Group
from relayd.journal.storage import Directory
from relayd.journal.tail import TAIL_BYTES, Tail
from relayd.journal.writer import Writer
from relayd.protocol.cursor import Cursor
from relayd.protocol.kinds import RetentionBytes
from relayd.recovery.reading import Reading, read_relay
from relayd.recovery.refusal import OpeningError
from relayd.recovery.settling import Settled, settle
from relayd.recovery.survey import Survey, survey
from relayd.relay.acknowledged import Acknowledgements
from relayd.relay.state import RelayState


class OpeningReport(NamedTuple):
    """What an opening found and did, for one line of the log.

    `source`: what it folded on from (`snapshot`, `snapshot.previous`, `seed`, `nothing`). `torn_bytes` were never
    answered and are in quarantine/; `quarantined`: the names there. `rewritten_bytes` were not known to be synced.
    """

    source: str
    folded_events: int
    folded_bytes: int
    torn_bytes: int
    rewritten_bytes: int
    quarantined: tuple[str, ...]
    snapshot_written: bool
    snapshot_trouble: str | None
    full: str | None


class Opened(msgspec.Struct):
    """An open relay, for its host to own. `relay` and `journal` are the directories it works in; the host closes both.

    `writer` is None where the disk lacked room (`full`): reads are served through the state's frontier, and opening
    again is tried when there is room. `generations`: the bases of snapshot and snapshot.previous on disk, None for one
    that is missing. `unsnapshotted_…`: what was folded and is in no snapshot. `rotated`: to be sealed, oldest first.
    """

    name: str
    store: bytes
    state: RelayState
    base: Cursor
    acknowledgements: Acknowledgements
    relay: Directory
    journal: Directory
    writer: Writer | None
    catalogue: Catalogue
    tail: Tail
    generations: tuple[Cursor | None, Cursor | None]
    unsnapshotted_events: int
    unsnapshotted_bytes: int
    rotated: list[SegmentName]
    report: OpeningReport

    def close(self) -> None:
        """Gives descriptors and the relay's lock back."""
        if self.writer is not None:
            self.writer.close()
        self.journal.close()
        self.relay.close()

    @property
    def full(self) -> bool:
        """Whether the disk lacked room for getting the journal ready."""
        return self.writer is None


def open_relay(
    relay: Directory,
    name: str,
    *,
    segment_bytes: int,
    new_id: Callable[[], bytes],
    watermark_failed: Callable[[OSError], None] | None = None,
    synced: SyncedEnd | None = None,
    tail_bytes: int = TAIL_BYTES,
) -> Opened:
    """Opens the relay in `relay`, whose lock the caller holds.

    `synced`: where a sync of active.log failed in this process, what it knows synced (SyncFailedError has it, and the
    OpeningError of the opening before this one); not what a failed write carries. `new_id` gives 16 random bytes.
    `tail_bytes`: how much of the newest records is kept in memory.

    Raises OpeningError, an UnavailableError: where the reading half refused, no byte was changed. Its `synced` is to be
    given to the next opening in this process. Raises OSError where the process or the system is out of descriptors:
    nothing is wrong with the relay, and the next opening is given the same `synced` again.
    """
    try:
        found = survey(relay, synced)
    except OpeningError as error:
        error.synced = synced
        raise
    try:
        reading = _read(found, synced)
        settled = settle(reading, name, new_id)
        writer = _make_writer(
            reading, settled, segment_bytes=segment_bytes, new_id=new_id, watermark_failed=watermark_failed
        )
        return _opened(reading, settled, name, writer, tail_bytes)
    except BaseException:
        found.journal.close()
        raise


def _read(found: Survey, synced: SyncedEnd | None) -> Reading:
    try:
        return read_relay(found)
    except OpeningError as error:
        error.synced = synced
        raise


def _make_writer(
    reading: Reading,
    settled: Settled,
    *,
    segment_bytes: int,
    new_id: Callable[[], bytes],
    watermark_failed: Callable[[OSError], None] | None,
) -> Writer | None:
    if settled.active is None:
        return None
    return Writer(
        reading.found.relay,
        reading.found.journal,
        reading.state.store,
        active=settled.active.file,
        segment=settled.active.segment,
        first=_active_first(reading),
        next_ordinal=reading.end + 1,
        end=settled.active.end,
        new_id=new_id,
        segment_bytes=segment_bytes,
        watermark_failed=watermark_failed,
    )


def _groups(reading: Reading) -> tuple[Group, ...]:
    """The groups of active.log that stay."""
    return () if reading.stale else reading.verdict.groups


def _active_first(reading: Reading) -> int:
    """The first ordinal in active.log, or the next one."""
    groups = _groups(reading)
    return groups[0].first if groups else reading.end + 1


def _opened(reading: Reading, settled: Settled, name: str, writer: Writer | None, tail_bytes: int) -> Opened:
    return Opened(
        name=name,
        store=reading.state.store,
        state=reading.state,
        base=settled.base,
        acknowledgements=reading.acknowledgements,
        relay=reading.found.relay,
        journal=reading.found.journal,
        writer=writer,
        catalogue=Catalogue(_settled_segments(reading), _active_segment(reading, settled)),
        tail=_fill_tail(_groups(reading), tail_bytes),
        generations=settled.generations,
        unsnapshotted_events=0 if settled.snapshot_written else reading.folded_events,
        unsnapshotted_bytes=0 if settled.snapshot_written else reading.folded_bytes,
        rotated=[one for one in reading.rotated if one not in _sealed_already(reading)],
        report=_report(reading, settled),
    )


def _sealed_already(reading: Reading) -> set[SegmentName]:
    """Rotated files that are gone by now: their sealed copies hold the same."""
    return {SegmentName(SegmentKind.ROTATED, copy.first, copy.last) for copy in reading.same}


def _settled_segments(reading: Reading) -> list[Segment]:
    """The files that no longer change, as they are after the writing half.

    Sizes of sealed ones are asked only where eviction goes by them: a start does not pay for its history.
    """
    sealed = _sealed_already(reading)
    segments = [
        Segment(SegmentKind.SEALED, one.first, one.last) if one.span in sealed else one for one in reading.segments
    ]
    if not isinstance(reading.state.retention, RetentionBytes):
        return segments
    return [one if one.size else one._replace(size=_size_of(reading, one)) for one in segments]


def _size_of(reading: Reading, segment: Segment) -> int:
    with contextlib.suppress(OSError):
        found = reading.found.journal.stat(segment.name)
        return 0 if found is None else found[1]
    return 0


def _active_segment(reading: Reading, settled: Settled) -> Segment | None:
    """active.log for readers; None where none could be made."""
    index = GroupIndex()
    for group in _groups(reading):
        index.add(group.first, group.offset, group.end)
    header = reading.verdict.header
    if settled.active is not None:
        segment, end = settled.active.segment, settled.active.end
    elif header is not None and not reading.stale:
        segment, end = header.segment, reading.verdict.x
    else:
        return None
    return Segment(SegmentKind.ACTIVE, _active_first(reading), reading.end, end, segment, index)


def _fill_tail(groups: tuple[Group, ...], tail_bytes: int) -> Tail:
    """The newest groups, as far as they fit."""
    room, begin = tail_bytes, len(groups)
    while begin and len(groups[begin - 1].payload) <= room:
        begin -= 1
        room -= len(groups[begin].payload)
    tail = Tail(tail_bytes)
    for group in groups[begin:]:
        tail.append(group.first, group.count, bytes(group.payload))
    return tail


def _report(reading: Reading, settled: Settled) -> OpeningReport:
    return OpeningReport(
        source=reading.start.source,
        folded_events=reading.folded_events,
        folded_bytes=reading.folded_bytes,
        torn_bytes=settled.torn_bytes,
        rewritten_bytes=settled.rewritten_bytes,
        quarantined=settled.quarantined,
        snapshot_written=settled.snapshot_written,
        snapshot_trouble=None if settled.snapshot_trouble is None else str(settled.snapshot_trouble),
        full=None if settled.full is None else str(settled.full),
    )
