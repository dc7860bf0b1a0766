"""`relayd verify`: every byte of a relay's files, proven (docs/reference/journal.md, "Offline tools").

Damage is found wherever it is, below the base too, and is told with the ordinals that it costs. Where no daemon has the
relay open, the reading half of an opening is asked as well: whether it would open.
"""

import contextlib
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Final

import msgspec

from relayd.journal.names import ACTIVE, JOURNAL, SegmentKind, SegmentName, parse_segment_name
from relayd.journal.real_storage import open_state_directory
from relayd.journal.sealed import LaterSealedFormatError
from relayd.journal.storage import Directory, File
from relayd.protocol.cursor import Span
from relayd.protocol.errors import NameDetail, NotFoundError
from relayd.protocol.event import Record
from relayd.protocol.names import is_relay_name
from relayd.recovery.backup import verify_backup
from relayd.recovery.bounds import gave_up, read_bounds
from relayd.recovery.file_kinds import file_kind
from relayd.recovery.intact import Found, scan_segment
from relayd.recovery.intact_sealed import scan_sealed
from relayd.recovery.places import (
    RELAYS,
    ActiveView,
    JournalPlace,
    is_live,
    judge_lone,
    open_place,
    segment_names,
    view_active,
)
from relayd.recovery.reading import read_relay
from relayd.recovery.refusal import OpeningError
from relayd.recovery.survey import survey
from relayd.recovery.verify_advice import Owner, relay_of_segment, salvage_arguments
from relayd.recovery.verify_files import (
    SMALL_FILES,
    Finding,
    Held,
    Progress,
    Tally,
    missing,
    no_file_of_relayds,
    unreadable,
    verify_active_file,
    verify_lone_map,
    verify_lone_watermark,
    verify_lost_mark,
    verify_rotated_file,
    verify_sealed_file,
    verify_small_files,
)

_PASSES: Final = 5


class VerifyReport(msgspec.Struct, frozen=True):
    """What was checked at `path`, and what was found.

    `live`: a daemon has the relay open, and `in_flight_bytes` behind its watermark were not looked at. `refusal`: why
    the relay would not open, and the word for it, None where it would, where a daemon has it open, and for what is no
    relay.
    """

    path: str
    files: int
    records: int
    bytes: int
    findings: tuple[Finding, ...]
    live: bool = False
    in_flight_bytes: int = 0
    refusal: str | None = None
    reason: str | None = None

    @property
    def damaged(self) -> bool:
        """Whether anything is to be done."""
        return self.refusal is not None or any(not finding.harmless for finding in self.findings)


def verify_path(path: str, *, progress: Progress | None = None) -> VerifyReport:
    """Checks every byte at `path` and changes nothing.

    `path`: a relay's directory, a journal, a segment, a backup, a snapshot, an `acknowledged` or a binary seed.
    `progress` is told bytes read since its last call; `measure_path` tells how many there are. Raises NotFoundError for
    a directory that is none of these; OSError.
    """
    tally = Tally(progress)
    with open_place(path) as place:
        if not isinstance(place, JournalPlace):
            findings = tuple(_verify_file(path, place, tally))
            return VerifyReport(path, tally.files, tally.records, tally.bytes, findings)
        return _JournalCheck(path, place, tally).run()


def verify_state(state_dir: str, *, progress: Progress | None = None) -> Iterator[VerifyReport]:
    """A report of each relay of a state directory, in order of name. Raises NotFoundError for what is none, OSError."""
    with contextlib.closing(open_state_directory(state_dir)) as state:
        if state.stat(RELAYS) is None:
            message = f"{state_dir} is no state directory: it has no `{RELAYS}`"
            raise NotFoundError(message, NameDetail("state directory", state_dir))
        with contextlib.closing(state.directory(RELAYS)) as relays:
            names = [entry.name for entry in relays.entries() if entry.kind == "directory"]
        for name in sorted(names):
            if is_relay_name(name):
                yield verify_path(str(Path(state.path) / RELAYS / name), progress=progress)


def measure_path(path: str) -> int:
    """About how many bytes `verify_path` reads at `path`. Raises OSError."""
    with open_place(path) as place:
        if not isinstance(place, JournalPlace):
            return place.size()
        directories = (place.journal,) if place.relay is None else (place.relay, place.journal)
        return sum(_size_of(directory, entry.name) for directory in directories for entry in directory.entries())


def _size_of(directory: Directory, name: str) -> int:
    found = directory.stat(name) if parse_segment_name(name) is not None or name in SMALL_FILES else None
    return 0 if found is None else found[1]


def _verify_file(path: str, file: File, tally: Tally) -> Iterator[Finding]:
    """One file, by what it begins with; its name helps where that is damaged."""
    kind = file_kind(path, file)
    owner = Owner(salvage=salvage_arguments(relay_of_segment(Path(path))))
    match kind.kind:
        case "backup":
            yield from verify_backup(file, path, tally)
        case "sealed":
            yield from verify_sealed_file(file, path, kind.name, owner, tally)
        case "lost":
            assert kind.name is not None, "it is told by its name"
            yield verify_lost_mark(kind.name, path)
        case "groups" if kind.name is not None:
            yield from verify_rotated_file(file.read(file.size(), 0), path, kind.name, owner, tally)
        case "groups":
            yield from verify_active_file(judge_lone(file.read(file.size(), 0)), path, None, owner, tally)
        case "map":
            yield from verify_lone_map(file.read(file.size(), 0), path, tally)
        case "watermark":
            yield from verify_lone_watermark(file.read(file.size(), 0), path, tally)
        case "none":
            tally.files += 1
            tally.read(file.size())
            yield no_file_of_relayds(path, kind.what)


