"""What `relayd verify` checks of each kind of file, and how it says what it found."""

from collections.abc import Callable, Generator, Iterator
from typing import Final, Literal, NamedTuple

import msgspec

from relayd.journal.names import ACKNOWLEDGED, SEED, WATERMARK, SegmentName
from relayd.journal.sealed import LaterSealedFormatError, read_index, verify_sealed
from relayd.journal.segment import decode_segment_header, is_later_group, is_later_segment
from relayd.journal.storage import Directory, File
from relayd.journal.watermark import WATERMARK_BYTES, decode_watermark
from relayd.protocol.cursor import Span
from relayd.protocol.event import Record, decode_body
from relayd.protocol.kinds import KINDS, is_reserved
from relayd.recovery import acknowledged, snapshot
from relayd.recovery.checked_map import CheckedMapError, LaterFormatError, read_bounded
from relayd.recovery.intact import Damage, scan_segment
from relayd.recovery.judged import Judged
from relayd.recovery.places import ActiveView
from relayd.recovery.seed import SeedError, decode_seed
from relayd.recovery.verify_advice import Owner

Progress = Callable[[int], None]
"""Told how many bytes were read since it was last called."""

Reason = Literal["damaged", "torn", "undecided", "missing", "foreign", "later_format", "lost", "note"]
HARMLESS: Final[frozenset[Reason]] = frozenset({"torn", "lost", "note"})
"""What no salvage is needed for: a torn write, a span that salvage gave up before, a file that costs nothing."""

SMALL_FILES: Final = (*snapshot.GENERATIONS, ACKNOWLEDGED, SEED, WATERMARK)

_REBUILT: Final = "the next opening sets it aside and goes on without it"
_TORN: Final = "never answered; the next opening sets it aside"
_LATER: Final = "read it with the version of relayd that wrote it"
_FOREIGN: Final = "move the file out of the journal; it belongs to another relay"


class Finding(msgspec.Struct, frozen=True):
    """Something that was found in `file`, at byte `offset`. `first` to `last`: the ordinals it costs; None: none.

    `at_most`: some of them may never have been used. `hint` says what to do about it.
    """

    file: str
    reason: Reason
    what: str
    hint: str
    offset: int | None = None
    first: int | None = None
    last: int | None = None
    at_most: bool = False

    @property
    def harmless(self) -> bool:
        """Whether nothing is to be done."""
        return self.reason in HARMLESS


class Held(NamedTuple):
    """What a file of groups holds or has lost, a span without a hole; its first record, where that is intact."""

    span: Span | None
    record: Record | None


class Tally:
    """What has been read so far."""

    def __init__(self, progress: Progress | None) -> None:
        self.files = 0
        self.records = 0
        self.bytes = 0
        self._progress = progress

    def read(self, size: int) -> None:
        """So many bytes more."""
        self.bytes += size
        if self._progress is not None:
            self._progress(size)


def verify_sealed_file(
    file: File, label: str, name: SegmentName | None, owner: Owner, tally: Tally
) -> Iterator[Finding]:
    """Every byte of a sealed segment. Raises OSError."""
    tally.files += 1
    damaged = False
    for error in verify_sealed(file, name, None, tally.read):
        damaged = True
        if isinstance(error, LaterSealedFormatError):
            yield Finding(label, "later_format", str(error), _LATER, error.offset)
            return
        first, last = error.first, error.last
        if first is None and name is not None:
            first, last = name.first, name.last
        yield Finding(label, "damaged", str(error), owner.mend(first, last), error.offset, first, last)
    if damaged:
        return
    index = read_index(file)
    tally.records += index.count
    if owner.store is not None and index.store != owner.store:
        yield Finding(label, "foreign", f"its store id is {index.store.hex()}", _FOREIGN, 0, index.first, index.last)


def verify_rotated_file(
    content: bytes, label: str, name: SegmentName | None, owner: Owner, tally: Tally
) -> Iterator[Finding]:
    """Every byte of a segment that was rotated, or of one that is no longer appended to."""
    tally.files += 1
    tally.read(len(content))
    yield from _verify_header(content, label, owner)
    first, last = (None, None) if name is None else (name.first, name.last)
    held = yield from _verify_groups(content, len(content), label, (first, last), owner=owner, tally=tally)
    ends = None if held.span is None else held.span.last
    if name is not None and ends != name.last and not (ends is None and content):
        told = "no record" if ends is None else f"ordinal {ends}"
        what = f"it ends with {told}, its name says {name.last}"
        begin = (ends or name.first - 1) + 1
        yield Finding(label, "damaged", what, owner.mend(begin, name.last), len(content), begin, name.last)


