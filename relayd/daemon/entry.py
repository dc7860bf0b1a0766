"""One relay by name: closed, opening, open or refused; requests reach it in the order they were sent.

One task runs it. What comes while it opens waits for it, and for no other. When its host fails it is opened again from
disk at once: there is one way to start (docs/internals/architecture.md, "The seven laws", 4).
"""

from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec
import trio
from structlog.typing import FilteringBoundLogger

from relayd.daemon.environment import Environment
from relayd.daemon.hands import Holders
from relayd.daemon.host import Ending, Host, HostRequest
from relayd.daemon.relay_files import RelayFiles
from relayd.daemon.reply import Reply
from relayd.journal.active import SyncedEnd
from relayd.journal.trouble import lacks_descriptors, storage_error
from relayd.protocol.errors import (
    AlreadyExistsError,
    BoundDetail,
    InternalError,
    NameDetail,
    NotFoundError,
    OverloadedError,
    RelaydError,
    RelayRemovedError,
    ShuttingDownError,
    UnavailableDetail,
    UnavailableError,
)
from relayd.protocol.kinds import Retention, RetentionBytes
from relayd.protocol.messages import DeleteRelay, Done, Open
from relayd.protocol.messages import Opened as OpenedResponse
from relayd.recovery.opening import Opened
from relayd.recovery.refusal import OpeningError
from relayd.relay.state import RelayState

EntryRequest = HostRequest | Open | DeleteRelay

PROBE_SECONDS_FIRST: Final = 1.0
PROBE_SECONDS_MAX: Final = 60.0
PROBE_BYTES_MIN: Final = 65_536
REST_SECONDS: Final = 5.0
"""After this long without use an open relay keeps none of its records in memory."""
REOPEN_SECONDS: Final = 1.0
"""A relay whose disk failed while it was opened is tried again when it is asked for, this often at most."""


