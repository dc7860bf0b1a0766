"""One open relay: the only owner of its state (docs/internals/architecture.md, "The life of a recorded event").

Requests are decided as they come, folded at once, and gathered into groups that the writer syncs one after the other.
What they answer stays in the output commit until it is durable. A write or sync that fails ends the host: callers are
told, memory is dropped, and the relay opens again from disk.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Literal, NamedTuple

import trio
from structlog.typing import FilteringBoundLogger

from relayd.daemon.acknowledging import Acknowledging
from relayd.daemon.attaching import Attaching
from relayd.daemon.commanding import Commanding
from relayd.daemon.environment import Environment
from relayd.daemon.exporting import Exporting
from relayd.daemon.hands import Holders
from relayd.daemon.holding import Holding
from relayd.daemon.looking_up import find_digest
from relayd.daemon.memory import Durable, RelayMemory
from relayd.daemon.outcomes import Outcomes
from relayd.daemon.output_commit import OutputCommit
from relayd.daemon.reply import Reply
from relayd.daemon.status import StatusReporter
from relayd.daemon.upkeep import Upkeep
from relayd.journal.active import SyncedEnd
from relayd.journal.pages import PageReader
from relayd.journal.segment import GROUP_BYTES_MAX
from relayd.journal.trouble import lacks_room, storage_error, storage_failed_error
from relayd.journal.writer import Batch, Rotated, WriteFailedError, Writer, WriterError, Written
from relayd.protocol.cursor import Cursor
from relayd.protocol.errors import (
    BoundDetail,
    InternalError,
    OverloadedError,
    RelaydError,
    RelayRemovedError,
    StorageFailedError,
    StorageFullError,
)
from relayd.protocol.event import decode_body, encode_records
from relayd.protocol.kinds import RelayEvicted
from relayd.protocol.messages import (
    Acknowledge,
    Attach,
    AwaitAcknowledged,
    Claim,
    CommandQuery,
    ConsumerPosition,
    Export,
    Finish,
    ForgetConsumer,
    Record,
    Status,
    Submit,
)
from relayd.recovery.checked_map import CheckedMapError
from relayd.recovery.idle import mark_idle
from relayd.recovery.opening import Opened
from relayd.relay.decide import decide
from relayd.relay.fold import Run, fold, fold_run
from relayd.relay.own import check_size, own_body
from relayd.relay.starting import next_body

HostRequest = (
    Record
    | Attach
    | Status
    | Export
    | Acknowledge
    | AwaitAcknowledged
    | ForgetConsumer
    | Submit
    | CommandQuery
    | Claim
    | Finish
)


class Chunk(NamedTuple):
    """The records of one request, whole: `last` is the last one's cursor."""

    first: int
    last: Cursor
    payload: bytes


class Ending(NamedTuple):
    """Why a host ended. `synced` and `failed_bytes` go into the next opening where it is to be opened again."""

    why: Literal["closed", "failed", "full", "removed"]
    error: RelaydError | None = None
    synced: SyncedEnd | None = None
    failed_bytes: int = 0


NO_ROOM: Final = (
    "the disk has no room: reads go on, and recording resumes by itself once there is room. Nothing was recorded"
)


