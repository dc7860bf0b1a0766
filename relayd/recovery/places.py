"""What a path names: a relay, a journal, or one file (docs/reference/journal.md, "Offline tools").

Reading only. A relay that a daemon has open changes meanwhile: there, nothing behind the watermark is looked at. A file
that is named by itself need be no file of a state directory, and belongs to whom it may.
"""

import contextlib
import os
import stat as modes
from collections.abc import Generator
from pathlib import Path
from typing import Final, NamedTuple

from relayd.journal.names import ACTIVE, JOURNAL, SNAPSHOT, WATERMARK, SegmentKind, SegmentName, parse_segment_name
from relayd.journal.real_storage import RealFile, Reserve, open_state_directory
from relayd.journal.segment import SEGMENT_HEADER_BYTES, decode_segment_header
from relayd.journal.storage import Directory, File, ForeignFileError, Identity
from relayd.journal.watermark import WATERMARK_BYTES, Watermark, decode_watermark
from relayd.protocol.errors import NameDetail, NotFoundError
from relayd.recovery.judged import Judged, judge
from relayd.recovery.proof import Evidence, Verdict, decide
from relayd.recovery.survey import sealed_newest_first

RELAYS: Final = "relays"
"""The directory of the relays, in a state directory."""

_TRIES: Final = 5
_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK


class JournalPlace(NamedTuple):
    """A relay's directory and its journal's; `relay` is None for a journal that stands alone, a copy of one."""

    relay: Directory | None
    journal: Directory

    @property
    def prefix(self) -> str:
        """What the names of segments are prefixed with, so that they are relative to what was named."""
        return "" if self.relay is None else f"{JOURNAL}/"


class ActiveView(NamedTuple):
    """active.log as far as it is to be looked at.

    `stop`: everything before it counts. `in_flight`: bytes behind the watermark of a relay that a daemon has open.
    `judged`: how the end was judged where no daemon has it open. `missing`: there is no such file, and the watermark
    says that there was.
    """

    content: bytes
    stop: int
    in_flight: int
    judged: Judged | None
    verdict: Verdict | None
    missing: bool = False


@contextlib.contextmanager
def open_place(path: str) -> Generator[JournalPlace | File]:
    """Opens what `path` names. Raises NotFoundError for nothing, or a directory that is neither; OSError."""
    if not Path(path).is_dir():
        try:
            file = open_file(path)
        except FileNotFoundError:
            raise NotFoundError(f"nothing is at {path}", NameDetail("file", path)) from None
        with contextlib.closing(file):
            yield file
        return
    with contextlib.ExitStack() as stack:
        yield _open_journal(path, stack)


def _open_journal(path: str, stack: contextlib.ExitStack) -> JournalPlace:
    directory = stack.enter_context(contextlib.closing(open_state_directory(path)))
    if directory.stat(JOURNAL) is not None:
        journal = stack.enter_context(contextlib.closing(directory.directory(JOURNAL)))
        return JournalPlace(directory, journal)
    above = Path(directory.path).parent
    if Path(directory.path).name == JOURNAL:
        relay = stack.enter_context(contextlib.closing(open_state_directory(str(above))))
        if any(relay.stat(name) is not None for name in (WATERMARK, SNAPSHOT)):
            return JournalPlace(relay, directory)
    if not segment_names(directory) and directory.stat(ACTIVE) is None:
        message = f"{path} is neither a relay's directory nor a journal: no segment is in it, and no `{JOURNAL}`"
        if directory.stat(RELAYS) is not None:
            message = (
                f"{path} is a state directory; its relays are {path.rstrip('/')}/{RELAYS}/NAME, and "
                f"`relayd verify --all {path}` checks every one"
            )
        raise NotFoundError(message, NameDetail("journal", path))
    return JournalPlace(None, directory)


def open_file(path: str) -> RealFile:
    """Opens one file of whoever to read it. Raises ForeignFileError for what is no regular file, OSError."""
    descriptor = os.open(path, _FLAGS)
    status = os.fstat(descriptor)
    if not modes.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise ForeignFileError(path, "is no regular file")
    return RealFile(descriptor, Identity(status.st_dev, status.st_ino), Reserve(0))


def is_live(relay: Directory) -> bool:
    """Whether a daemon has the relay open. The lock is taken for no longer than it takes to see that it is free."""
    with contextlib.closing(open_state_directory(relay.path)) as probe:
        return not probe.lock()


def segment_names(journal: Directory) -> list[SegmentName]:
    """The segments but active.log, in order of ordinals; what is no file is passed over."""
    names = (parse_segment_name(entry.name) for entry in journal.entries() if entry.kind == "file")
    found = [name for name in names if name is not None and name.kind is not SegmentKind.ACTIVE]
    return sorted(found, key=lambda name: (name.first, name.last, name.kind))


def read_watermark(relay: Directory) -> Watermark | None:
    """The watermark; None where it is missing or does not check. Raises OSError."""
    try:
        file = relay.open(WATERMARK, "read")
    except FileNotFoundError:
        return None
    with contextlib.closing(file):
        return decode_watermark(file.read(WATERMARK_BYTES + 1, 0))


def view_active(place: JournalPlace, before: int, *, live: bool) -> ActiveView | None:
    """active.log and where to stop in it. `before`: the last ordinal of the other files.

    None where it is missing, and nothing says that it held anything.
    """
    content = b""
    for _ in range(_TRIES):
        watermark = None if place.relay is None else read_watermark(place.relay)
        try:
            with contextlib.closing(place.journal.open(ACTIVE, "read")) as file:
                content = file.read(file.size(), 0)
        except FileNotFoundError:
            return None if live else _missing(place, watermark, before)
        header = decode_segment_header(content)
        if not live:
            return _judged(content, watermark, before, _other_ids(place.journal))
        if header is not None and watermark is not None and watermark.segment == header.segment:
            # The watermark was read first: what it says was in the file before that was read.
            return ActiveView(content, watermark.offset, len(content) - watermark.offset, None, None)
    return ActiveView(content, 0, len(content), None, None)


def _missing(place: JournalPlace, watermark: Watermark | None, before: int) -> ActiveView | None:
    """A watermark that names no other file here is that of the file that is gone."""
    if watermark is None or watermark.offset <= SEGMENT_HEADER_BYTES:
        return None
    view = _judged(b"", watermark, before, _other_ids(place.journal))
    return view._replace(missing=True) if view.judged is not None and view.judged.damaged else None


def _other_ids(journal: Directory) -> frozenset[bytes]:
    """The segment ids of the other files, as far as they tell."""
    names = segment_names(journal)
    ids = {index.segment for index in sealed_newest_first(journal, tuple(names))}
    for name in names:
        if name.kind is SegmentKind.ROTATED:
            with contextlib.suppress(OSError), contextlib.closing(journal.open(name.text, "read")) as file:
                header = decode_segment_header(file.read(SEGMENT_HEADER_BYTES, 0))
                ids |= set() if header is None else {header.segment}
    return frozenset(ids)


def judge_lone(content: bytes) -> ActiveView:
    """A file of groups of which nothing else is known."""
    return _judged(content, None, 0, frozenset())


def _judged(content: bytes, watermark: Watermark | None, before: int, others: frozenset[bytes]) -> ActiveView:
    evidence = Evidence(watermark=watermark, others=others, before=before)
    verdict = decide(content, evidence)
    judged = judge(content, verdict, evidence)
    return ActiveView(content, judged.stop, 0, judged, verdict)