def verify_active_file(
    view: ActiveView, label: str, first: int | None, owner: Owner, tally: Tally
) -> Generator[Finding, None, Held]:
    """Every byte of active.log that counts, and what stands behind it where no daemon has it open.

    `first`: the ordinal it begins with, where it does not tell that itself.
    """
    content, stop, judged = view.content, view.stop, view.judged
    held = Held(None, None)
    if not view.missing:
        tally.files += 1
        tally.read(len(content) if judged is not None else stop)
        if stop or judged is None or judged.damaged:
            yield from _verify_header(content, label, owner)
            held = yield from _verify_groups(content, stop, label, (first, None), owner=owner, tally=tally)
    if judged is not None and judged.answered_behind:
        begin = first or 1 if held.span is None else held.span.last + 1
        behind = Span(begin, begin + judged.answered_behind - 1)
        yield _shorter(view, label, behind, owner)
        return Held(Span(begin if held.span is None else held.span.first, behind.last), held.record)
    if judged is not None and judged.tail != "clean":
        yield _verify_tail(content, judged, label, owner)
    return held


def _shorter(view: ActiveView, label: str, behind: Span, owner: Owner) -> Finding:
    """What was synced, and is not there."""
    if view.missing:
        what, hint = "the file is missing, and is known to have held events", owner.replace_missing(*behind)
        return Finding(label, "missing", what, hint, None, *behind, at_most=True)
    what, hint = "the file is shorter than it is known to have been synced", owner.mend(*behind)
    return Finding(label, "damaged", what, hint, len(view.content), *behind, at_most=True)


def _verify_tail(content: bytes, judged: Judged, label: str, owner: Owner) -> Finding:
    size = judged.used - judged.stop
    if is_later_group(content, judged.stop) or is_later_segment(content):
        return Finding(label, "later_format", "a group of a later format", _LATER, judged.stop)
    if judged.tail == "torn":
        return Finding(label, "torn", f"{size} bytes of a write that was cut off", _TORN, judged.stop)
    what = f"{size} bytes are no whole group, and nothing tells whether they were answered"
    return Finding(label, "undecided", what, owner.accept_tail(), judged.stop)


def _verify_header(content: bytes, label: str, owner: Owner) -> Iterator[Finding]:
    header = decode_segment_header(content)
    if header is None and is_later_segment(content):
        yield Finding(label, "later_format", "a segment of a later format", _LATER, 0)
    if header is not None and owner.store is not None and header.store != owner.store:
        yield Finding(label, "foreign", f"its store id is {header.store.hex()}", _FOREIGN, 0)


def _verify_groups(
    content: bytes, stop: int, label: str, ordinals: tuple[int | None, int | None], *, owner: Owner, tally: Tally
) -> Generator[Finding, None, Held]:
    """`ordinals`: those it begins and ends with, where it does not tell that itself."""
    held: Span | None = None
    record: Record | None = None
    for one in scan_segment(memoryview(content), stop, *ordinals):
        if isinstance(one, Damage):
            yield _damaged(one, content, label, owner)
            # How many more stood behind the end that a name tells is nobody's question.
            span = None if one.at_most and ordinals[1] is not None else one.lost
        else:
            span = Span(one.ordinal, one.ordinal)
            record = one if held is None else record
            tally.records += 1
            yield from _verify_body(one, label, owner)
        if span is not None:
            held = span if held is None else Span(held.first, span.last)
    return Held(held, record)


def _damaged(damage: Damage, content: bytes, label: str, owner: Owner) -> Finding:
    if is_later_group(content, damage.offset):
        return Finding(label, "later_format", "a group of a later format", _LATER, damage.offset)
    first, last = (None, None) if damage.lost is None else damage.lost
    hint = owner.mend(first, last)
    return Finding(label, "damaged", damage.what, hint, damage.offset, first, last, damage.at_most)