class _JournalCheck:
    """A relay, or a journal that stands alone."""

    def __init__(self, path: str, place: JournalPlace, tally: Tally) -> None:
        self._path = path
        self._place = place
        self._tally = tally
        self._live = place.relay is not None and is_live(place.relay)
        self._bounds = read_bounds(place)
        self._owner = self._make_owner()
        self._findings: list[Finding] = []
        self._seen: set[SegmentName] = set()
        self._in_active = Held(None, None)

    def _make_owner(self) -> Owner:
        relay, bounds = self._place.relay, self._bounds
        arguments = None if relay is None else salvage_arguments(Path(relay.path))
        return Owner(bounds.store, arguments, bounds.base or 0, bounds.frontier, self._live)

    def run(self) -> VerifyReport:
        if self._place.relay is not None:
            with self._reading("the small files"):
                self._findings += verify_small_files(self._place.relay, self._tally)
        active = self._verify_segments()
        if active is not None:
            self._verify_active(active)
        self._findings += self._missing(active)
        refused = None if self._place.relay is None or self._live else _refusal(self._place.relay)
        tally = self._tally
        return VerifyReport(
            path=self._path,
            files=tally.files,
            records=tally.records,
            bytes=tally.bytes,
            findings=tuple(self._findings),
            live=self._live,
            in_flight_bytes=0 if active is None else max(0, active.in_flight),
            refusal=None if refused is None else refused.message,
            reason=None if refused is None else refused.reason,
        )

    def _verify_active(self, view: ActiveView) -> None:
        label = self._place.prefix + ACTIVE
        before = max((name.last for name in self._seen), default=self._bounds.base or 0)
        checking = verify_active_file(view, label, before + 1, self._owner, self._tally)
        while True:
            try:
                self._findings.append(next(checking))
            except StopIteration as end:
                self._in_active = end.value
                return

    def _missing(self, active: ActiveView | None) -> Iterator[Finding]:
        """Ordinals that no file holds, no event gave up, and nobody collected."""
        label = JOURNAL if self._place.relay is not None else "."
        spans = sorted(Span(name.first, name.last) for name in self._seen)
        if self._in_active.span is not None:
            spans.append(self._in_active.span)
        # What was there when this began may have been collected since.
        base = (read_bounds(self._place) if self._live else self._bounds).base
        at = base if base is not None else spans[0].first - 1 if spans else 0
        for span in spans:
            hole = Span(at + 1, span.first - 1)
            if hole.first <= hole.last and not self._gave_up(hole):
                yield missing(label, hole, self._owner)
            at = max(at, span.last)
        # Of bytes in flight, and of a file that could not be read, nothing is known.
        where = self._place.prefix + ACTIVE
        unseen = any(one.file == where for one in self._findings) if active is None else active.in_flight > 0
        if at < self._bounds.answered and not unseen:
            yield missing(label, Span(at + 1, self._bounds.answered), self._owner)

    def _gave_up(self, hole: Span) -> bool:
        """Whether the record behind the hole is the `relay.lost` that names it."""
        behind = hole.last + 1
        record = self._in_active.record
        if record is None or record.ordinal != behind:
            name = next((name for name in self._seen if name.first == behind), None)
            record = None if name is None else self._first_record(name)
        return record is not None and record.ordinal == behind and gave_up(behind, bytes(record.body), hole)

    def _first_record(self, name: SegmentName) -> Record | None:
        if name.kind is SegmentKind.LOST:
            return None
        with (
            contextlib.suppress(OSError, LaterSealedFormatError),
            contextlib.closing(self._place.journal.open(name.text, "read")) as file,
        ):
            if name.kind is SegmentKind.SEALED:
                return _first_in(scan_sealed(file, name))
            content = file.read(file.size(), 0)
            return _first_in(scan_segment(memoryview(content), len(content), name.first, name.last))
        return None

    def _verify_segments(self) -> ActiveView | None:
        """All files but active.log, which is read before their names are: what it no longer holds is among them."""
        active: ActiveView | None = None
        for _ in range(_PASSES):
            names = segment_names(self._place.journal)
            with self._reading(self._place.prefix + ACTIVE):
                active = view_active(self._place, max((name.last for name in names), default=0), live=self._live)
            names = [name for name in segment_names(self._place.journal) if name not in self._seen]
            if not names:
                return active
            for name in names:
                self._seen.add(name)
                # One that is gone has been sealed or collected meanwhile.
                with self._reading(self._place.prefix + name.text), contextlib.suppress(FileNotFoundError):
                    self._findings += self._verify_segment(name)
        return active

    @contextlib.contextmanager
    def _reading(self, label: str) -> Generator[None]:
        """What the disk does not give is a finding, and the rest is read."""
        try:
            yield
        except OSError as error:
            finding = unreadable(label, error)
            if finding not in self._findings:
                self._findings.append(finding)

    def _verify_segment(self, name: SegmentName) -> list[Finding]:
        label = self._place.prefix + name.text
        if name.kind is SegmentKind.LOST:
            return [verify_lost_mark(name, label)]
        with contextlib.closing(self._place.journal.open(name.text, "read")) as file:
            if name.kind is SegmentKind.SEALED:
                return list(verify_sealed_file(file, label, name, self._owner, self._tally))
            content = file.read(file.size(), 0)
        return list(verify_rotated_file(content, label, name, self._owner, self._tally))


def _first_in(scanned: Iterator[Found]) -> Record | None:
    first = next(scanned, None)
    return first if isinstance(first, Record) else None


def _refusal(relay: Directory) -> OpeningError | None:
    try:
        found = survey(relay, None)
        with contextlib.closing(found.journal):
            read_relay(found)
    except OpeningError as error:
        # A daemon that has opened it meanwhile knows better.
        return None if is_live(relay) else error
    return None
