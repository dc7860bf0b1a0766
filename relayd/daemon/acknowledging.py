"""Acknowledgements of one relay: checked, gathered, written, and only then answered.

Many acknowledgements go into one write of the file. A write that fails ends the host as a failed append does: memory
is dropped, and what is on disk counts.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import trio

from relayd.daemon.deadlines import Deadline
from relayd.daemon.environment import Environment
from relayd.daemon.looking_up import find_digest
from relayd.daemon.memory import RelayMemory
from relayd.daemon.reply import Reply
from relayd.daemon.upkeep import Upkeep
from relayd.journal.place import prove_place
from relayd.journal.storage import Directory
from relayd.protocol.errors import RelaydError, RelayRemovedError, WaitTimeoutError
from relayd.protocol.messages import Acknowledge, Acknowledged, AwaitAcknowledged, Done, ForgetConsumer
from relayd.recovery.acknowledged import replace_acknowledged
from relayd.relay.acknowledged import Acknowledgements
from relayd.relay.acknowledging import check_acknowledgement, needs_check


class Owner(Protocol):
    """The host whose consumers these are."""

    lane: trio.Lock
    upkeep: Upkeep

    def storage_failed(self, error: OSError, doing: str) -> None:
        """A write that takes part in an answer failed."""
        ...

    def removed(self, error: RelayRemovedError) -> None:
        """The relay's directory is no longer at its place."""
        ...


@dataclass(eq=False)
class _Waiter:
    request: AwaitAcknowledged
    reply: Reply
    deadline: Deadline | None = None
    in_turn: bool = False
    """What was said before it has been decided."""


