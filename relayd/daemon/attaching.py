"""Readers: pages now, or later when there is something to read (docs/reference/protocol.md, "Pages", "Waiting").

A page from memory is answered at once; one from files is read in a thread. A reader that waits is an entry in a table
and a deadline, and holds nothing but its cursor.
"""

from collections.abc import Callable
from dataclasses import dataclass

import trio

from relayd.daemon.deadlines import Deadline
from relayd.daemon.environment import Environment
from relayd.daemon.looking_up import REPLANS_MAX
from relayd.daemon.memory import RelayMemory
from relayd.daemon.reply import Reply
from relayd.journal.catalogue import View
from relayd.journal.pages import Replan
from relayd.protocol.cursor import Cursor, Found, Gap, History, Live, Refused, Replay, Span, plan_resume
from relayd.protocol.errors import RelaydError, StorageFailedError
from relayd.protocol.event import RECORD_HEADER, record_offsets
from relayd.protocol.messages import Attach, ConsumerPosition, LostSpan, Page, RelayStatus
from relayd.relay.refusals import gap_error, refused_error


@dataclass(eq=False)
class Reading:
    """One `attach` on its way; `found` is the digest at its cursor, once it is known.

    With `status`, the page ends where that was taken; `again` takes it anew for one that has waited. `postponed`: there
    is something for it to read, but its connection does not take what it is owed.
    """

    request: Attach
    reply: Reply
    cursor: Cursor
    deadline_at: float
    status: RelayStatus | None = None
    again: "Callable[[Reading], None] | None" = None
    found: bytes | None = None
    lost: Span | None = None
    deadline: Deadline | None = None
    postponed: bool = False


@dataclass
class _Described:
    records: bytes
    count: int
    last: Cursor


