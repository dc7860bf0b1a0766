"""Following a relay, without I/O: what to ask next, and what an answer means for the reader.

docs/reference/protocol.md, "Cursors and resuming". The reader has its own cursor. It catches up to the latest that the
first page told of, then waits live. Lost events are told as a Gap; the same damage met twice is an error.
"""

from typing import Final, cast

from relayd.client.errors import OWN_ERRORS, ProtocolViolationError
from relayd.client.events import EventPage, Gap, verify_page
from relayd.client.operations import Call, PositionLike, attach, position
from relayd.protocol.cursor import Cursor, Span
from relayd.protocol.errors import DesynchronizedError, InternalError, PositionDetail, RelaydError
from relayd.protocol.messages import Attach, Page, Position

LIVE_WAIT_MS: Final = 30_000
INTERNAL_ERRORS_MAX: Final = 3
"""A bug of the daemon that shows this often in a row will show again."""


class Following:
    """One reader's way through one relay.

    `next_call` says what to ask, `advance` takes a page in, `prove` turns it into events, `refused` takes an error in.
    Between `advance` and `prove` the next call may be sent already: what a page claims decides it, and a page that
    does not prove ends the reading anyway. With `live` False it ends at the latest that the first page told of.
    """

    def __init__(self, relay: str, after: PositionLike, *, live: bool, max_bytes: int) -> None:
        self._relay = relay
        self._live = live
        self._max_bytes = max_bytes
        self._position: Position = position(after)
        self._target: int | None = None
        self._told: tuple[str, Span] | None = None
        self._internal_errors = 0

    @property
    def catching_up(self) -> bool:
        """Whether the next page is known to be there, so that asking for it waits for nothing."""
        return self._target is None or (isinstance(self._position, Cursor) and self._position.ordinal < self._target)

    def next_call(self) -> Call[Page] | None:
        """What to ask now; None: everything that was to be read is read."""
        if self.catching_up:
            return attach(self._relay, self._position, max_bytes=self._max_bytes)
        if not self._live:
            return None
        return attach(self._relay, self._position, wait_ms=LIVE_WAIT_MS, max_bytes=self._max_bytes)

    def advance(self, page: Page) -> None:
        """Takes a page's own word for where the next one begins."""
        self._internal_errors = 0
        if self._target is None:
            self._target = page.latest.ordinal
        if page.count:
            self._told = None
        elif self.catching_up and self._position == page.through and page.through.ordinal < self._target:
            raise ProtocolViolationError(
                f"the daemon sent no event after {page.through.ordinal}, though it had said there were some through"
                f" {self._target}"
            )
        if page.count or not isinstance(self._position, Cursor):
            self._position = page.through

    def prove(self, call: Call[Page], page: Page) -> EventPage:
        """The events of the page that answered `call`. Raises ProtocolViolationError."""
        proven = verify_page(cast("Attach", call.request).after, page)
        if self._live or self._target is None or proven.through.ordinal <= self._target:
            return proven
        # What was recorded after reading began is for the next reading.
        beyond = proven.through.ordinal - self._target
        if beyond < len(proven.events):
            proven.events = proven.events[:-beyond]
            proven.through = proven.events[-1].cursor
        return proven

    def refused(self, error: RelaydError) -> EventPage | None:
        """A page that only tells of a gap; None: the same is to be asked again after a pause. Raises what ends it."""
        if isinstance(error, DesynchronizedError):
            return self._resume(error)
        if not error.retryable or isinstance(error, OWN_ERRORS):
            raise error
        if isinstance(error, InternalError):
            self._internal_errors += 1
            if self._internal_errors >= INTERNAL_ERRORS_MAX:
                raise error
        return None

    def _resume(self, error: DesynchronizedError) -> EventPage:
        detail = error.detail
        if not isinstance(detail, PositionDetail) or detail.reason not in ("evicted", "unreadable"):
            raise error
        asked = self._position if isinstance(self._position, Cursor) else detail.requested
        reason = detail.reason
        resume = detail.earliest
        if detail.lost is not None:
            lost = Span(*detail.lost)
            if reason == "unreadable":
                resume = Cursor(lost.last)
        else:
            lost = Span(min(asked.ordinal + 1, resume.ordinal), resume.ordinal)
        further = resume.ordinal > asked.ordinal
        proves_more = resume.ordinal == asked.ordinal and asked.digest is None and resume.digest is not None
        if self._told == (reason, lost) or not (further or proves_more):
            raise error
        self._told = (reason, lost)
        self._position = resume
        if self._target is None:
            self._target = detail.latest.ordinal
        gap = Gap(reason, lost, resume)
        return EventPage([], resume, detail.latest, gap=gap)
