"""One relay's directory, put as damage left it, opened as a daemon opens it, and compared with the judge.

relay = Relay(path)
relay.put(files)
assert relay.differences() == []
"""

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from chaos.at_rest.judge import ACTIVE, Opens, Refused, judge
from chaos.at_rest.judge_files import Records, records_in, span_of
from support.relays import RelayDisk, append, close, event, seen

from relayd.journal.pages import PageReader, make_page_cache
from relayd.protocol.cursor import Span
from relayd.recovery.opening import Opened
from relayd.recovery.refusal import OpeningError
from relayd.recovery.verify import verify_path

PAGE_BYTES = 1 << 20
SMALL = ("snapshot", "snapshot.previous", "acknowledged")


class Served(NamedTuple):
    """What an open relay shows. `torn`: bytes set aside; `quarantined`: names that the opening put in quarantine/."""

    source: str
    last: int
    base: int
    records: Records
    unreadable: frozenset[int]
    torn: int
    quarantined: tuple[str, ...]
    frontier: tuple[int, bytes]
    producers: dict
    consumers: dict[str, tuple[int, bytes]]


@contextlib.contextmanager
def in_memory() -> Iterator[Path]:
    """A directory that is gone afterwards; in memory where there is such a place, because openings sync."""
    memory = Path("/dev/shm")
    place = memory if memory.is_dir() and os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="relayd-", dir=place) as path:
        yield Path(path)


class Relay:
    """A relay's files on a real file system, and its openings."""

    def __init__(self, root: Path) -> None:
        self.disk = RelayDisk(root)
        self._files: dict[str, bytes] = {}
        self.outcome: Served | Refused | None = None
        """What the first opening in `differences` gave."""

    def put(self, files: Mapping[str, bytes], folders: tuple[str, ...] = ()) -> "Relay":
        """Makes the directory hold exactly these files, and `folders` that are empty."""
        now = self._files
        if folders or not now.keys() <= files.keys():
            self.disk.restore({})
            now = {}
        for folder in folders:
            (self.disk.path / folder).mkdir(exist_ok=True)
        for path, content in files.items():
            if now.get(path) != content:
                target = self.disk.path / path
                target.parent.mkdir(exist_ok=True)
                target.write_bytes(content)
        self._files = dict(files)
        return self

    def files(self) -> dict[str, bytes]:
        """Every file there is now, by path in the relay."""
        root = self.disk.path
        found = {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}
        self._files = found
        return found

    def open(self) -> Served | Refused:
        """Opens it, reads everything, and closes it again."""
        try:
            opened = self.disk.open()
        except OpeningError as error:
            detail = error.detail
            file = "" if detail.file is None else str(Path(detail.file).relative_to(self.disk.path))
            return Refused(error.reason, file, detail.offset)
        try:
            return _served(opened)
        finally:
            close(opened)

    def goes_on(self) -> int:
        """Opens it, commits one event behind the last, and opens it again: the ordinal that is the last then."""
        opened = self.disk.open()
        try:
            append(opened, event(opened.writer.last_ordinal + 1))
        finally:
            close(opened)
        return self.disk.look().state.frontier.ordinal

    def findings(self) -> list[str]:
        """The files of which `relayd verify` says something."""
        return [finding.file for finding in verify_path(str(self.disk.path)).findings]

    def differences(self) -> list[str]:
        """Where opening what is there now differs from the judge; a second opening, and appending, are proven too."""
        before = self.files()
        expected, got = judge(before), self.open()
        self.outcome = got
        after = self.files()
        if isinstance(expected, Refused) or isinstance(got, Refused):
            wrong = _refusal_differences(expected, got)
            return wrong + ([] if before == after or isinstance(got, Served) else ["a refusal changed a file"])
        wrong = _served_differences(expected, got) + _file_differences(before, after, expected)
        again = self.open()
        if not isinstance(again, Served) or again[1:5] + again[7:] != got[1:5] + got[7:]:
            wrong.append(f"a second opening gives another relay: {_short(again)}")
        return wrong


