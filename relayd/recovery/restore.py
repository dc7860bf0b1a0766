"""`relayd restore`: a relay from a backup, or from a seed (docs/reference/journal.md, "Offline tools").

From a backup it is the same relay again: the same store, ordinals and digests, so that every reader's cursor holds.
From a seed it is a new one that goes on where the seed ends. Either is made under a name that counts for nothing,
proven by the reading half of an opening, and renamed.
"""

import contextlib
import secrets
import time
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

import msgspec

from relayd.journal.active import make_active
from relayd.journal.names import JOURNAL, NEW, SegmentKind, SegmentName
from relayd.journal.real_storage import open_state_directory
from relayd.journal.sealer import write_sealed
from relayd.journal.storage import Directory, File
from relayd.journal.trouble import storage_error
from relayd.protocol.cursor import Cursor, Span
from relayd.protocol.errors import AlreadyExistsError, FieldDetail, InvalidRequestError, NameDetail
from relayd.protocol.event import Record, decode_body, iter_records
from relayd.protocol.kinds import RETENTION_DEFAULT, RelayLost, Retention
from relayd.protocol.limits import MIB
from relayd.protocol.names import is_relay_name
from relayd.recovery import snapshot
from relayd.recovery.acknowledged import replace_acknowledged
from relayd.recovery.backup import Backup, read_backup, read_backup_frame
from relayd.recovery.backup_format import BackupError, BackupHead, is_backup
from relayd.recovery.checked_map import HEADER_BYTES, MAP_BYTES_MAX
from relayd.recovery.making import restore_relay
from relayd.recovery.places import open_file
from relayd.recovery.reading import read_relay
from relayd.recovery.refusal import OpeningError
from relayd.recovery.survey import survey
from relayd.recovery.verify_files import Progress, Tally
from relayd.relay.acknowledged import Acknowledgements
from relayd.relay.fold import FoldError, fold, new_state
from relayd.relay.state import MAX_ACTIVE_DEFAULT, RelayState

_RELAYS: Final = "relays"
_PART_BYTES: Final = 8 * MIB


class RestoreReport(msgspec.Struct, frozen=True):
    """The relay that was made. `missing`: spans that neither it nor its backup has; readers are told."""

    relay: str
    source: Literal["backup", "seed"]
    store: bytes
    records: int
    latest: Cursor
    missing: tuple[tuple[int, int], ...] = ()


class Fresh(NamedTuple):
    """What is not in the file. `retention` and `max_active` are for a relay from a seed."""

    retention: Retention
    max_active: int
    now_ms: int


