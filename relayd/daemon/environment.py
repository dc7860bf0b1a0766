"""What every part of the daemon is given: settings, file threads, clocks, the log (docs/internals/architecture.md).

Time and randomness enter relayd here and nowhere else, so that a test puts its own in their place.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar, TypeVarTuple

import trio
from structlog.typing import FilteringBoundLogger

from relayd.daemon.deadlines import Deadlines
from relayd.daemon.outbox import Outbox
from relayd.daemon.page_budget import PageBudget
from relayd.daemon.settings import Settings
from relayd.daemon.tails import TailBudget
from relayd.journal.pages import PageCache

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class FileWork:
    """Runs blocking file work in threads, `threads` at a time for all relays together.

    A job once started is never abandoned: its bytes get written whether its caller is cancelled or not.
    """

    def __init__(self, threads: int) -> None:
        self._limiter = trio.CapacityLimiter(threads)

    async def run(self, job: Callable[[*Ts], T], *args: *Ts) -> T:
        """What `job(*args)` returns or raises."""
        return await trio.to_thread.run_sync(job, *args, abandon_on_cancel=False, limiter=self._limiter)


def wall_clock_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def random_id() -> bytes:
    """16 random bytes."""
    return os.urandom(16)


@dataclass
class Environment:
    """One per daemon. `settings` is replaced at SIGHUP; what lasts keeps no copy of it.

    `state_gone` is set by whoever finds that the state directory is no longer where it was.
    """

    settings: Settings
    log: FilteringBoundLogger
    pages: PageCache
    files: FileWork
    tails: TailBudget
    deadlines: Deadlines = field(default_factory=Deadlines)
    outbox: Outbox = field(default_factory=Outbox)
    state_gone: trio.Event = field(default_factory=trio.Event)
    page_budget: PageBudget = field(init=False)
    now_ms: Callable[[], int] = wall_clock_ms
    new_id: Callable[[], bytes] = random_id

    def __post_init__(self) -> None:
        self.page_budget = PageBudget(self.outbox)
