"""Records held while a cut is exact (docs/reference/protocol.md, "Checkpoints").

They are neither recorded nor answered until the checkpoint ends, or something else is recorded; then they are decided
in the order they came.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from relayd.daemon.memory import RelayMemory
from relayd.daemon.reply import Reply
from relayd.protocol.errors import BoundDetail, OverloadedError, RelaydError
from relayd.protocol.messages import CommandQuery, Record, Submit

HeldRequest = Record | Submit | CommandQuery


class Held(NamedTuple):
    """One request. `itself`: a record or notice; others wait for one of these, which they ask about."""

    request: HeldRequest
    reply: Reply
    itself: bool


class Holding:
    """What one relay holds back. `decide` decides a request as if it had just come."""

    def __init__(self, memory: RelayMemory, bytes_max: int, decide: Callable[[HeldRequest, Reply], None]) -> None:
        self._memory = memory
        self._bytes_max = bytes_max
        self._decide = decide
        self._held: deque[Held] = deque()
        self._bytes = 0
        self._releasing = False

    def __len__(self) -> int:
        return len(self._held)

    @property
    def exact(self) -> bool:
        """Whether a cut is ready and nothing was recorded after it."""
        barrier = self._memory.state.lane.barrier
        return barrier is not None and barrier.cut is not None and barrier.cut == self._memory.state.frontier

    def holds(self, request: HeldRequest, *, notice: bool = False) -> bool:
        """Whether this request has to wait: a record or notice, or one that asks about what is held."""
        if self._releasing or not self.exact:
            return False
        return _itself(request, notice=notice) or _asks_about(request, self._held)

    def hold(self, request: HeldRequest, reply: Reply, *, notice: bool = False) -> None:
        """Holds it back. Raises OverloadedError where too much is held."""
        if self._bytes + reply.size > self._bytes_max:
            message = f"{self._bytes} bytes of records are held until the checkpoint ends: send it again then"
            raise OverloadedError(message, BoundDetail("pending_bytes"))
        held = Held(request, reply, _itself(request, notice=notice))
        reply.hold_back(lambda: self._take_out(held))
        self._held.append(held)
        self._bytes += reply.size

    def _take_out(self, held: Held) -> None:
        """The client took it back; what asked about it waits no longer."""
        if held not in self._held:
            return
        self._drop(held)
        kept: list[Held] = []
        for other in list(self._held):
            if other.itself or _asks_about(other.request, kept):
                kept.append(other)
            elif other in self._held:
                self._drop(other)
                other.reply.go_on()
                self._decide(other.request, other.reply)

    def _drop(self, held: Held) -> None:
        self._held.remove(held)
        self._bytes -= held.reply.size

    def release(self) -> None:
        """Decides all that is held, in order; nothing is held until the next cut."""
        if self._releasing or not self._held:
            return
        self._releasing = True
        try:
            while self._held:
                request, reply, _ = self._held.popleft()
                self._bytes -= reply.size
                reply.go_on()
                self._decide(request, reply)
        finally:
            self._releasing = False

    def settle(self) -> None:
        """Releases what is held where the cut is no longer exact."""
        if self._held and not self.exact:
            self.release()

    def end(self, error: RelaydError) -> None:
        """The host ends: nothing held is recorded."""
        held, self._held = self._held, deque()
        self._bytes = 0
        for each in held:
            each.reply.go_on()
            each.reply.refuse(error)


def _itself(request: HeldRequest, *, notice: bool) -> bool:
    return notice or (isinstance(request, Record) and bool(request.events))


def _asks_about(request: HeldRequest, held: Iterable[Held]) -> bool:
    """Whether its answer depends on one of those that are held."""
    if isinstance(request, Record):
        return any(isinstance(each.request, Record) and each.request.producer == request.producer for each in held)
    return any(isinstance(each.request, Submit) and each.request.command_id == request.command_id for each in held)