class Entry:
    """Everything of one relay in the daemon. `gone` is called when nothing needs it any more."""

    def __init__(self, name: str, files: RelayFiles, environment: Environment, gone: Callable[["Entry"], None]) -> None:
        self.name = name
        self.host: Host | None = None
        self.refused: RelaydError | None = None
        self._files = files
        self._environment = environment
        self._gone = gone
        self._log: FilteringBoundLogger = environment.log.bind(relay=name)
        self._queue: deque[tuple[EntryRequest, Reply]] = deque()
        self._arrived = trio.Event()
        self._stopping: RelaydError | None = None
        self._open_anyway = False
        self._settled = trio.Event()
        self._refused_at = 0.0
        self._store: bytes | None = None
        self._synced: SyncedEnd | None = None
        self._full_bytes: int | None = None
        self._holders = Holders()

    def submit(self, request: EntryRequest, reply: Reply) -> None:
        """Decides a request, now or when the relay is open; those of one caller in the order of its calls."""
        host = self.host
        if host is not None and host.accepting and not self._queue and self._decide(host, request, reply):
            return
        self._queue.append((request, reply))
        self._arrived.set()

    def open_anyway(self) -> None:
        """Opens the relay though nobody asked for it."""
        if self.host is not None:
            return
        self._open_anyway = True
        self._settled = trio.Event()
        self._arrived.set()

    async def settled(self) -> None:
        """Waits until the opening that goes on has come to an end, whatever that is."""
        await self._settled.wait()

    def stop(self) -> None:
        """The daemon stops: the relay is closed, and `run` ends."""
        self._stopping = ShuttingDownError("relayd stops; what was answered is kept: connect again and send the rest")
        self._arrived.set()

    def _decide(self, host: Host, request: EntryRequest, reply: Reply) -> bool:
        """Hands a request to the open relay; False where it has to be closed for it first."""
        match request:
            case Open():
                self._answer_open(host, request, reply, created=False)
            case DeleteRelay():
                if request.store == host.memory.state.store:
                    return False
                host.memory.output.hold(host.memory.state.frontier.ordinal, reply, _other_store(self.name))
            case _:
                host.handle(request, reply)
        return True

    def _answer_open(self, host: Host, request: Open, reply: Reply, *, created: bool) -> None:
        host.last_used = trio.current_time()
        state = host.memory.state
        answer = _differing(self.name, state, request) or OpenedResponse(
            request.id, self.name, state.store, state.frontier, created
        )
        host.memory.output.hold(state.frontier.ordinal, reply, answer)

    # Its task

    async def run(self) -> None:
        """Opens, serves, and opens again, until nobody needs the relay or the daemon stops."""
        try:
            while self._stopping is None and (self._queue or self._open_anyway or self.refused is not None):
                await self._step()
                self._environment.outbox.flush()
        finally:
            error = self._stopping or InternalError(f"relay {self.name} met a bug of relayd; its log has the traceback")
            while self._queue:
                self._queue.popleft()[1].refuse(error)
            self._environment.outbox.flush()
            self._settled.set()
            self._gone(self)

    async def _step(self) -> None:
        """One opening with all that follows, one deletion, one refusal, or one wait."""
        if not self._queue and not self._open_anyway:
            self._arrived = trio.Event()
            await self._arrived.wait()
            return
        request, reply = self._queue[0] if self._queue else (None, None)
        if isinstance(request, DeleteRelay) and reply is not None and self._store is not None:
            self._queue.popleft()
            await self._delete(request, reply, self._store)
        elif self.refused is not None and not isinstance(request, Open) and not self._may_try_again():
            self._open_anyway = False
            self._settled.set()
            if reply is not None:
                self._queue.popleft()
                reply.refuse(self.refused)
        else:
            self._open_anyway = False
            await self._open_and_serve()

    def _may_try_again(self) -> bool:
        detail = self.refused.detail if self.refused is not None else None
        passing = isinstance(detail, UnavailableDetail) and detail.reason in ("storage_failed", "locked")
        return passing and trio.current_time() >= self._refused_at + REOPEN_SECONDS

    async def _open_and_serve(self) -> None:
        try:
            created = await self._make_if_asked()
        except OSError as error:
            self._settled.set()
            told = self._no_descriptor("made") if lacks_descriptors(error) else None
            self._queue.popleft()[1].refuse(told or storage_error(error, f"making relay {self.name}"))
            return
        try:
            opened = await self._files.open(self.name, self._synced)
        except (RelaydError, OSError) as error:
            self._did_not_open(error)
            return
        host: Host | None = None
        try:
            async with trio.open_nursery() as nursery:
                host = self._begin(opened, nursery, created)
                self._settled.set()
                nursery.start_soon(self._watch, host)
                if host.full_bytes is not None:
                    nursery.start_soon(self._probe, host, opened)
                ending = await host.run()
        finally:
            self.host = None
            if host is not None:
                # Where it ended by a bug, or the daemon is cut short, whoever waits is told here.
                host.end(Ending("failed", InternalError(f"relay {self.name} was cut short; ask again")))
                host.release()
            else:
                opened.close()
        self._after(ending)
        if ending.why == "removed":
            await self._files.check_state()

    async def _make_if_asked(self) -> bool:
        """Makes the relay where the first that waits wants it made and there is none."""
        request = self._queue[0][0] if self._queue else None
        if not isinstance(request, Open) or not request.create:
            return False
        return await self._files.make(self.name, request.retention, request.max_active)

    def _begin(self, opened: Opened, nursery: trio.Nursery, created: bool) -> Host:  # noqa: FBT001 - of one caller
        """The host of a relay that has opened; what waited for it is decided, in order."""
        self.refused = self._synced = None
        self._store = opened.store
        host = Host(opened, self._environment, nursery, self._log, self._holders)
        if self._full_bytes is not None:
            host.full_bytes = self._full_bytes
        self.host = host
        host.begin()
        while self._queue and host.accepting:
            request, reply = self._queue[0]
            if isinstance(request, Open):
                self._answer_open(host, request, reply, created=created)
                created = False
            elif not self._decide(host, request, reply):
                break
            self._queue.popleft()
        self._environment.outbox.flush()
        return host

    def _did_not_open(self, error: RelaydError | OSError) -> None:
        told: RelaydError
        if isinstance(error, OSError) and lacks_descriptors(error):
            told = self._no_descriptor("opened")
        else:
            told = error if isinstance(error, RelaydError) else storage_error(error, f"opening relay {self.name}")
        if isinstance(told, NotFoundError | OverloadedError):
            self.refused = None
        else:
            if not isinstance(told, UnavailableError):
                hint = "see to the disk, then open the relay again"
                told = OpeningError(str(told), UnavailableDetail(reason="storage_failed", hint=hint))
            if isinstance(told, OpeningError) and told.synced is not None:
                self._synced = told.synced
            self._log.error("relay_unavailable", error=str(told))
            self.refused, self._refused_at = told, trio.current_time()
        self._settled.set()
        if self._queue:
            self._queue.popleft()[1].refuse(told)

    def _no_descriptor(self, what: str) -> OverloadedError:
        message = f"relay {self.name} cannot be {what} as no descriptor is free; it is tried again when asked for"
        return OverloadedError(message, BoundDetail("descriptors"))

    def _after(self, ending: Ending) -> None:
        """What follows from the host's end."""
        if ending.why in ("failed", "full"):
            self._synced = ending.synced
            self._open_anyway = True
        if ending.why == "full":
            self._full_bytes = max(ending.failed_bytes, PROBE_BYTES_MIN)

    async def _watch(self, host: Host) -> None:
        """Closes the open relay when the daemon stops, when a deletion waits, or when nobody uses it."""
        while True:
            idle = self._environment.settings.idle_relay
            rest = min(REST_SECONDS, idle)
            with trio.move_on_after(rest):
                await self._next_arrival()
            if not host.busy and trio.current_time() >= host.last_used + rest:
                host.rest()
            if self._stopping is not None:
                why: RelaydError = self._stopping
            elif self._queue:
                why = RelayRemovedError(f"relay {self.name} is being deleted")
            elif not host.busy and trio.current_time() >= host.last_used + idle:
                why = ShuttingDownError(f"relay {self.name} was closed as nobody used it; ask again")
            else:
                continue
            await host.close(why)
            return

    async def _next_arrival(self) -> None:
        if not self._queue and self._stopping is None:
            self._arrived = trio.Event()
            await self._arrived.wait()

    async def _probe(self, host: Host, opened: Opened) -> None:
        """Tries whether there is room again; then recording resumes, by a new opening where this one was cut short."""
        seconds = PROBE_SECONDS_FIRST
        while True:
            await trio.sleep(seconds)
            seconds = min(2 * seconds, PROBE_SECONDS_MAX)
            size = max(host.full_bytes or 0, PROBE_BYTES_MIN)
            try:
                async with host.lane:
                    room = await self._files.has_room(opened.relay, size)
            except OSError as error:
                self._log.warning("probe_failed", error=str(error))
                continue
            if room:
                self._log.info("room_found", relay=self.name)
                self._full_bytes = host.full_bytes = None
                host.upkeep.look()
                if opened.writer is not None:
                    host.begin()
                if opened.writer is None:
                    again = ShuttingDownError(f"relay {self.name} opens again, now that there is room; ask again")
                    host.end(Ending("failed", again))
                return

    async def _delete(self, request: DeleteRelay, reply: Reply, store: bytes) -> None:
        """Removes the closed relay; answered when it is gone for good, its room is given back after that."""
        try:
            if request.store != store:
                raise _other_store(self.name)
            await self._files.remove(self.name, store)
        except RelaydError as error:
            reply.refuse(error)
            return
        except OSError as error:
            reply.refuse(storage_error(error, f"deleting relay {self.name}"))
            return
        self.refused = self._store = self._synced = self._full_bytes = None
        reply.answer(Done(request.id))
        self._environment.outbox.flush()
        self._log.info("relay_deleted", store=store.hex())
        try:
            await self._files.free(self.name, store)
        except OSError as error:
            self._log.warning("freeing_failed", error=str(error))


def _other_store(name: str) -> NotFoundError:
    text = f"relay {name} has another store id than the one given, so it is not the relay meant; nothing was deleted"
    return NotFoundError(text, NameDetail("relay", name))


def _differing(name: str, state: RelayState, request: Open) -> AlreadyExistsError | None:
    """Settings given that are not the relay's own."""
    asked = {"retention": request.retention, "max_active": request.max_active}
    own = {"retention": state.retention, "max_active": state.max_active}
    differs = {key: own[key] for key, value in asked.items() if value is not None and value != own[key]}
    if not differs:
        return None
    said = ", ".join(f"{key} {_in_words(value)}" for key, value in differs.items())
    message = f"relay {name} exists with other settings ({said}): open it without them, or choose another name"
    raw = {key: msgspec.Raw(msgspec.msgpack.encode(value)) for key, value in differs.items()}
    return AlreadyExistsError(message, NameDetail("relay", name, raw))


def _in_words(value: Retention | int) -> str:
    return f"{value.bytes} bytes" if isinstance(value, RetentionBytes) else str(value)