class Host:
    """Serves one relay from its opening to its end."""

    def __init__(
        self,
        opened: Opened,
        environment: Environment,
        nursery: trio.Nursery,
        log: FilteringBoundLogger,
        holders: Holders,
    ) -> None:
        state = opened.state
        self.name = opened.name
        self.lane = trio.Lock()
        self._opened = opened
        self._writer: Writer | None = opened.writer
        self._environment = environment
        self._nursery = nursery
        self._log = log
        reader = PageReader(opened.journal, environment.pages, state.store)
        self.memory = RelayMemory(
            name=opened.name,
            state=state,
            synced=state.frontier,
            base=opened.base,
            acknowledgements=opened.acknowledgements,
            output=OutputCommit(state.frontier.ordinal),
            tail=opened.tail,
            catalogue=opened.catalogue,
            reader=reader,
            durable=Durable.of(state),
        )
        environment.tails.take_on(opened.tail)
        self.upkeep = Upkeep(self, self.memory, environment, opened, log)
        self.attaching = Attaching(self.memory, environment, nursery)
        self._acknowledging = Acknowledging(self, self.memory, environment, opened.relay, nursery)
        self._holding = Holding(self.memory, environment.settings.pending_bytes, self._handle)
        self._commanding = Commanding(self, self.memory, environment, holders, self._holding)
        self._outcomes = Outcomes(self.memory, environment, nursery)
        self._exporting = Exporting(self.memory, environment, nursery)
        self._to_be_durable: deque[tuple[int, Durable]] = deque()
        self._looking_up = False
        self._behind: deque[tuple[HostRequest, Reply]] = deque()
        self._reporter = StatusReporter(self, environment, opened.relay, nursery)
        self._pending: deque[Chunk] = deque()
        self._pending_bytes = 0
        self._wake = trio.Event()
        self._synced_more = trio.Event()
        self._committing = False
        self._ended = trio.Event()
        self._ending: Ending | None = None
        self.full_bytes: int | None = None if opened.writer is not None else 0
        self.last_used = trio.current_time()
        self.accepting = True

    # Its life

    async def run(self) -> Ending:
        """Serves until it fails, or is asked to end; then everything it holds has been given back."""
        try:
            nursery = self._nursery
            nursery.start_soon(self._commit_groups)
            nursery.start_soon(self._acknowledging.run)
            if self._writer is not None:
                nursery.start_soon(self.upkeep.run)
            await self._ended.wait()
            nursery.cancel_scope.cancel()
        finally:
            self.accepting = False
        assert self._ending is not None, "it ended for a reason"
        return self._ending

    def begin(self) -> None:
        """Ends what a crash left open, and goes on with the commands that stand; without room, that waits."""
        if self.full_bytes is None:
            self._commanding.begin()

    def rest(self) -> None:
        """Nobody has used it for a while: it keeps no more in memory than it needs."""
        self._environment.tails.let_go(self.memory.tail)

    def release(self) -> None:
        """Gives descriptors and the relay's lock back; every job of it has ended."""
        self.rest()
        if self._writer is not None:
            self._writer.close()
        self._opened.journal.close()
        self._opened.relay.close()

    @property
    def busy(self) -> bool:
        """Whether somebody waits for something of it, or it has work of its own."""
        return bool(
            len(self.memory.output)
            or self._pending
            or self._committing
            or self.attaching.readers
            or self._acknowledging.busy
            or self._commanding.busy
            or self._outcomes.busy
            or self._looking_up
            or self.upkeep.busy
            or self.lane.locked()
        )

    def end(self, ending: Ending) -> None:
        """Ends it now: whoever still waits for it is told `ending.error`."""
        if self._ending is not None:
            return
        self._ending = ending
        self.accepting = False
        error = ending.error or InternalError(f"relay {self.name} was closed; ask again")
        self.memory.output.fail(error)
        self.attaching.end(error)
        self._acknowledging.end(error)
        self._commanding.stop(error)
        self._outcomes.end_waiting(error)
        self._exporting.end()
        while self._behind:
            self._behind.popleft()[1].refuse(error)
        self._ended.set()
        self._environment.outbox.flush()

    async def close(self, why: RelaydError, *, snapshot: bool = True) -> None:
        """Ends it cleanly: nothing more is accepted, what waits ends with `why`, what was accepted is synced."""
        self.accepting = False
        self.attaching.end(why)
        self._acknowledging.end_waiting(why)
        self._commanding.stop(why)
        self._outcomes.end_waiting(why)
        self._environment.outbox.flush()
        await self.durable(self.memory.state.frontier.ordinal)
        await self._acknowledging.drained()
        if snapshot and self._ending is None and self._writer is not None:
            await self._leave_quiet()
        self.end(Ending("closed", why))

    async def _leave_quiet(self) -> None:
        """A last snapshot, and the hint that nothing is pending; without them the next opening does more, no worse."""
        try:
            if self.upkeep.lag:
                await self.upkeep.snapshot()
            if not self._commanding.unsettled:
                async with self.lane:
                    await self._environment.files.run(mark_idle, self._opened.relay)
        except (OSError, CheckedMapError) as error:
            self._log.warning("closing_snapshot_failed", error=str(error))

    # Requests

    def handle(self, request: HostRequest, reply: Reply) -> None:
        """Answers a request through `reply`, now or when what it depends on is durable."""
        self.last_used = trio.current_time()
        if self._looking_up:
            self._behind.append((request, reply))
        else:
            self._handle(request, reply)

    def _handle(self, request: HostRequest, reply: Reply) -> None:
        try:
            match request:
                case Record():
                    self._record(request, reply)
                case Submit() | CommandQuery() | Claim() | Finish():
                    self._handle_command(request, reply)
                case Attach(after=ConsumerPosition()):
                    self._acknowledging.after(reply, lambda: self._attach(request, reply))
                case Attach():
                    self._attach(request, reply)
                case Status():
                    self._acknowledging.after(reply, lambda: self._reporter.status(request, reply))
                case Export():
                    self._exporting.export(request, reply)
                case Acknowledge() | AwaitAcknowledged() | ForgetConsumer():
                    self._handle_consumer(request, reply)
        except RelaydError as error:
            self.memory.output.hold(self.memory.state.frontier.ordinal, reply, error)

    def _handle_consumer(self, request: Acknowledge | AwaitAcknowledged | ForgetConsumer, reply: Reply) -> None:
        if isinstance(request, AwaitAcknowledged):
            self._acknowledging.wait_for(request, reply)
            return
        self._refuse_when_full()
        if isinstance(request, Acknowledge):
            self._acknowledging.acknowledge(request, reply)
        else:
            self._acknowledging.forget(request, reply)

    def _handle_command(self, request: Submit | CommandQuery | Claim | Finish, reply: Reply) -> None:
        if reply.over and isinstance(request, Claim | CommandQuery):
            # Its connection ended before it was decided: nobody is there to be handed or told anything.
            return
        if isinstance(request, CommandQuery):
            if self._holding.holds(request):
                self._holding.hold(request, reply)
            else:
                self._outcomes.ask(request, reply)
            return
        self._refuse_when_full()
        match request:
            case Submit():
                self._commanding.submit(request, reply)
            case Claim():
                self._commanding.claim(request, reply)
            case Finish():
                self._commanding.finish(request, reply)

    def _attach(self, request: Attach, reply: Reply) -> None:
        if request.status:
            self._reporter.attach(request, reply)
        else:
            self.attaching.attach(request, reply)

    def _refuse_when_full(self) -> None:
        if self.full_bytes is not None:
            raise StorageFullError(f"relay {self.name}: {NO_ROOM}")

    def _record(self, request: Record, reply: Reply) -> None:
        self._refuse_when_full()
        if self._holding.holds(request):
            self._holding.hold(request, reply)
            return
        bound = self._environment.settings.pending_bytes
        if self._pending_bytes + reply.size > bound:
            message = f"{self._pending_bytes} bytes of events wait for the disk, and {bound} may: send it again later"
            raise OverloadedError(message, BoundDetail("pending_bytes"))
        decision = decide(self.memory.state, request, self._environment.now_ms())
        first, last = self._accept(decision.bodies, decision.run)
        self.memory.output.hold(last.ordinal, reply, decision.respond(first, last))

    def record_eviction(self, through: Cursor) -> None:
        """Records that bounded retention drops everything up to `through`, which happens once that is durable."""
        self._holding.release()
        self.record_own([own_body(self._environment.now_ms(), RelayEvicted(through))])

    def _accept(self, bodies: list[bytes], run: Run | None) -> tuple[int, Cursor]:
        """Gives an application's events their ordinals, folds them, and hands them to the writer's next group.

        The first ordinal and the last cursor; without events, the frontier they were decided at. `run`: their fold.
        """
        state = self.memory.state
        first = state.frontier.ordinal + 1
        if not bodies:
            return first, state.frontier
        payload, digest = encode_records(first, bodies)
        last = Cursor(first + len(bodies) - 1, digest)
        if run is not None:
            fold_run(state, last, run)
        else:
            assert len(bodies) == 1, "without a run, an event is folded at its own cursor"
            fold(state, last, decode_body(bodies[0]))
        self._gather(Chunk(first, last, payload))
        return first, last

    def record_own(self, bodies: Sequence[bytes]) -> tuple[int, Cursor]:
        """Records events of relayd's own and what follows from them by itself, all in one group.

        The first ordinal and the last cursor; the frontier where there is nothing to record.
        """
        state, now_ms = self.memory.state, self._environment.now_ms()
        before = Durable.of(state)
        for body in bodies:
            check_size(body)
        first = state.frontier.ordinal + 1
        payloads = [self._fold_own(body) for body in bodies]
        while (body := next_body(state, now_ms)) is not None:
            payloads.append(self._fold_own(body))
        last = state.frontier
        if payloads:
            self._gather(Chunk(first, last, b"".join(payloads)))
            if Durable.of(state) != before:
                self._to_be_durable.append((last.ordinal, Durable.of(state)))
            self._commanding.recorded()
            self._outcomes.recorded()
        return first, last

    def _fold_own(self, body: bytes) -> bytes:
        """Folds one event behind the frontier; gives its record."""
        state = self.memory.state
        ordinal = state.frontier.ordinal + 1
        record, digest = encode_records(ordinal, [body])
        fold(state, Cursor(ordinal, digest), decode_body(body))
        return record

    def _gather(self, chunk: Chunk) -> None:
        """Into the writer's next group."""
        self._pending.append(chunk)
        self._pending_bytes += len(chunk.payload)
        self._environment.tails.append(
            self.memory.tail, chunk.first, chunk.last.ordinal - chunk.first + 1, chunk.payload
        )
        self._wake.set()

    def look_up(self, ordinal: int, reply: Reply, then: Callable[[bytes | None], None]) -> None:
        """Calls `then` with the digest at `ordinal` as the files have it; what comes later is decided later."""
        self._looking_up = True
        self._nursery.start_soon(self._look_up, ordinal, reply, then)

    async def _look_up(self, ordinal: int, reply: Reply, then: Callable[[bytes | None], None]) -> None:
        memory, refusal, found = self.memory, None, None
        try:
            found = await find_digest(memory, self._environment, ordinal)
        except RelaydError as error:
            refusal = error
        except trio.Cancelled:
            reply.refuse(StorageFailedError("the relay was closed while the cursor was looked up; send it again"))
            raise
        self._looking_up = False
        try:
            if refusal is not None:
                raise refusal
            then(found)
        except RelaydError as error:
            memory.output.hold(memory.state.frontier.ordinal, reply, error)
        while self._behind and not self._looking_up:
            self._handle(*self._behind.popleft())
        self._environment.outbox.flush()

    # The writer

    async def durable(self, ordinal: int) -> None:
        """Waits until `ordinal` is synced, or the host has ended."""
        while self.memory.synced.ordinal < ordinal and self._ending is None:
            await self._synced_more.wait()

    async def _commit_groups(self) -> None:
        """Writes what was accepted, a group at a time, each synced before the next begins."""
        while True:
            while not self._pending:
                self._wake = trio.Event()
                await self._wake.wait()
            group = self._take_group()
            self._committing = True
            try:
                async with self.lane:
                    written, rotated = await self._environment.files.run(self._commit, group)
            except (WriterError, RelayRemovedError) as error:
                self._writing_failed(error, sum(len(chunk.payload) for chunk in group))
                return
            finally:
                self._committing = False
            self._advance(group, written, rotated)

    def _take_group(self) -> list[Chunk]:
        """What waits, up to a group's bound; a single request always fits."""
        group = [self._pending.popleft()]
        size = len(group[0].payload)
        while self._pending and size + len(self._pending[0].payload) <= GROUP_BYTES_MAX:
            chunk = self._pending.popleft()
            size += len(chunk.payload)
            group.append(chunk)
        self._pending_bytes -= size
        return group

    def _commit(self, group: list[Chunk]) -> tuple[Written, Rotated | None]:
        """In a thread: rotates where that is due, then writes and syncs the group."""
        writer = self._writer
        assert writer is not None, "a relay without room accepts nothing"
        rotated = writer.rotate() if writer.needs_rotation else None
        count = group[-1].last.ordinal - group[0].first + 1
        return writer.commit(Batch(group[0].first, count, [chunk.payload for chunk in group])), rotated

    def _advance(self, group: list[Chunk], written: Written, rotated: Rotated | None) -> None:
        """The group is durable: what waited for it leaves, and readers see it."""
        if self._ending is not None:
            return
        memory, last = self.memory, group[-1].last
        if rotated is not None:
            assert self._writer is not None, "only a writer rotates"
            memory.catalogue.rotated(rotated.name, self._writer.synced_end.segment)
            self.upkeep.look()
        memory.catalogue.append_group(written, group[0].first, last.ordinal)
        memory.synced = last
        durable = memory.durable
        while self._to_be_durable and self._to_be_durable[0][0] <= last.ordinal:
            memory.durable = self._to_be_durable.popleft()[1]
        memory.output.advance(last.ordinal)
        self.attaching.advance()
        if memory.durable is not durable:
            memory.raise_base()
            if memory.durable.floor != durable.floor:
                self.upkeep.want_snapshot()
            self.upkeep.look()
        self.upkeep.recorded(last.ordinal - group[0].first + 1, written.end - written.offset)
        self._synced_more.set()
        self._synced_more = trio.Event()
        self._environment.outbox.flush()

    def _writing_failed(self, error: WriterError | RelayRemovedError, size: int) -> None:
        if isinstance(error, RelayRemovedError):
            self.removed(error)
            return
        # A failed sync has lost bytes, whatever its errno: it is no full disk that would only have to be waited for.
        full = isinstance(error, WriteFailedError) and lacks_room(error.error)
        doing = f"appending to relay {self.name}"
        told = storage_error(error.error, doing) if full else storage_failed_error(error.error, doing)
        self._log.error("append_failed", error=str(error.error), kind=type(error).__name__)
        self.end(Ending("full" if full else "failed", told, error.synced, size if full else 0))

    def removed(self, error: RelayRemovedError) -> None:
        """The relay's directory is no longer at its place."""
        self._log.error("relay_removed_while_open", error=str(error))
        self.end(Ending("removed", error))

    def storage_failed(self, error: OSError, doing: str) -> None:
        """Another write that takes part in an answer failed: the relay opens again from disk."""
        told = storage_error(error, f"{doing} of relay {self.name}")
        self._log.error("write_failed", doing=doing, error=str(error))
        self.end(Ending("full" if lacks_room(error) else "failed", told))