class Acknowledging:
    """Takes acknowledgements; `memory.acknowledgements` follows when they are on disk."""

    def __init__(
        self, owner: Owner, memory: RelayMemory, environment: Environment, relay: Directory, nursery: trio.Nursery
    ) -> None:
        self._owner = owner
        self._memory = memory
        self._environment = environment
        self._relay = relay
        self._taken = memory.acknowledgements
        self._to_answer: list[tuple[Reply, Callable[[], None], Acknowledgements]] = []
        self._being_checked: dict[Reply, None] = {}
        self._behind: deque[tuple[Reply, Callable[[], None]]] = deque()
        self._waiting: dict[_Waiter, None] = {}
        self._nursery = nursery
        self._wake = trio.Event()
        self._settled = trio.Event()
        self._writing = False

    @property
    def busy(self) -> bool:
        """Whether anything is to be written or answered."""
        return bool(self._to_answer or self._being_checked or self._waiting or self._writing)

    # Requests, in the order they came

    def acknowledge(self, request: Acknowledge, reply: Reply) -> None:
        """Takes an acknowledgement and answers it once it is on disk. Raises RelaydError to refuse it."""
        self._in_turn(reply, lambda: self._take_up(request, reply))

    def forget(self, request: ForgetConsumer, reply: Reply) -> None:
        """Forgets a consumer, and answers once that is on disk."""
        self._in_turn(reply, lambda: self._forget(request, reply))

    def after(self, reply: Reply, act: Callable[[], None]) -> None:
        """Does what asks where consumers stand, once all that was said before it is on disk. Raises what `act` does."""
        if self._to_answer or self._being_checked:
            self._in_turn(reply, lambda: self._enqueue(reply, act))
        else:
            act()

    def _in_turn(self, reply: Reply, act: Callable[[], None]) -> None:
        """What came later is decided later, though an earlier acknowledgement has to ask the files."""
        if self._being_checked:
            self._behind.append((reply, act))
        else:
            act()

    def _go_on(self) -> None:
        while self._behind and not self._being_checked:
            _do(*self._behind.popleft())

    def _take_up(self, request: Acknowledge, reply: Reply) -> None:
        if not needs_check(request, self._taken):
            self._take(self._taken, reply, request.consumer)
            return
        found = self._memory.digest_of(request.through.ordinal)
        if found is None and self._memory.base.ordinal < request.through.ordinal < self._memory.synced.ordinal:
            self._being_checked[reply] = None
            self._nursery.start_soon(self._check, request, reply)
            return
        self._accept(request, reply, found)

    def _forget(self, request: ForgetConsumer, reply: Reply) -> None:
        self._taken = self._taken.forget(request.consumer)
        self._enqueue(reply, lambda: reply.answer(Done(request.id)))

    def wait_for(self, request: AwaitAcknowledged, reply: Reply) -> None:
        """Answers once the consumer has acknowledged that far, or time is up; what was said before it counts."""
        if request.wait_ms == 0 or (self._reached(request) and not (self._to_answer or self._being_checked)):
            self.after(reply, lambda: self._answer_now(request, reply))
            return
        waiter = _Waiter(request, reply)
        reply.wait(lambda: self._no_longer_waits(waiter))
        waiter.deadline = self._environment.deadlines.after(request.wait_ms / 1000, lambda: self._time_is_up(waiter))
        self._waiting[waiter] = None
        self._in_turn(reply, lambda: self._look_for(waiter))

    def _look_for(self, waiter: _Waiter) -> None:
        """From its turn on: it is answered once what has been taken, and is as far as it asked for, is on disk."""
        waiter.in_turn = True
        request, reply = waiter.request, waiter.reply
        through = self._taken.cursor_of(request.consumer)
        if waiter in self._waiting and through.ordinal >= request.through.ordinal:
            self._no_longer_waits(waiter)
            self._enqueue(reply, lambda: reply.answer(Acknowledged(reply.id, through, self._memory.retained)))

    def _answer_now(self, request: AwaitAcknowledged, reply: Reply) -> None:
        if not self._reached(request):
            raise self._timeout(request)
        self._answer(reply, request.consumer)

    def _reached(self, request: AwaitAcknowledged) -> bool:
        return self._memory.acknowledgements.cursor_of(request.consumer).ordinal >= request.through.ordinal

    def _timeout(self, request: AwaitAcknowledged) -> WaitTimeoutError:
        stands = self._memory.acknowledgements.cursor_of(request.consumer).ordinal
        return WaitTimeoutError(
            f"consumer `{request.consumer}` stands at {stands} and has not acknowledged"
            f" {request.through.ordinal} within {request.wait_ms} ms; ask again to wait longer"
        )

    def _time_is_up(self, waiter: _Waiter) -> None:
        self._no_longer_waits(waiter)
        waiter.reply.refuse(self._timeout(waiter.request))

    def _no_longer_waits(self, waiter: _Waiter) -> None:
        self._waiting.pop(waiter, None)
        if not waiter.in_turn:
            self._behind = deque(later for later in self._behind if later[0] is not waiter.reply)
        if waiter.deadline is not None:
            waiter.deadline.cancel()

    # Taking

    def _accept(self, request: Acknowledge, reply: Reply, found: bytes | None) -> None:
        consumers_max = self._environment.settings.consumers
        check_acknowledgement(request, self._memory.history, found, self._taken, consumers_max)
        self._take(self._taken.acknowledge(request.consumer, request.through), reply, request.consumer)

    def _take(self, acknowledgements: Acknowledgements, reply: Reply, consumer: str) -> None:
        self._taken = acknowledgements
        through = acknowledgements.cursor_of(consumer)
        self._enqueue(reply, lambda: reply.answer(Acknowledged(reply.id, through, self._memory.retained)))
        for waiter in [waiter for waiter in self._waiting if waiter.in_turn and waiter.request.consumer == consumer]:
            self._look_for(waiter)

    def _enqueue(self, reply: Reply, answer: Callable[[], None]) -> None:
        self._to_answer.append((reply, answer, self._taken))
        self._wake.set()

    def _answer(self, reply: Reply, consumer: str) -> None:
        memory = self._memory
        reply.answer(Acknowledged(reply.id, memory.acknowledgements.cursor_of(consumer), memory.retained))

    async def _check(self, request: Acknowledge, reply: Reply) -> None:
        """Looks the digest up in the files, then takes the acknowledgement."""
        refusal: RelaydError | None = None
        found: bytes | None = None
        try:
            found = await find_digest(self._memory, self._environment, request.through.ordinal)
        except RelaydError as error:
            refusal = error
        if reply in self._being_checked:
            del self._being_checked[reply]
            _do(reply, lambda: self._checked(request, reply, found, refusal))
            self._go_on()
        self._settle()
        self._environment.outbox.flush()

    def _checked(self, request: Acknowledge, reply: Reply, found: bytes | None, refusal: RelaydError | None) -> None:
        if refusal is not None:
            raise refusal
        self._accept(request, reply, found)

    def _settle(self) -> None:
        self._settled.set()
        self._settled = trio.Event()

    # Writing

    async def run(self) -> None:
        """Writes what was taken, and answers it, for ever."""
        while True:
            if not self._to_answer:
                self._wake = trio.Event()
                await self._wake.wait()
            if not await self._write():
                return

    async def _write(self) -> bool:
        count, taken = len(self._to_answer), self._taken
        if taken is not self._memory.acknowledgements:
            self._writing = True
            try:
                async with self._owner.lane:
                    await self._environment.files.run(self._replace, taken)
            except OSError as error:
                self._owner.storage_failed(error, "writing the acknowledgements")
                return False
            except RelayRemovedError as error:
                self._owner.removed(error)
                return False
            finally:
                self._writing = False
        # Where the relay ended meanwhile, whoever waited has been told.
        to_answer = self._to_answer[:count]
        del self._to_answer[:count]
        for reply, answer, as_decided in to_answer:
            # It sees what was said before it, and not what was said after it and went into the same write.
            self._memory.acknowledgements = as_decided
            _do(reply, answer)
        self._memory.acknowledgements = taken
        self._memory.raise_base()
        self._owner.upkeep.look()
        self._settle()
        self._environment.outbox.flush()
        return True

    def _replace(self, taken: Acknowledgements) -> None:
        """In a thread: writes the file, and proves that it went to where the relay is."""
        replace_acknowledged(self._relay, self._memory.state.store, taken)
        prove_place(self._relay)

    async def drained(self) -> None:
        """Waits until everything taken is written and answered."""
        while self._to_answer or self._writing or self._being_checked:
            await self._settled.wait()

    def end_waiting(self, error: RelaydError) -> None:
        """Nobody waits for an acknowledgement any longer."""
        for waiter in list(self._waiting):
            self._no_longer_waits(waiter)
            waiter.reply.refuse(error)

    def end(self, error: RelaydError) -> None:
        """Nothing more will be written: whoever waits is told `error`."""
        self.end_waiting(error)
        to_answer, self._to_answer = self._to_answer, []
        for reply in [*(reply for reply, _, _ in to_answer), *self._being_checked]:
            reply.refuse(error)
        for reply, _ in self._behind:
            reply.refuse(error)
        self._being_checked.clear()
        self._behind.clear()
        self._settle()


def _do(reply: Reply, act: Callable[[], None]) -> None:
    """Does something outside of its request's own dispatch: a refusal becomes its answer."""
    try:
        act()
    except RelaydError as error:
        reply.refuse(error)
