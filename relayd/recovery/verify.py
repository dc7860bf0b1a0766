"""`relayd verify`: every byte of a relay's files, proven (docs/reference/journal.md, "Offline tools").

Damage is found wherever it is, below the base too, and is told with the ordinals that it costs. Where no daemon has the
relay open, the reading half of an opening is asked as well: whether it would open.
"""

import contextlib
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Final

import msgspec

from relayd.journal.names import ACTIVE, SegmentKind, SegmentName, parse_segment_name
from relayd.journal.real_storage import open_state_directory
from relayd.journal.segment import SEGMENT_HEADER_BYTES, decode_segment_header
from relayd.journal.storage import Directory, File
from relayd.protocol.names import is_relay_name
from relayd.recovery.backup import verify_backup
from relayd.recovery.backup_format import is_backup
from relayd.recovery.checked_map import LaterFormatError
from relayd.recovery.places import (
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
from relayd.recovery.snapshot import read_generations
from relayd.recovery.survey import peek_sealed, survey
from relayd.recovery.verify_files import (
    SMALL_FILES,
    Finding,
    Progress,
    Tally,
    unreadable,
    verify_active_file,
    verify_lone_map,
    verify_lost_mark,
    verify_rotated_file,
    verify_sealed_file,
    verify_small_files,
)

_PASSES: Final = 5
_SNIFF_BYTES: Final = 64


class VerifyReport(msgspec.Struct, frozen=True):
    """What was checked at `path`, and what was found.

    `live`: a daemon has the relay open, and `in_flight_bytes` behind its watermark were not looked at. `refusal`: why
    the relay would not open, None where it would, where a daemon has it open, and for what is no relay.
    """

    path: str
    files: int
    records: int
    bytes: int
    findings: tuple[Finding, ...]
    live: bool = False
    in_flight_bytes: int = 0
    refusal: str | None = None

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
    """A report of each relay of a state directory, in order of name. Raises OSError."""
    with contextlib.closing(open_state_directory(state_dir)) as state:
        with contextlib.closing(state.directory("relays")) as relays:
            names = [entry.name for entry in relays.entries() if entry.kind == "directory"]
        for name in names:
            if is_relay_name(name):
                yield verify_path(str(Path(state.path) / "relays" / name), progress=progress)


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
    begin = file.read(_SNIFF_BYTES, 0)
    name = parse_segment_name(Path(path).name)
    if is_backup(begin):
        yield from verify_backup(file, path, tally)
        return
    if (name is not None and name.kind is SegmentKind.SEALED) or path.endswith(".log.zst"):
        yield from verify_sealed_file(file, path, name, None, tally)
        return
    content = file.read(file.size(), 0)
    findings = verify_lone_map(content, path, tally)
    if findings is not None:
        yield from findings
    elif name is not None and name.kind is SegmentKind.ROTATED:
        yield from verify_rotated_file(content, path, name, None, tally)
    else:
        view = judge_lone(content)
        yield from verify_active_file(view, path, None, tally)


class _JournalCheck:
    """A relay, or a journal that stands alone."""

    def __init__(self, path: str, place: JournalPlace, tally: Tally) -> None:
        self._path = path
        self._place = place
        self._tally = tally
        self._live = place.relay is not None and is_live(place.relay)
        self._store = _store_of(place)
        self._findings: list[Finding] = []
        self._seen: set[SegmentName] = set()

    def run(self) -> VerifyReport:
        if self._place.relay is not None:
            with self._reading("the small files"):
                self._findings += verify_small_files(self._place.relay, self._tally)
        active = self._verify_segments()
        if active is not None:
            label = self._place.prefix + ACTIVE
            self._findings += verify_active_file(active, label, self._store, self._tally)
        refusal = None if self._place.relay is None or self._live else _refusal(self._place.relay)
        tally = self._tally
        return VerifyReport(
            path=self._path,
            files=tally.files,
            records=tally.records,
            bytes=tally.bytes,
            findings=tuple(self._findings),
            live=self._live,
            in_flight_bytes=0 if active is None else max(0, active.in_flight),
            refusal=refusal,
        )

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
                return list(verify_sealed_file(file, label, name, self._store, self._tally))
            content = file.read(file.size(), 0)
        return list(verify_rotated_file(content, label, name, self._store, self._tally))


def _store_of(place: JournalPlace) -> bytes | None:
    """Whose journal it is: by the snapshots, else by active.log, else by the newest segment that tells."""
    with contextlib.suppress(LaterFormatError):
        usable = () if place.relay is None else read_generations(place.relay).usable
        if usable:
            return usable[0].snapshot.store
    for text in (ACTIVE, *(name.text for name in reversed(segment_names(place.journal)))):
        store = _store_in(place.journal, text)
        if store is not None:
            return store
    return None


def _store_in(journal: Directory, text: str) -> bytes | None:
    name = parse_segment_name(text)
    if name is None or name.kind is SegmentKind.LOST:
        return None
    if name.kind is SegmentKind.SEALED:
        index = peek_sealed(journal, name)
        return None if index is None else index.store
    with contextlib.suppress(FileNotFoundError), contextlib.closing(journal.open(text, "read")) as file:
        header = decode_segment_header(file.read(SEGMENT_HEADER_BYTES, 0))
        return None if header is None else header.store
    return None


def _refusal(relay: Directory) -> str | None:
    try:
        found = survey(relay, None)
        with contextlib.closing(found.journal):
            read_relay(found)
    except OpeningError as error:
        # A daemon that has opened it meanwhile knows better.
        return None if is_live(relay) else error.message
    return None
