"""Records held while a cut is exact (docs/reference/protocol.md, "Checkpoints").

They are neither recorded nor answered until the checkpoint ends, or something else is recorded; then they are decided
in the order they came.
"""

from collections import deque
from collections.abc import Callable

from relayd.daemon.memory import RelayMemory
from relayd.daemon.reply import Reply
from relayd.protocol.errors import BoundDetail, OverloadedError, RelaydError
from relayd.protocol.messages import CommandQuery, Record, Submit

HeldRequest = Record | Submit | CommandQuery


class Holding:
    """What one relay holds back. `decide` decides a request as if it had just come."""

    def __init__(self, memory: RelayMemory, bytes_max: int, decide: Callable[[HeldRequest, Reply], None]) -> None:
        self._memory = memory
        self._bytes_max = bytes_max
        self._decide = decide
        self._held: deque[tuple[HeldRequest, Reply]] = deque()
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
        match request:
            case Record(events=[], producer=producer):
                return any(isinstance(held, Record) and held.producer == producer for held, _ in self._held)
            case Record():
                return True
            case Submit() if notice:
                return True
            case Submit() | CommandQuery():
                return any(isinstance(held, Submit) and held.command_id == request.command_id for held, _ in self._held)

    def hold(self, request: HeldRequest, reply: Reply) -> None:
        """Holds it back. Raises OverloadedError where too much is held."""
        if self._bytes + reply.size > self._bytes_max:
            message = f"{self._bytes} bytes of records are held until the checkpoint ends: send it again then"
            raise OverloadedError(message, BoundDetail("pending_bytes"))
        held = (request, reply)
        reply.hold_back(lambda: self._take_out(held))
        self._held.append(held)
        self._bytes += reply.size

    def _take_out(self, held: tuple[HeldRequest, Reply]) -> None:
        if held in self._held:
            self._held.remove(held)
            self._bytes -= held[1].size

    def release(self) -> None:
        """Decides all that is held, in order; nothing is held until the next cut."""
        if self._releasing or not self._held:
            return
        self._releasing = True
        try:
            while self._held:
                request, reply = self._held.popleft()
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
        for _, reply in held:
            reply.go_on()
            reply.refuse(error)
