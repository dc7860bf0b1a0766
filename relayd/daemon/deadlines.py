"""Deadlines of requests that wait, without a task for each (docs/reference/protocol.md, "Waiting")."""

import heapq
import math
from collections.abc import Callable
from typing import Final

import trio

_MANY: Final = 1024


class Deadline:
    """One call in the future; `cancel` makes it never come."""

    __slots__ = ("_deadlines", "at", "call")

    def __init__(self, deadlines: "Deadlines", at: float, call: Callable[[], None]) -> None:
        self._deadlines = deadlines
        self.at = at
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        """Takes the call back; nothing happens where it came already."""
        if self.call is not None:
            self.call = None
            self._deadlines.cancelled += 1

    def __lt__(self, other: "Deadline") -> bool:
        return self.at < other.at


class Deadlines:
    """A heap of deadlines on Trio's clock, served by the one task that runs `run`. `cancelled`: those still in it."""

    def __init__(self) -> None:
        self.cancelled = 0
        self._heap: list[Deadline] = []
        self._changed = trio.Event()

    def after(self, seconds: float, call: Callable[[], None]) -> Deadline:
        """Calls `call` in `seconds`. It must not raise, and not wait."""
        self._drop_cancelled()
        deadline = Deadline(self, trio.current_time() + seconds, call)
        heapq.heappush(self._heap, deadline)
        if self._heap[0] is deadline:
            self._changed.set()
        return deadline

    async def run(self, served: Callable[[], None]) -> None:
        """Serves all deadlines, for ever; `served` is called after each moment at which some came."""
        while True:
            self._changed = trio.Event()
            with trio.move_on_at(self._heap[0].at if self._heap else math.inf):
                await self._changed.wait()
            if self._serve_due(trio.current_time()):
                served()

    def _serve_due(self, now: float) -> bool:
        came = False
        while self._heap and self._heap[0].at <= now:
            deadline = heapq.heappop(self._heap)
            call, deadline.call = deadline.call, None
            if call is None:
                self.cancelled -= 1
            else:
                came = True
                call()
        return came

    def _drop_cancelled(self) -> None:
        """A reader that is answered early leaves its deadline behind; many of them are not kept."""
        if self.cancelled > max(_MANY, len(self._heap) // 2):
            self._heap = [deadline for deadline in self._heap if deadline.call is not None]
            heapq.heapify(self._heap)
            self.cancelled = 0