class Attaching:
    """Serves the readers of one relay. `nursery` is the host's: what reads files ends with it."""

    def __init__(self, memory: RelayMemory, environment: Environment, nursery: trio.Nursery) -> None:
        self._memory = memory
        self._environment = environment
        self._nursery = nursery
        self._waiting: dict[Reading, None] = {}
        self._described = _Described(b"", 0, memory.synced)
        self._ended: RelaydError | None = None
        self.from_files = 0

    @property
    def readers(self) -> int:
        """How many readers wait or are being served from files."""
        return len(self._waiting) + self.from_files

    def attach(self, request: Attach, reply: Reply) -> None:
        """Answers `request`, now or when there is something to answer. Raises RelaydError to refuse it."""
        self._serve(self.begin(request, reply))

    def begin(self, request: Attach, reply: Reply) -> Reading:
        """A reading at the position that `request` stands for now."""
        deadline_at = trio.current_time() + request.wait_ms / 1000
        return Reading(request, reply, self._position(request), deadline_at)

    def attach_with_status(self, reading: Reading, status: RelayStatus) -> None:
        """Answers a reading up to the frontier of `status`, which is durable. Raises RelaydError to refuse it."""
        reading.status = status
        if reading.reply.over or self._ended is not None or not reading.reply.connection.congested:
            self._serve(reading)
            return
        reading.reply.wait(lambda: self._no_longer_waits(reading))
        self._waiting[reading] = None
        self._resume_or_postpone(reading)

    def _history(self, reading: Reading) -> History:
        """What this reader may see: up to its status, where it asked for one and nothing was collected beyond it."""
        history = self._memory.history
        status = reading.status
        if status is not None and status.latest.ordinal >= history.evicted.ordinal:
            return History(history.evicted, status.latest)
        return history

    def advance(self) -> None:
        """More is durable: whoever waits for it is served."""
        if not self._waiting:
            return
        synced = self._memory.synced.ordinal
        for reading in list(self._waiting):
            if reading.cursor.ordinal < synced:
                self._resume_or_postpone(reading)

    def _resume_or_postpone(self, reading: Reading) -> None:
        """A page for a client that does not take what it is owed is not even made, until it does."""
        connection = reading.reply.connection
        if not connection.congested:
            self._no_longer_waits(reading)
            self._resume(reading)
        elif not reading.postponed:
            reading.postponed = True
            connection.when_taken(lambda: self._no_longer_postponed(reading))

    def _no_longer_postponed(self, reading: Reading) -> None:
        reading.postponed = False
        if reading in self._waiting:
            self._resume_or_postpone(reading)

    def end(self, error: RelaydError) -> None:
        """Nobody waits any longer, nor from now on."""
        self._ended = error
        for reading in list(self._waiting):
            self._no_longer_waits(reading)
            reading.reply.refuse(error)

    def _position(self, request: Attach) -> Cursor:
        match request.after:
            case Cursor():
                return request.after
            case ConsumerPosition(consumer):
                return self._memory.acknowledgements.cursor_of(consumer)
            case "earliest":
                return self._memory.base
            case _:
                return self._memory.synced

    def _serve(self, reading: Reading) -> None:
        """Answers from memory, waits, or goes to the files. Raises RelaydError to refuse."""
        if reading.reply.over:
            return
        if reading.request.after == "earliest":
            self._pass_over_gone(reading)
        memory, cursor, history = self._memory, reading.cursor, self._history(reading)
        if reading.found is None:
            reading.found = memory.digest_of(cursor.ordinal)
        decision = plan_resume(history, cursor, Found(reading.found))
        match decision:
            case Refused():
                raise refused_error(decision, cursor, history)
            case Gap():
                raise gap_error(decision, cursor)
            case Live():
                self._serve_live(reading, decision)
            case Replay():
                page = None
                if cursor.digest is None or reading.found is not None:
                    page = memory.tail.page(
                        cursor.ordinal,
                        history.latest.ordinal,
                        self._environment.page_budget.page_bytes(reading.request.max_bytes),
                    )
                if page is None:
                    self._start_files(reading)
                else:
                    self._answer(reading, page, verified=decision.verified)

    def _pass_over_gone(self, reading: Reading) -> None:
        """`earliest` is always served: from behind what is gone by now."""
        base = self._memory.base
        if base.ordinal > 0 and base.ordinal >= reading.cursor.ordinal:
            reading.cursor, reading.found, reading.lost = base, None, Span(1, base.ordinal)

    def _serve_live(self, reading: Reading, decision: Live) -> None:
        """Nothing to send: waits for more, where the reader said so."""
        left = reading.deadline_at - trio.current_time()
        if left <= 0 or reading.lost is not None:
            self._answer(reading, b"", verified=decision.verified)
            return
        if self._ended is not None:
            raise self._ended
        if reading.cursor.ordinal < self._memory.synced.ordinal:
            # More became durable while its status was taken.
            self._resume(reading)
            return
        reading.reply.wait(lambda: self._no_longer_waits(reading))
        reading.deadline = self._environment.deadlines.after(left, lambda: self._time_is_up(reading))
        self._waiting[reading] = None

    def _no_longer_waits(self, reading: Reading) -> None:
        self._waiting.pop(reading, None)
        if reading.deadline is not None:
            reading.deadline.cancel()
            reading.deadline = None

    def _time_is_up(self, reading: Reading) -> None:
        reading.deadline = None
        self._resume_or_postpone(reading)

    def _resume(self, reading: Reading) -> None:
        """Its wait is over: it is answered, or waits on where nothing came and time is left."""
        if reading.again is not None:
            reading.again(reading)
        else:
            self._answered(reading, self._serve)

    @staticmethod
    def _answered(reading: Reading, serve: Callable[[Reading], None]) -> None:
        """Serves a reading outside of its request's own dispatch: a refusal becomes its answer."""
        try:
            serve(reading)
        except RelaydError as error:
            reading.reply.refuse(error)

    def _answer(self, reading: Reading, records: bytes, *, verified: bool) -> None:
        described = self._describe(records)
        through = described.last if records else reading.cursor
        lost = None if reading.lost is None else LostSpan(*reading.lost)
        page = Page(
            reading.reply.id,
            records,
            described.count,
            through,
            self._history(reading).latest,
            verified,
            lost,
            reading.status,
        )
        reading.reply.answer(page)

    def _describe(self, records: bytes) -> _Described:
        """Count and last cursor of a page; readers side by side ask for the same one."""
        if self._described.records is not records:
            offsets = record_offsets(records)
            last = self._memory.synced
            if offsets:
                _, ordinal, digest = RECORD_HEADER.unpack_from(records, offsets[-1])
                last = Cursor(ordinal, digest)
            self._described = _Described(records, len(offsets), last)
        return self._described

    # From files

    def _start_files(self, reading: Reading) -> None:
        reading.reply.connection.reads += 1
        self.from_files += 1
        self._nursery.start_soon(self._serve_from_files, reading)

    async def _serve_from_files(self, reading: Reading) -> None:
        budget = self._environment.page_budget
        size = budget.page_bytes(reading.request.max_bytes)
        budget.begin(size)
        try:
            page = await self._read_files(reading, size)
            self._answered(reading, lambda reading: self._serve_read(reading, page))
        except RelaydError as error:
            reading.reply.refuse(error)
        except trio.Cancelled:
            # The host ends. Its failure was told to all who waited; this one reads again from the relay's next opening.
            reading.reply.refuse(StorageFailedError("the relay was closed while this page was read; ask again"))
            raise
        finally:
            budget.end(size)
            self.from_files -= 1
            reading.reply.connection.read_ended()
            self._environment.outbox.flush()

    async def _read_files(self, reading: Reading, max_bytes: int) -> bytes | Span:
        """The records behind the cursor, and `found`; planned again where files move on meanwhile."""
        memory, cursor = self._memory, reading.cursor
        missing: Replan | None = None
        for _ in range(REPLANS_MAX):
            view, through = memory.catalogue.view(), self._history(reading).latest.ordinal
            if cursor.ordinal < memory.base.ordinal:
                return b""
            if missing is not None and missing.segment is not None and missing.segment in view.settled:
                return missing.span
            try:
                return await self._environment.files.run(self._read_in_thread, reading, view, through, max_bytes)
            except Replan as replan:
                missing = replan
        raise StorageFailedError(f"the files of relay {memory.name} kept moving while a page was read; ask again")

    def _read_in_thread(self, reading: Reading, view: View, through: int, max_bytes: int) -> bytes | Span:
        cursor, reader = reading.cursor, self._memory.reader
        if cursor.digest is not None and reading.found is None and cursor.ordinal > 0:
            reading.found = reader.digest_at(view, cursor.ordinal)
        return reader.read(view, cursor.ordinal, through, max_bytes)

    def _serve_read(self, reading: Reading, page: bytes | Span) -> None:
        """Decides again, with what the files said. Raises RelaydError to refuse."""
        unreadable = page if isinstance(page, Span) else None
        history = self._history(reading)
        decision = plan_resume(history, reading.cursor, Found(reading.found, unreadable))
        match decision:
            case Refused():
                raise refused_error(decision, reading.cursor, history)
            case Gap() if decision.reason == "unreadable" and reading.request.after == "earliest":
                reading.lost = Span(1 if reading.lost else decision.lost.first, decision.lost.last)
                reading.cursor = decision.resume
                self._answer(reading, b"", verified=False)
            case Gap() if decision.reason == "evicted" and reading.request.after == "earliest":
                self._serve(reading)
            case Gap():
                raise gap_error(decision, reading.cursor)
            case Live() | Replay():
                assert isinstance(page, bytes), "what cannot be read is a gap"
                self._answer(reading, page, verified=decision.verified)
