"""Carrying out what salvage has planned, in an order that can be cut off anywhere.

Nothing is deleted: what is taken out of the journal is copied to quarantine/ before. Until active.log is replaced the
journal holds everything it held, so a salvage that was killed plans the same again; behind that the event says what was
given up, and only copies are left to be removed. Where the fold would have to cross what is given up, a mark of that
span stands meanwhile: no state is past it, so every opening refuses until all is done.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from relayd.journal.active import install_active, make_active, open_or_make, prepare_active
from relayd.journal.names import ACTIVE, IDLE, NEW, QUARANTINE, WATERMARK, SegmentKind, SegmentName
from relayd.journal.sealer import write_sealed
from relayd.journal.segment import SEGMENT_HEADER_BYTES, encode_group_header
from relayd.journal.storage import Directory
from relayd.journal.watermark import Watermark, encode_watermark
from relayd.protocol.cursor import Cursor, Span
from relayd.protocol.errors import InvalidStateError, StateDetail
from relayd.protocol.event import RECORD_HEADER, Body, Record, decode_body, encode_records
from relayd.protocol.kinds import CommandInterrupted, RelayLost
from relayd.protocol.limits import MIB, ORDINAL_MAX
from relayd.recovery import snapshot
from relayd.recovery.outfile import holds_other, write_file
from relayd.recovery.quarantine import keep_file, open_quarantine, set_aside
from relayd.recovery.salvage_analysis import Analysis
from relayd.recovery.salvage_plan import Piece, Plan
from relayd.relay.own import own_body

LineOf = Callable[[Cursor, Body], bytes]
"""One event as a line of JSON, without the line's end."""

_CHUNK_BYTES: Final = 1 * MIB


class Means(NamedTuple):
    """What a salvage takes from outside. `rescued`: the file for what is intact and not kept; None: in quarantine/."""

    rescued: str | None
    line_of: LineOf
    new_id: Callable[[], bytes]
    now_ms: int


class Done(NamedTuple):
    """What was done. `rescued_file`: where the `rescued_events` are."""

    rescued_events: int = 0
    rescued_file: str | None = None
    written: tuple[str, ...] = ()
    quarantined: tuple[str, ...] = ()


def carry_out(analysis: Analysis, name: str, means: Means) -> Done:
    """Does what is planned for the relay `name`.

    Raises InvalidStateError before anything is changed: no ordinal is left, or the file for rescued events is another
    one already. Raises OSError and OpeningError, and can be run again.
    """
    return _Salvage(analysis, name, means).run()


