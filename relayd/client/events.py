"""Events and pages as a reader sees them; every page is proven before anything of it is shown.

A page is whole records (docs/reference/journal.md, "Record"). Each ordinal and each digest is checked; bodies are
decoded only when looked at, because most readers look at few.
"""

import struct
from typing import Final, Literal, NamedTuple

import msgspec

from relayd.client.errors import ProtocolViolationError
from relayd.protocol.cursor import Cursor, Span
from relayd.protocol.event import (
    DIGEST_BASE,
    RECORD_HEADER,
    RECORD_HEADER_BYTES,
    Body,
    Producer,
    RecordError,
    decode_body,
)
from relayd.protocol.event import verify_records as find_fault
from relayd.protocol.limits import EVENT_BODY_BYTES_MAX
from relayd.protocol.messages import Page, Position, RelayStatus

_decode_data: Final = msgspec.msgpack.Decoder().decode


class Event(msgspec.Struct, gc=False, eq=False):
    """One event; `digest` is proven to be that of `body`, the stored bytes, at `ordinal`.

    The other properties read the body when they are first asked for, and raise ProtocolViolationError where it is none
    that this version knows.
    """

    ordinal: int
    digest: bytes
    body: bytes
    _read: Body | None = None
    _data: object = msgspec.UNSET

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Event):
            return NotImplemented
        return self.ordinal == other.ordinal and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"<Event {self.ordinal}-{self.digest.hex()} {self.kind}>"

    @property
    def cursor(self) -> Cursor:
        """The cursor of a reader whose last event this is."""
        return Cursor(self.ordinal, self.digest)

    @property
    def at(self) -> int:
        """When it was recorded, in milliseconds since 1970."""
        return (self._read or self._decode()).recorded_at_ms

    @property
    def kind(self) -> str:
        """What happened, in the words of docs/reference/events.md or the application's own."""
        return (self._read or self._decode()).kind

    @property
    def data(self) -> object:
        """The decoded value; do not change it, the same one is given each time."""
        if self._data is msgspec.UNSET:
            self._data = _decode_data((self._read or self._decode()).data)
        return self._data

    @property
    def data_bytes(self) -> bytes:
        """The value as the MessagePack that was recorded."""
        return bytes((self._read or self._decode()).data)

    @property
    def command_id(self) -> str | None:
        """The command that it belongs to, if any."""
        return (self._read or self._decode()).command_id

    @property
    def producer(self) -> Producer | None:
        """Who numbered it and with which number, if anyone did."""
        return (self._read or self._decode()).producer

    def _decode(self) -> Body:
        try:
            self._read = decode_body(self.body)
        except msgspec.DecodeError as error:
            message = f"event {self.ordinal} has a body that this version of relayd cannot read: {error}"
            raise ProtocolViolationError(message) from None
        return self._read


class Gap(NamedTuple):
    """Events that this reader cannot get: `lost`. Reading goes on after `resume`."""

    reason: Literal["evicted", "unreadable"]
    lost: Span
    resume: Cursor


class EventPage(msgspec.Struct, gc=False):
    """Proven events in order. `gap` stands before them; `through` is the cursor to go on from.

    `latest` is how far the relay had got; `verified`: the cursor asked with had a digest, and the daemon knows it for
    right; `status` is the state at `latest`, where it was asked for.
    """

    events: list[Event]
    through: Cursor
    latest: Cursor
    verified: bool = False
    gap: Gap | None = None
    status: RelayStatus | None = None


def verify_page(after: Position, page: Page) -> EventPage:
    """Proves a page against the position it was asked with.

    Raises ProtocolViolationError: an ordinal or digest is wrong, or the page says of itself what is not so.
    """
    gap: Gap | None = None
    if isinstance(after, Cursor):
        begin = after.ordinal
    elif after == "earliest":
        begin = 0
        if page.gap is not None:
            begin = page.gap.last
            gap = Gap("evicted", Span(page.gap.first, page.gap.last), Cursor(begin))
    else:
        begin = page.through.ordinal - page.count
    if page.latest.ordinal < page.through.ordinal or begin < 0:
        raise ProtocolViolationError(f"the daemon's page goes through {page.through.ordinal}, past its own latest")
    events = verify_events(page.records, begin)
    if len(events) != page.count:
        raise ProtocolViolationError(f"the daemon's page holds {len(events)} events and says {page.count}")
    if events:
        last = events[-1]
        truly_through = page.through.ordinal == last.ordinal and page.through.digest in (last.digest, None)
    else:
        truly_through = page.through.ordinal == begin and (
            not isinstance(after, Cursor) or None in (after.digest, page.through.digest) or after == page.through
        )
    if not truly_through:
        raise ProtocolViolationError(
            f"the daemon's page of {len(events)} events after {begin} says that it goes through {page.through.ordinal}"
        )
    through = events[-1].cursor if events else page.through
    if not events and through.digest is None and isinstance(after, Cursor):
        through = after
    return EventPage(events, through, page.latest, page.verified, gap, page.status)


def verify_events(records: bytes, after: int) -> list[Event]:
    """All events of whole records, proven: ordinals from `after` + 1 upward without a hole, every digest right.

    Raises ProtocolViolationError that names the first fault.
    """
    # The hottest loop of a reader: about one microsecond an event, half of it the digest itself. Whatever it does not
    # like, the plain reading of the same rule names.
    unpack = RECORD_HEADER.unpack_from
    header_bytes, body_bytes_max = RECORD_HEADER_BYTES, EVENT_BODY_BYTES_MAX
    copy_base = DIGEST_BASE.copy
    events: list[Event] = []
    add = events.append
    offset, end, expected = 0, len(records), after
    try:
        while offset < end:
            length, ordinal, digest = unpack(records, offset)
            expected += 1
            if ordinal != expected or not 0 < length <= body_bytes_max:
                break
            hashing = copy_base()
            hashing.update(records[offset + 4 : offset + 12])
            start = offset + header_bytes
            offset = start + length
            # Where bytes are missing at the end, the digest is not that of the rest.
            body = records[start:offset]
            hashing.update(body)
            if hashing.digest() != digest:
                break
            add(Event(ordinal, digest, body))
        else:
            if offset == end:
                return events
    except struct.error:
        pass
    raise _fault(records, after)


def _fault(records: bytes, after: int) -> ProtocolViolationError:
    try:
        find_fault(records, after)
    except RecordError as error:
        complaint = str(error)
    else:
        complaint = "it does not hold whole records"
    return ProtocolViolationError(
        f"a page of events after {after} does not verify: {complaint}; this is damage or a faulty daemon, not yours:"
        " run `relayd verify` on the relay's directory"
    )