def restore(
    state_dir: str,
    relay: str,
    file: str,
    *,
    retention: Retention = RETENTION_DEFAULT,
    max_active: int = MAX_ACTIVE_DEFAULT,
    progress: Progress | None = None,
) -> RestoreReport:
    """Makes the relay `relay` in `state_dir`, which is made where it is missing, from a backup or a seed.

    `retention` and `max_active` are those of a relay from a seed; a backup has its own. A daemon may run on the state
    directory. `progress` is told bytes read since its last call.

    Raises InvalidRequestError for a name or file that is none, or damaged, with nothing left behind;
    AlreadyExistsError; StorageFullError, StorageFailedError, and it can be run again.
    """
    fresh = Fresh(retention, max_active, time.time_ns() // 1_000_000)
    try:
        with contextlib.ExitStack() as stack:
            source = stack.enter_context(contextlib.closing(_open_source(file)))
            state = stack.enter_context(contextlib.closing(open_state_directory(state_dir, make=True)))
            relays = stack.enter_context(contextlib.closing(_relays(state)))
            return restore_into(relays, relay, source, fresh, progress)
    except OSError as error:
        raise storage_error(error, f"restoring the relay `{relay}`") from error


def _open_source(path: str) -> File:
    try:
        file = open_file(path)
    except FileNotFoundError as error:
        raise _wrong(f"nothing is at {path}") from error
    begin = file.read(HEADER_BYTES, 0)
    # The two forms of a seed: framed as a snapshot is, and JSON.
    if not is_backup(begin) and not begin.startswith(snapshot.MAGIC) and not begin.lstrip().startswith(b"{"):
        file.close()
        raise _wrong(f"{path} is neither a backup nor a seed")
    return file


def _relays(state: Directory) -> Directory:
    if state.stat(_RELAYS) is None:
        state.make_directory(_RELAYS)
        state.sync()
    return state.directory(_RELAYS)


def restore_into(
    relays: Directory, name: str, source: File, fresh: Fresh, progress: Progress | None = None
) -> RestoreReport:
    """As `restore`, for an open directory and file."""
    if not is_relay_name(name):
        raise InvalidRequestError(f"`{name}` is no relay's name", FieldDetail("relay", "a relay's name"))
    if relays.stat(name) is not None:
        message = f"there is a relay `{name}`; restore under another name, or delete that one first"
        raise AlreadyExistsError(message, NameDetail("relay", name))
    if not is_backup(source.read(HEADER_BYTES, 0)):
        return _from_seed(relays, name, source, fresh)
    try:
        backup = read_backup(source)
        return _from_backup(relays, name, source, backup, Tally(progress))
    except BackupError as error:
        raise _wrong(f"the backup is damaged at offset {error.offset}: {error}") from error


def _wrong(message: str) -> InvalidRequestError:
    return InvalidRequestError(message, FieldDetail("file", "a whole backup, or a seed"))


def _from_seed(relays: Directory, name: str, source: File, fresh: Fresh) -> RestoreReport:
    content = source.read(HEADER_BYTES + MAP_BYTES_MAX + 1, 0)
    store = secrets.token_bytes(16)
    restore_relay(
        relays,
        name,
        seed=content,
        store=store,
        retention=fresh.retention,
        max_active=fresh.max_active,
        now_ms=fresh.now_ms,
        new_id=_new_id,
    )
    with contextlib.closing(relays.directory(name)) as relay:
        latest = _proven(relay)
    return RestoreReport(name, "seed", store, 1, latest)


def _new_id() -> bytes:
    return secrets.token_bytes(16)


def _from_backup(relays: Directory, name: str, source: File, backup: Backup, tally: Tally) -> RestoreReport:
    unfinished = f".{name}{NEW}"
    if relays.stat(unfinished) is not None:
        relays.remove_tree(unfinished)
    try:
        relays.make_directory(unfinished)
        with contextlib.closing(relays.directory(unfinished)) as relay:
            _Restoring(relay, name, source, backup, tally).run()
            latest = _proven(relay)
        relays.replace(unfinished, name)
    except Exception:
        with contextlib.suppress(OSError):
            relays.remove_tree(unfinished)
        raise
    relays.sync()
    missing = tuple((span.first, span.last) for span in backup.missing())
    return RestoreReport(name, "backup", backup.head.store, tally.records, latest, missing)


def _proven(relay: Directory) -> Cursor:
    """The frontier of what was written, as an opening reads it. Raises InvalidRequestError."""
    try:
        found = survey(relay, None)
        with contextlib.closing(found.journal):
            return read_relay(found).state.frontier
    except OpeningError as error:
        raise _wrong(f"what was restored would not open: {error.found}") from error


class _Restoring:
    """A relay's directory, filled from a backup."""

    def __init__(self, relay: Directory, name: str, source: File, backup: Backup, tally: Tally) -> None:
        self._relay = relay
        self._name = name
        self._source = source
        self._backup = backup
        self._tally = tally
        self._folds = backup.state is None
        self._state = backup.state or _state_before(backup.head)
        self._at = backup.head.evicted.ordinal
        self._marks: list[Span] = []
        self._segment = _new_id()

    def run(self) -> None:
        relay, head = self._relay, self._backup.head
        relay.make_directory(JOURNAL)
        with contextlib.closing(relay.directory(JOURNAL)) as journal:
            for first, last, records in self._parts():
                write_sealed(journal, first, last, head.store, self._segment, (records,))
            self._finish_state()
            for span in self._marks:
                journal.open(SegmentName(SegmentKind.LOST, span.first, span.last).text, "create").close()
            make_active(journal, head.store, _new_id()).close()
            journal.sync()
        acknowledgements = _acknowledgements(head)
        if acknowledgements.consumers:
            replace_acknowledged(relay, head.store, acknowledgements)
        snapshot.write_new(relay, snapshot.encode_snapshot(self._name, self._state, head.evicted))
        snapshot.install(relay)

    def _parts(self) -> Iterator[tuple[int, int, bytes]]:
        """The records as segments are to hold them: first and last ordinal, and the bytes."""
        held = bytearray()
        first = last = 0
        for frame in self._backup.end.frames:
            if held and (frame.first != last + 1 or len(held) + frame.plain_size > _PART_BYTES):
                yield first, last, bytes(held)
                held.clear()
            plain = read_backup_frame(self._source, frame)
            self._follow(plain)
            self._tally.read(frame.size)
            self._tally.records += frame.records
            first, last = first if held else frame.first, frame.last
            held += plain
        if held:
            yield first, last, bytes(held)

    def _follow(self, plain: bytes) -> None:
        """Goes along the records: marks what is missing before them, and folds them where the state is not known."""
        for record in iter_records(plain):
            try:
                if record.ordinal != self._at + 1:
                    self._cross(Span(self._at + 1, record.ordinal - 1), record)
                if self._folds:
                    fold(self._state, record.cursor, decode_body(record.body))
            except (FoldError, msgspec.DecodeError) as error:
                raise _wrong(f"ordinal {record.ordinal} cannot be taken up: {error}") from error
            self._at = record.ordinal

    def _cross(self, hole: Span, record: Record) -> None:
        """Over ordinals that the backup has not: the next event says that they were given up, or a mark has to."""
        body = decode_body(record.body)
        if body.kind == "relay.lost":
            said = msgspec.msgpack.decode(body.data, type=RelayLost)
            if (said.first, said.last) == hole:
                return
        self._forget_producers()
        self._marks.append(hole)

    def _forget_producers(self) -> None:
        """What missing events said of producers is not known: each may begin anywhere."""
        if self._folds:
            self._state.producers.clear()

    def _finish_state(self) -> None:
        """The state stands at the cut, whether the last records could be had or not."""
        latest, at = self._backup.head.latest, self._at
        if at < latest.ordinal:
            self._forget_producers()
            self._marks.append(Span(at + 1, latest.ordinal))
            self._state.frontier = latest
        elif not self._backup.end.frames and latest.ordinal:
            # Of a relay whose every event is gone, the last one's ordinal is kept taken.
            self._marks.append(Span(latest.ordinal, latest.ordinal))


def _state_before(head: BackupHead) -> RelayState:
    """The state before the backup's first record; where the beginning is gone, as far as it is known."""
    if head.evicted.ordinal == 0:
        return new_state(head.store)
    return RelayState(
        store=head.store,
        retention=head.retention,
        max_active=head.max_active,
        frontier=head.evicted,
        floor=head.floor,
    )


def _acknowledgements(head: BackupHead) -> Acknowledgements:
    """What consumers had acknowledged at the cut; one that was past it had everything in the backup."""
    acknowledgements = Acknowledgements()
    for consumer, cursor in head.consumers.items():
        known = cursor if cursor.ordinal <= head.latest.ordinal else head.latest
        acknowledgements = acknowledgements.acknowledge(consumer, known)
    return acknowledgements