class _Salvage:
    """One plan, its steps in order."""

    def __init__(self, analysis: Analysis, name: str, means: Means) -> None:
        self._analysis = analysis
        self._plan: Plan = analysis.plan
        self._relay = analysis.found.relay
        self._journal = analysis.found.journal
        self._name = name
        self._means = means
        self._quarantined: list[str] = []
        assert analysis.found.store is not None, "no plan is made without it"
        self._store: bytes = analysis.found.store

    def run(self) -> Done:
        plan = self._plan
        if plan.cut is not None and plan.cut.last >= ORDINAL_MAX:
            raise InvalidStateError("no ordinal is left behind what would be given up", StateDetail("exhausted"))
        rescued = self._prove_rescued_file()
        self._drop_idle()
        self._keep_copies()
        rescued_events = self._write_rescued(rescued)
        if plan.cut is not None:
            self._mark([plan.cut])
        self._write_base_state()
        written = self._write_parts()
        if plan.fresh:
            self._replace_active()
        # Later than active.log: while that is the old one, its first ordinal is told by the files before it.
        self._mark(plan.lost)
        self._remove()
        return Done(rescued_events, rescued if rescued_events else None, written, tuple(self._quarantined))

    def _prove_rescued_file(self) -> str:
        """Where rescued events go. An earlier salvage that was cut off may have written the same file."""
        path = self._means.rescued
        if path is None:
            cut = self._plan.cut or Span(0, 0)
            return f"{self._relay.path}/{QUARANTINE}/rescued-{cut.first:020}-{cut.last:020}.jsonl"
        if self._plan.rescued and holds_other(path, self._lines()):
            message = f"{path} is there already, with other content; name a file that is not"
            raise InvalidStateError(message, StateDetail("exists"))
        return path

    def _drop_idle(self) -> None:
        if self._relay.stat(IDLE) is not None:
            self._relay.unlink(IDLE)
            self._relay.sync()

    def _keep_copies(self) -> None:
        """Everything that will be removed or replaced, before anything is."""
        for name in self._plan.remove:
            self._quarantined.append(keep_file(self._relay, self._journal, name.text))
        if self._plan.fresh and not self._analysis.found.active.missing:
            self._quarantined.append(keep_file(self._relay, self._journal, ACTIVE))

    def _lines(self) -> Iterator[bytes]:
        for record in self._analysis.records(self._plan.rescued):
            yield _line(record, self._means.line_of)

    def _write_rescued(self, path: str) -> int:
        pieces = self._plan.rescued
        if not pieces:
            return 0
        if self._means.rescued is not None:
            write_file(path, self._lines())
        else:
            _write_to_quarantine(self._relay, path.rpartition("/")[2], self._lines())
        return sum(piece.span.last - piece.span.first + 1 for piece in pieces)

    def _write_base_state(self) -> None:
        """The state to go on from, where only the events that are given up told it.

        What of it is not known any more (retention, max_active) is as for a relay made without saying.
        """
        start, cut = self._analysis.start, self._plan.cut
        if start.is_snapshot:
            return
        for name in snapshot.GENERATIONS:
            if self._relay.stat(name) is not None:
                self._quarantined.append(set_aside(self._relay, self._relay, name))
        if cut is not None and cut.first == start.base.ordinal + 1:
            snapshot.write_new(self._relay, snapshot.encode_snapshot(self._name, start.state, start.base))
            snapshot.install(self._relay)

    def _write_parts(self) -> tuple[str, ...]:
        written: list[str] = []
        for part in self._plan.parts:
            first, last = part[0].span.first, part[-1].span.last
            segment = part[0].source.segment or self._means.new_id()
            write_sealed(self._journal, first, last, self._store, segment, self._chunks(part))
            written.append(SegmentName(SegmentKind.SEALED, first, last).text)
        return tuple(written)

    def _chunks(self, pieces: Sequence[Piece]) -> Iterator[bytes]:
        held = bytearray()
        for record in self._analysis.records(pieces):
            held += RECORD_HEADER.pack(len(record.body), record.ordinal, record.digest)
            held += record.body
            if len(held) >= _CHUNK_BYTES:
                yield bytes(held)
                held.clear()
        yield bytes(held)

    def _mark(self, spans: Sequence[Span]) -> None:
        for span in spans:
            name = SegmentName(SegmentKind.LOST, span.first, span.last).text
            with contextlib.suppress(FileExistsError):
                self._journal.open(name, "create").close()
        self._journal.sync()

    def _replace_active(self) -> None:
        """The step behind which what is given up is given up."""
        segment = self._means.new_id()
        cut = self._plan.cut
        if cut is None:
            make_active(self._journal, self._store, segment).close()
            return
        file = prepare_active(self._journal, self._store, segment)
        with contextlib.closing(file):
            bodies = [self._lost_event(cut), *self._interruptions()]
            records, _ = encode_records(cut.last + 1, bodies)
            header = encode_group_header(segment, SEGMENT_HEADER_BYTES, cut.last + 1, len(bodies), (records,))
            file.write((header, records), SEGMENT_HEADER_BYTES)
            file.sync()
            end = file.size()
        install_active(self._journal)
        with contextlib.suppress(OSError), contextlib.closing(open_or_make(self._relay, WATERMARK)) as watermark:
            watermark.write((encode_watermark(Watermark(segment, end)),), 0)

    def _lost_event(self, cut: Span) -> bytes:
        data = RelayLost(first=cut.first, last=cut.last, reason=self._reason())
        return own_body(self._means.now_ms, data)

    def _interruptions(self) -> list[bytes]:
        """What became of the commands that had not ended at the end of the prefix is not known."""
        return [
            own_body(self._means.now_ms, CommandInterrupted(entry.type, "lost"), command_id)
            for command_id, entry in self._analysis.state_before_cut().lane.all_live()
        ]

    def _reason(self) -> Literal["damaged", "missing"]:
        """In a word, for whoever reads the event."""
        files = (*self._analysis.contents, self._analysis.active.contents)
        return "damaged" if any(one.damages for one in files) else "missing"

    def _remove(self) -> None:
        """What has been copied, and whose records stand elsewhere or are given up."""
        replaced = {
            SegmentName(SegmentKind.SEALED, part[0].span.first, part[-1].span.last) for part in self._plan.parts
        }
        for name in self._plan.remove:
            if name not in replaced:
                self._journal.unlink(name.text)
        self._journal.sync()
        marks = set(self._plan.unmark)
        if self._plan.cut is not None:
            marks.add(SegmentName(SegmentKind.LOST, *self._plan.cut))
        for name in sorted(marks):
            self._journal.unlink(name.text)
        self._journal.sync()


def _line(record: Record, line_of: LineOf) -> bytes:
    """One event as it was, or its bytes where its body is no event's."""
    try:
        return line_of(record.cursor, decode_body(record.body)) + b"\n"
    except msgspec.DecodeError:
        raw = {"ordinal": record.ordinal, "digest": record.digest.hex(), "body": bytes(record.body)}
        return msgspec.json.encode(raw) + b"\n"


def _write_to_quarantine(relay: Directory, name: str, lines: Iterator[bytes]) -> None:
    """Into the relay's own quarantine/; lines that an earlier salvage wrote before it was cut off are the same ones."""
    with contextlib.closing(open_quarantine(relay)) as quarantine:
        with contextlib.suppress(FileNotFoundError):
            quarantine.unlink(name + NEW)
        with contextlib.closing(quarantine.open(name + NEW, "create")) as file:
            at, held = 0, bytearray()
            for line in lines:
                held += line
                if len(held) >= _CHUNK_BYTES:
                    file.write((held,), at)
                    at, held = at + len(held), bytearray()
            if held:
                file.write((held,), at)
            file.sync()
        quarantine.replace(name + NEW, name)
        quarantine.sync()