def _verify_body(record: Record, label: str, owner: Owner) -> Iterator[Finding]:
    """The digest is right; is it an event?"""
    ordinal = record.ordinal
    try:
        body = decode_body(record.body)
    except msgspec.DecodeError as error:
        hint = owner.mend(ordinal, ordinal)
        yield Finding(label, "damaged", f"the body is no event's: {error}", hint, None, ordinal, ordinal)
        return
    if is_reserved(body.kind) and body.kind not in KINDS:
        what = f"ordinal {ordinal} is a `{body.kind}`, which this version does not know"
        yield Finding(label, "later_format", what, _LATER, None, ordinal, ordinal)


def verify_small_files(relay: Directory, tally: Tally) -> Iterator[Finding]:
    """Snapshots, `acknowledged`, seed and watermark. Raises OSError."""
    for name in snapshot.GENERATIONS:
        content = read_bounded(relay, name)
        if content is not None:
            yield from _verify_map(name, content, tally, lambda data, name=name: snapshot.load_generation(name, data))
    content = read_bounded(relay, ACKNOWLEDGED)
    if content is not None:
        yield from _verify_map(ACKNOWLEDGED, content, tally, acknowledged.decode_acknowledged)
    content = read_bounded(relay, SEED)
    if content is not None:
        yield from _verify_map(SEED, content, tally, decode_seed)
    yield from _verify_watermark(relay, tally)


def _verify_map(name: str, content: bytes, tally: Tally, decode: Callable[[bytes], object]) -> Iterator[Finding]:
    tally.files += 1
    tally.read(len(content))
    try:
        decode(content)
    except LaterFormatError as error:
        yield Finding(name, "later_format", str(error), _LATER, 0)
    except CheckedMapError as error:
        yield Finding(name, "damaged", str(error), _REBUILT, 0)
    except SeedError as error:
        yield Finding(name, "damaged", str(error), "bring the seed back from where the relay was restored from", 0)


def _verify_watermark(relay: Directory, tally: Tally) -> Iterator[Finding]:
    try:
        file = relay.open(WATERMARK, "read")
    except FileNotFoundError:
        return
    try:
        content = file.read(WATERMARK_BYTES + 1, 0)
    finally:
        file.close()
    tally.files += 1
    tally.read(len(content))
    if decode_watermark(content) is None:
        yield _bad_watermark(WATERMARK)


def verify_lone_map(content: bytes, label: str, tally: Tally) -> Iterator[Finding]:
    """A snapshot, an `acknowledged`, or a seed under any name."""
    if content.startswith(acknowledged.MAGIC):
        return _verify_map(label, content, tally, acknowledged.decode_acknowledged)
    return _verify_map(label, content, tally, _decode_snapshot_or_seed)


def verify_lone_watermark(content: bytes, label: str, tally: Tally) -> Iterator[Finding]:
    """A watermark by itself."""
    tally.files += 1
    tally.read(len(content))
    if decode_watermark(content) is None:
        yield _bad_watermark(label)


def _bad_watermark(label: str) -> Finding:
    return Finding(label, "note", "it does not check, and counts as none", "nothing; it is written again", 0)


def _decode_snapshot_or_seed(content: bytes) -> object:
    try:
        return snapshot.load_generation("snapshot", content)
    except CheckedMapError as error:
        try:
            return decode_seed(content)
        except SeedError:
            raise error from None


def no_file_of_relayds(label: str, what: str) -> Finding:
    """A file that nothing can be said of."""
    hint = "if it was one once, bring it back from where it was copied to or from; nothing in it can be kept"
    return Finding(label, "damaged", f"no file of relayd's: {what}" if what == "empty" else what, hint)


def missing(label: str, hole: Span, owner: Owner) -> Finding:
    """Ordinals that were answered, and are in no file."""
    return Finding(label, "missing", "no file holds these", owner.replace_missing(*hole), None, *hole)


def unreadable(label: str, error: OSError) -> Finding:
    """A file that the disk, or its permissions, keep from being read."""
    what = f"reading it failed: {error.strerror or error}"
    return Finding(label, "damaged", what, "mend the disk or the permissions, and read it again")


def verify_lost_mark(name: SegmentName, label: str) -> Finding:
    """The span that an empty file marks."""
    return Finding(label, "lost", "salvage gave these up", "nothing; readers are told", None, name.first, name.last)
