"""Recording an application's events, and producers' sequences (docs/reference/protocol.md, "Records", "Producers")."""

from typing import Final, NamedTuple

import msgspec

from relayd.protocol.cursor import Cursor
from relayd.protocol.errors import (
    FieldDetail,
    InvalidRequestError,
    InvalidStateError,
    SizeDetail,
    StateDetail,
    TooLargeError,
)
from relayd.protocol.event import Producer, encode_body
from relayd.protocol.kinds import RelayClamped, is_kind, is_reserved
from relayd.protocol.limits import EVENT_BODY_BYTES_MAX, SEQUENCE_MAX
from relayd.protocol.messages import NewEvent, Record, Recorded
from relayd.protocol.names import is_command_id
from relayd.relay.clamp import clamp
from relayd.relay.closed import closed_error
from relayd.relay.fold import Run
from relayd.relay.state import ProducerMark, RelayState

_KINDS_KEPT: Final = 4096
_good_kinds: Final[set[str]] = set()


class Recording(NamedTuple):
    """Bodies of the events to record, their fold, and where the producer stood before (`mark`)."""

    bodies: list[bytes]
    run: Run | None
    mark: ProducerMark | None

    def answer(self, request: int, first: int, through: Cursor) -> Recorded:
        """The response, once the bodies have the ordinals `first` to `through`."""
        if self.bodies:
            producer = None if self.run is None else self.run.producer
            return Recorded(request, first, through, sequence=None if producer is None else producer.sequence)
        if self.mark is None:
            return Recorded(request)
        return Recorded(request, None, self.mark.cursor, self.duplicate, self.mark.sequence)

    @property
    def duplicate(self) -> bool:
        """Whether events were sent and all of them are there already."""
        return self.run is not None


def check_record(request: Record) -> None:
    """Refuses what no relay would take: needs no state. Raises InvalidRequestError."""
    if request.sequence is None:
        if request.producer is not None and request.events:
            raise _wrong("sequence", "1 to 2**63, with producer and events", "events of a producer need their sequence")
        if request.producer is None and not request.events:
            raise _wrong("events", "at least one event", "nothing to record, and no producer to ask about")
    elif request.producer is None or not request.events:
        raise _wrong("sequence", "no such field", "a sequence goes with a producer and its events, always")
    elif not 1 <= request.sequence <= SEQUENCE_MAX - len(request.events) + 1:
        raise _wrong("sequence", "1 to 2**63", f"sequence {request.sequence} with these events is out of range")
    for index, event in enumerate(request.events):
        if event.kind not in _good_kinds:
            _check_kind(event.kind, index)
        if event.command_id is not None and not is_command_id(event.command_id):
            expected = "8 to 128 of A-Z a-z 0-9 _ -"
            raise _wrong(f"events[{index}][2]", expected, f"`{event.command_id[:130]}` is no command id")


def _check_kind(kind: str, index: int) -> None:
    if not is_kind(kind):
        expected = "a lower-case letter, then up to 63 of a-z 0-9 . _ -"
        raise _wrong(f"events[{index}][0]", expected, f"`{kind[:80]}` is no kind of an event")
    if is_reserved(kind):
        expected = "a kind without relayd's own prefixes"
        raise _wrong(f"events[{index}][0]", expected, f"`{kind}` is one of relayd's own kinds; choose another word")
    if len(_good_kinds) < _KINDS_KEPT:
        _good_kinds.add(kind)


def _wrong(field: str, expected: str, what: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"`record` is not possible so: {what}; `{field}` takes {expected}", FieldDetail(field, expected)
    )


def decide_record(state: RelayState, request: Record, now_ms: int) -> Recording:
    """Which of the request's events are new, encoded as bodies. The request passed `check_record`."""
    if request.producer is None:
        _refuse_closed(state)
        plain = [
            _bounded(encode_body(now_ms, event.kind, event.data, event.command_id), event, request, None, now_ms)
            for event in request.events
        ]
        return Recording(plain, Run(now_ms, None), None)
    mark = state.producers.get(request.producer)
    if request.sequence is None:
        return Recording([], None, mark)
    skip = _already_there(mark, request.producer, request.sequence)
    if skip < len(request.events):
        _refuse_closed(state)
    bodies: list[bytes] = []
    for sequence, event in enumerate(request.events[skip:], request.sequence + skip):
        producer = Producer(request.producer, sequence)
        body = encode_body(now_ms, event.kind, event.data, event.command_id, producer)
        bodies.append(_bounded(body, event, request, producer, now_ms))
    last = Producer(request.producer, request.sequence + len(request.events) - 1)
    return Recording(bodies, Run(now_ms, last), mark)


def _refuse_closed(state: RelayState) -> None:
    if state.lane.closed is not None:
        raise closed_error()


def _already_there(mark: ProducerMark | None, producer: str, sequence: int) -> int:
    """How many events, from `sequence` on, the producer's mark says are recorded. An unknown one may begin anywhere."""
    if mark is None:
        return 0
    expected = mark.sequence + 1
    if sequence > expected:
        message = (
            f"producer `{producer}` stands at sequence {mark.sequence}, so {expected} comes next, not {sequence}:"
            " send again what is between, or ask where it stands with a `record` without events"
        )
        raise InvalidStateError(message, StateDetail(expected=expected))
    return expected - sequence


def _bounded(body: bytes, event: NewEvent, request: Record, producer: Producer | None, now_ms: int) -> bytes:
    """`body`, held to the bound as the request's `oversize` says."""
    if len(body) <= EVENT_BODY_BYTES_MAX:
        return body
    if request.oversize == "refuse":
        raise TooLargeError(
            f"an event `{event.kind}` has {len(body)} bytes; one may have {EVENT_BODY_BYTES_MAX}:"
            ' split it, or say `oversize: "clamp"` to have its longest texts cut',
            SizeDetail(EVENT_BODY_BYTES_MAX, len(body)),
        )
    room = EVENT_BODY_BYTES_MAX - (len(body) - len(bytes(event.data)))
    clamped = clamp(bytes(event.data), room)
    if clamped is not None:
        return encode_body(now_ms, event.kind, msgspec.Raw(clamped), event.command_id, producer)
    data = msgspec.Raw(msgspec.msgpack.encode(RelayClamped(event.kind, len(body))))
    return encode_body(now_ms, "relay.clamped", data, event.command_id, producer)
