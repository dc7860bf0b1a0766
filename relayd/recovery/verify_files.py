"""What `relayd verify` checks of each kind of file, and how it says what it found."""

from collections.abc import Callable, Generator, Iterator
from typing import Final, Literal

import msgspec

from relayd.journal.names import ACKNOWLEDGED, SEED, WATERMARK, SegmentName
from relayd.journal.sealed import LaterSealedFormatError, read_index, verify_sealed
from relayd.journal.segment import decode_segment_header, is_later_group, is_later_segment
from relayd.journal.storage import Directory, File
from relayd.journal.watermark import WATERMARK_BYTES, decode_watermark
from relayd.protocol.event import Record, decode_body
from relayd.protocol.kinds import KINDS, is_reserved
from relayd.recovery import acknowledged, snapshot
from relayd.recovery.checked_map import CheckedMapError, LaterFormatError, read_bounded
from relayd.recovery.intact import Damage, scan_segment
from relayd.recovery.places import ActiveView
from relayd.recovery.seed import SeedError, decode_seed

Progress = Callable[[int], None]
"""Told how many bytes were read since it was last called."""

Reason = Literal["damaged", "torn", "undecided", "foreign", "later_format", "lost", "note"]
HARMLESS: Final[frozenset[Reason]] = frozenset({"torn", "lost", "note"})
"""What no salvage is needed for: a torn write, a span that salvage gave up before, a file that costs nothing."""

SMALL_FILES: Final = (*snapshot.GENERATIONS, ACKNOWLEDGED, SEED, WATERMARK)

_SALVAGE: Final = "`relayd salvage` keeps every record that is intact; a backup may have the others"
_REBUILT: Final = "the next opening sets it aside and goes on without it"
_TORN: Final = "never answered; the next opening sets it aside"
_UNDECIDED: Final = "`relayd salvage --tail` accepts the loss"
_LATER: Final = "read it with the version of relayd that wrote it"
_FOREIGN: Final = "move the file out of the journal; it belongs to another relay"


class Finding(msgspec.Struct, frozen=True):
    """Something that was found in `file`, at byte `offset`. `first` to `last`: the ordinals it costs; None: none.

    `hint` says what to do about it.
    """

    file: str
    reason: Reason
    what: str
    hint: str
    offset: int | None = None
    first: int | None = None
    last: int | None = None

    @property
    def harmless(self) -> bool:
        """Whether nothing is to be done."""
        return self.reason in HARMLESS


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
    file: File, label: str, name: SegmentName | None, store: bytes | None, tally: Tally
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
        yield Finding(label, "damaged", str(error), _SALVAGE, error.offset, first, last)
    if damaged:
        return
    index = read_index(file)
    tally.records += index.count
    if store is not None and index.store != store:
        yield Finding(label, "foreign", f"its store id is {index.store.hex()}", _FOREIGN, 0, index.first, index.last)


def verify_rotated_file(
    content: bytes, label: str, name: SegmentName | None, store: bytes | None, tally: Tally
) -> Iterator[Finding]:
    """Every byte of a segment that was rotated, or of one that is no longer appended to."""
    tally.files += 1
    tally.read(len(content))
    yield from _verify_header(content, label, store)
    last = yield from _verify_groups(content, len(content), label, name, tally)
    if name is not None and last != name.last and not (last is None and content):
        told = "no record" if last is None else f"ordinal {last}"
        what = f"it ends with {told}, its name says {name.last}"
        yield Finding(label, "damaged", what, _SALVAGE, len(content), (last or name.first - 1) + 1, name.last)


def verify_active_file(view: ActiveView, label: str, store: bytes | None, tally: Tally) -> Iterator[Finding]:
    """Every byte of active.log that counts, and what stands behind it where no daemon has it open."""
    content, stop, judged = view.content, view.stop, view.judged
    tally.files += 1
    tally.read(len(content) if judged is not None else stop)
    if stop or judged is None or judged.damaged:
        yield from _verify_header(content, label, store)
        yield from _verify_groups(content, stop, label, None, tally)
    if judged is None or judged.tail == "clean":
        return
    size = judged.used - judged.stop
    if is_later_group(content, judged.stop) or is_later_segment(content):
        yield Finding(label, "later_format", "a group of a later format", _LATER, judged.stop)
    elif judged.tail == "torn":
        yield Finding(label, "torn", f"{size} bytes of a write that was cut off", _TORN, judged.stop)
    else:
        what = f"{size} bytes are no whole group, and nothing tells whether they were answered"
        yield Finding(label, "undecided", what, _UNDECIDED, judged.stop)


def _verify_header(content: bytes, label: str, store: bytes | None) -> Iterator[Finding]:
    header = decode_segment_header(content)
    if header is None and is_later_segment(content):
        yield Finding(label, "later_format", "a segment of a later format", _LATER, 0)
    if header is not None and store is not None and header.store != store:
        yield Finding(label, "foreign", f"its store id is {header.store.hex()}", _FOREIGN, 0)


def _verify_groups(
    content: bytes, stop: int, label: str, name: SegmentName | None, tally: Tally
) -> Generator[Finding, None, int | None]:
    """Gives the last ordinal read."""
    last: int | None = None
    first, last_named = (None, None) if name is None else (name.first, name.last)
    for one in scan_segment(memoryview(content), stop, first, last_named):
        if isinstance(one, Damage):
            yield _damaged(one, content, label)
            last = one.last if one.lost is not None and not one.at_most else last
        else:
            last = one.ordinal
            tally.records += 1
            yield from _verify_body(one, label)
    return last


def _damaged(damage: Damage, content: bytes, label: str) -> Finding:
    if is_later_group(content, damage.offset):
        return Finding(label, "later_format", "a group of a later format", _LATER, damage.offset)
    first, last = (None, None) if damage.lost is None else damage.lost
    return Finding(label, "damaged", damage.what, _SALVAGE, damage.offset, first, last)


def _verify_body(record: Record, label: str) -> Iterator[Finding]:
    """The digest is right; is it an event?"""
    ordinal = record.ordinal
    try:
        body = decode_body(record.body)
    except msgspec.DecodeError as error:
        yield Finding(label, "damaged", f"the body is no event's: {error}", _SALVAGE, None, ordinal, ordinal)
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
        yield Finding(WATERMARK, "note", "it does not check, and counts as none", "nothing; it is written again", 0)


def verify_lone_map(content: bytes, label: str, tally: Tally) -> Iterator[Finding] | None:
    """A snapshot, an `acknowledged`, or a binary seed under any name; None where it is none of them."""
    if content.startswith(acknowledged.MAGIC):
        return _verify_map(label, content, tally, acknowledged.decode_acknowledged)
    if content.startswith(snapshot.MAGIC):
        return _verify_map(label, content, tally, _decode_snapshot_or_seed)
    return None


def _decode_snapshot_or_seed(content: bytes) -> object:
    try:
        return snapshot.load_generation("snapshot", content)
    except CheckedMapError as error:
        try:
            return decode_seed(content)
        except SeedError:
            raise error from None


def unreadable(label: str, error: OSError) -> Finding:
    """A file that the disk, or its permissions, keep from being read."""
    what = f"reading it failed: {error.strerror or error}"
    return Finding(label, "damaged", what, "mend the disk or the permissions, and read it again")


def verify_lost_mark(name: SegmentName, label: str) -> Finding:
    """The span that an empty file marks."""
    return Finding(label, "lost", "salvage gave these up", "nothing; readers are told", None, name.first, name.last)