def _served(opened: Opened) -> Served:
    records, unreadable, after = {}, set(), opened.base.ordinal
    last = opened.state.frontier.ordinal
    reader = PageReader(opened.journal, make_page_cache(), opened.store)
    while after < last:
        page = reader.read(opened.catalogue.view(), after, last, PAGE_BYTES)
        if isinstance(page, Span):
            assert page.first == after + 1, "the lost range begins where it is asked for"
            unreadable.update(range(page.first, page.last + 1))
            after = page.last
        else:
            found = records_in(page, after + 1)
            assert found, "a page holds whole records, the first right behind the cursor"
            records |= found
            after = max(found)
    state, report = seen(opened), opened.report
    return Served(
        report.source,
        last,
        opened.base.ordinal,
        records,
        frozenset(unreadable),
        report.torn_bytes,
        report.quarantined,
        tuple(state["frontier"]),
        state.get("producers", {}),
        {name: tuple(cursor) for name, cursor in opened.acknowledgements.consumers.items()},
    )


def _refusal_differences(expected: Opens | Refused, got: Served | Refused) -> list[str]:
    """Where several things refuse, any of them may be named."""
    if isinstance(expected, Opens) and isinstance(got, Refused) and got.code == "journal_corrupt":
        span = span_of(got.file)
        if span is not None and any(span.first <= ordinal <= span.last for ordinal in expected.doubtful):
            return []
    if not isinstance(expected, Refused) or not isinstance(got, Refused):
        return [f"the judge: {_short(expected)}; the opening: {_short(got)}"]
    same = any(
        one.code == got.code and one.file in ("", got.file) and one.offset in (None, got.offset)
        for one in (expected, *expected.also)
    )
    return [] if same else [f"the judge: {expected}; the opening: {got}"]


def _served_differences(expected: Opens, got: Served) -> list[str]:
    wrong = [
        f"{what}: the judge {one!r}, the opening {other!r}"
        for what, one, other in (
            ("source", expected.source, got.source),
            ("last", expected.last, got.last),
            ("torn bytes", expected.torn, got.torn),
            ("stale", expected.stale, any("stale" in name for name in got.quarantined)),
            ("frontier", expected.frontier, got.frontier),
            ("producers", expected.producers, got.producers),
        )
        if one != other
    ]
    lost = got.unreadable & expected.doubtful
    records = {
        ordinal: record for ordinal, record in expected.records.items() if ordinal > got.base and ordinal not in lost
    }
    unreadable = {ordinal for ordinal in expected.unreadable if ordinal > got.base} | lost
    if got.records != records or got.unreadable != unreadable:
        changed = sorted(
            ordinal for ordinal in records.keys() & got.records if records[ordinal] != got.records[ordinal]
        )
        wrong.append(
            f"readers: changed {changed}, unreadable {sorted(got.unreadable)} where the judge says {sorted(unreadable)}"
        )
    return wrong


def _file_differences(before: dict[str, bytes], after: dict[str, bytes], expected: Opens) -> list[str]:
    """No byte is gone but zeros, unfinished files, and what is there twice."""
    kept = {content for path, content in after.items() if path.startswith("quarantine/")}
    wrong = []
    for path, content in before.items():
        if path == ACTIVE:
            wrong += _active_differences(content, after.get(ACTIVE), kept, expected)
        elif path.endswith(".new") or path in ("watermark", "idle"):
            continue
        elif path in SMALL:
            if path in expected.passed_over and content not in kept:
                wrong.append(f"{path} was passed over and is not in quarantine/")
        elif after.get(path) != content and content not in kept and not _is_copy(path, before, after):
            wrong.append(f"{path} changed")
    return wrong


def _active_differences(content: bytes, after: bytes | None, kept: set[bytes], expected: Opens) -> list[str]:
    whole = content[: expected.x]
    if expected.stale:
        return [] if content in kept else ["the stale active.log is not in quarantine/"]
    if expected.x and after != whole:
        return ["active.log is not its whole groups"]
    if not expected.x and (after is None or len(after) != 48 or after[24:40] == content[24:40]):
        return ["active.log was not made anew"]
    torn = content[expected.x : expected.x + expected.torn]
    return [] if not torn or torn in kept else ["the torn bytes are not in quarantine/"]


def _is_copy(path: str, before: dict[str, bytes], after: dict[str, bytes]) -> bool:
    """A rotated file whose sealed copy stays."""
    span = span_of(path)
    copy = None if span is None else span._replace(suffix=".log.zst").name
    return path.endswith(".log") and path not in after and copy in before and after.get(copy) == before[copy]


def _short(outcome: Opens | Served | Refused) -> str:
    if isinstance(outcome, Refused):
        return f"{outcome.code} {outcome.file} {outcome.offset}"
    return f"opens through {outcome.last}, unreadable {sorted(outcome.unreadable)}"
