"""The idempotent producer, without I/O (docs/reference/protocol.md, "Producers").

Events are numbered here, gathered into batches, and each batch is kept until the daemon says that it is durable. What
is not answered for is sent again as it was, in order: the daemon skips what it has already.
"""

from collections import deque
from typing import Annotated, Final, cast

import msgspec

from relayd.client.errors import ProtocolViolationError
from relayd.client.operations import ENCODING_ERRORS, Call, named, unencodable
from relayd.protocol.cursor import Cursor
from relayd.protocol.errors import (
    ConflictError,
    FieldDetail,
    InvalidRequestError,
    InvalidStateError,
    RelaydError,
    SizeDetail,
    StateDetail,
    TooLargeError,
)
from relayd.protocol.kinds import is_kind, is_reserved
from relayd.protocol.limits import EVENT_BODY_BYTES_MAX, FRAME_BYTES_MAX, KIB, MIB
from relayd.protocol.messages import Oversize, Record, Recorded, RelayRequest
from relayd.protocol.names import is_command_id, is_identity
from relayd.protocol.value import check_value

BATCH_EVENTS: Final = 256
BATCH_BYTES: Final = 256 * KIB
LINGER_MS: Final = 5.0
IN_FLIGHT: Final = 8

_FRAME_OVERHEAD_BYTES: Final = 4 * KIB
"""More than a batch's frame has besides its events: names, numbers and the array's own header."""
_BATCH_BYTES_MAX: Final = 3 * MIB
_BODY_OVERHEAD_BYTES: Final = 32
"""At least what a body has besides kind, data, command_id and the producer's name: time, headers, sequence."""

_encoder: Final = msgspec.msgpack.Encoder()
_encode: Final = _encoder.encode
_encode_into: Final = _encoder.encode_into
_decode: Final = msgspec.msgpack.Decoder().decode
_ARRAY_32: Final = b"\xdd"
_SCALARS: Final = frozenset({type(None), bool, int, float, str, bytes})
_STRINGS: Final = frozenset({str})


class RecordBatch(RelayRequest, tag="record", forbid_unknown_fields=True, omit_defaults=True):
    """A `record` whose events were encoded one by one as they came, so that a resend encodes nothing."""

    events: msgspec.Raw
    producer: str
    sequence: Annotated[int, msgspec.Meta(ge=1)]
    oversize: Oversize = "refuse"


class Batch:
    """Events `sequence` to `last`, kept until they are durable."""

    __slots__ = ("call", "count", "sent_times", "sequence")

    def __init__(self, call: Call[Recorded], sequence: int, count: int) -> None:
        self.call = call
        self.sequence = sequence
        self.count = count
        self.sent_times = 0

    @property
    def last(self) -> int:
        """The sequence of its last event."""
        return self.sequence + self.count - 1


class Producing:
    """One producer's stream into one relay.

    Feed it with `add`; `cut` closes the batch that gathers. `next_batch` says what to send now, `recorded` and
    `refused` take answers in, `disconnected` says that no more will come. After a refusal that a repetition can help,
    nothing is sent until every batch in flight is answered (`recovering`); then all are sent again, the oldest first.
    `failed` is set for good by what a repetition cannot help.

    A producer that the daemon does not know may begin with any number. So the oldest batch goes alone until the daemon
    has answered for one: else the second could be taken for the beginning after the first was lost.
    """

    def __init__(
        self,
        relay: str,
        name: str,
        *,
        batch_events: int = BATCH_EVENTS,
        batch_bytes: int = BATCH_BYTES,
        in_flight: int = IN_FLIGHT,
        oversize: Oversize = "clamp",
    ) -> None:
        if not is_identity(name):
            expected = "1 to 128 printable characters, not blank"
            raise InvalidRequestError(f"{name!r} cannot be a producer's name", FieldDetail("producer", expected))
        if min(batch_events, batch_bytes, in_flight) < 1:
            raise InvalidRequestError(
                f"batch_events {batch_events}, batch_bytes {batch_bytes}, in_flight {in_flight}: each is at least 1",
                FieldDetail("batch_events, batch_bytes, in_flight", "at least 1"),
            )
        self.relay = named(relay)
        self.name = name
        self.position = 0
        self.through: Cursor | None = None
        self.failed: RelaydError | None = None
        self.recovering = False
        self._batch_events = batch_events
        self._batch_bytes = min(batch_bytes, _BATCH_BYTES_MAX)
        self._body_bytes_max = EVENT_BODY_BYTES_MAX - _BODY_OVERHEAD_BYTES - len(name.encode())
        self._in_flight_max = in_flight
        self._oversize: Oversize = oversize
        self._next = 1
        self._gathering = bytearray()
        self._gathered = 0
        self._queue: deque[Batch] = deque()
        self._next_to_send = 0
        self._in_flight = 0
        self._known = False
        self._kinds: set[str] = set()

    def where(self) -> Call[Recorded]:
        """Asks where the producer stands; its answer goes to `stands`."""
        return Call(Record(0, self.relay, [], self.name), Recorded)

    def stands(self, answer: Recorded) -> None:
        """Numbering goes on after what the daemon has."""
        self.position = answer.sequence or 0
        self._known = answer.sequence is not None
        self._next = self.position + 1

    @property
    def gathered(self) -> int:
        """Events that no batch has yet."""
        return self._gathered

    @property
    def in_flight(self) -> int:
        """Batches that are sent and not answered."""
        return self._in_flight

    @property
    def unacknowledged(self) -> int:
        """Batches that are not known durable, sent or not."""
        return len(self._queue)

    @property
    def full(self) -> bool:
        """Whether more batches wait than may be in flight; the caller waits before it adds to them."""
        return len(self._queue) > self._in_flight_max

    @property
    def complete(self) -> bool:
        """Whether the batch that gathers is as large as batches become."""
        return self._gathered >= self._batch_events or len(self._gathering) >= self._batch_bytes

    @property
    def settled(self) -> bool:
        """Whether everything that was added is durable."""
        return not self._queue and not self._gathered

    def add(self, kind: str, data: object = None, command_id: str | None = None) -> int:
        """Takes one event in and gives its sequence. The caller has seen to it that there is room (`full`).

        Raises InvalidRequestError or TooLargeError for an event that the daemon would refuse; then nothing was added.
        """
        if kind not in self._kinds:
            self._learn(kind)
        gathering = self._gathering
        start = len(gathering)
        if command_id is None:
            event: object = (kind,) if data is None else (kind, data)
        elif is_command_id(command_id):
            event = (kind, data, command_id)
        else:
            expected = "8 to 128 of A-Z a-z 0-9 _ -"
            raise InvalidRequestError(
                f"{command_id!r} cannot be a command's id: {expected}", FieldDetail("command_id", expected)
            )
        try:
            _encode_into(event, gathering, -1)
            size = len(gathering) - start
            if size > self._body_bytes_max:
                self._check_size(size)
            kind_of_data = type(data)
            if kind_of_data not in _SCALARS and not (kind_of_data is dict and _is_flat(data)):
                _check(data)
        except BaseException as error:
            del gathering[start:]
            if isinstance(error, ENCODING_ERRORS):
                raise unencodable(error) from None
            raise
        if start and size > self._batch_bytes:
            # A large event goes alone, so that every frame stays within its bound.
            large = bytes(memoryview(gathering)[start:])
            del gathering[start:]
            self.cut()
            self._gathering += large
        self._gathered += 1
        sequence = self._next
        self._next = sequence + 1
        return sequence

    def cut(self) -> None:
        """Closes the batch that gathers, if it has events."""
        count = self._gathered
        if not count:
            return
        events = msgspec.Raw(b"".join((_ARRAY_32, count.to_bytes(4), self._gathering)))
        first = self._next - count
        request = RecordBatch(0, self.relay, events, self.name, first, self._oversize)
        self._queue.append(Batch(Call(request, Recorded), first, count))
        self._gathering = bytearray()
        self._gathered = 0

    def next_batch(self) -> Batch | None:
        """The batch to send now, already counted as sent; None: nothing may be sent before an answer comes."""
        most = self._in_flight_max if self._known else 1
        if self.recovering or self.failed is not None or self._in_flight >= most:
            return None
        if self._next_to_send >= len(self._queue):
            return None
        batch = self._queue[self._next_to_send]
        self._next_to_send += 1
        self._in_flight += 1
        batch.sent_times += 1
        return batch

    def recorded(self, batch: Batch, answer: Recorded) -> None:
        """The daemon says that `batch` is durable."""
        self._in_flight -= 1
        if self.failed is not None:
            return
        if answer.through is None:
            self.failed = ProtocolViolationError("the daemon recorded a batch and did not say through where")
            return
        if batch.sent_times == 1 and _repeats(batch, answer):
            self.failed = ConflictError(
                f"the daemon had events of producer `{self.name}` numbered from {batch.sequence} that this producer"
                " had never sent: another one runs under the same name; give each its own"
            )
            return
        # What comes later in the stream is taken only after what comes before it.
        while self._queue and self._queue[0].sequence <= batch.sequence:
            self._queue.popleft()
            self._next_to_send = max(self._next_to_send - 1, 0)
        self._known = True
        self.position = batch.last
        self.through = answer.through

    def refused(self, error: RelaydError) -> None:
        """The daemon did not record a batch that was in flight."""
        self._in_flight -= 1
        if error.retryable or (self.recovering and _is_out_of_order(error)):
            self.recovering = True
        elif self.failed is None:
            self.failed = error

    def disconnected(self) -> None:
        """No answer will come for what is in flight: all of it is sent again on the next connection."""
        self._in_flight = 0
        self.resume()

    @property
    def may_resume(self) -> bool:
        """Whether everything in flight is answered, so that sending again keeps the order."""
        return self.recovering and self._in_flight == 0

    def resume(self) -> None:
        """The pause after a refusal is over: everything is sent again."""
        self.recovering = False
        self._next_to_send = 0
        self._known = False

    def _learn(self, kind: str) -> None:
        if not is_kind(kind) or is_reserved(kind):
            expected = "a-z first, then a-z 0-9 . _ -, at most 64, and none of relayd's own prefixes"
            raise InvalidRequestError(f"{kind!r} cannot be an event's kind: {expected}", FieldDetail("kind", expected))
        self._kinds.add(kind)

    def _check_size(self, size: int) -> None:
        limit = self._body_bytes_max if self._oversize == "refuse" else FRAME_BYTES_MAX - _FRAME_OVERHEAD_BYTES
        if size > limit:
            raise TooLargeError(
                f"the event has {size} bytes; at most {limit} can be sent: record it in pieces", SizeDetail(limit, size)
            )


def _check(data: object) -> None:
    """Refuses what the daemon would: one bad event would have its whole batch refused."""
    # Nesting counts from the frame's map: the frame, its events, the event.
    try:
        check_value([[[data]]])
    except InvalidRequestError:
        # Tuples, structs and the like are no MessagePack yet: what counts is what they become.
        check_value([[[_decode(_encode(data))]]])


def _is_flat(data: object) -> bool:
    """Whether a map is the usual one of scalars, which takes two steps in C to see."""
    members = cast("dict[object, object]", data)
    return _STRINGS.issuperset(map(type, members)) and _SCALARS.issuperset(map(type, members.values()))


def _repeats(batch: Batch, answer: Recorded) -> bool:
    """Whether the daemon had some of these events already."""
    if answer.duplicate or answer.first is None or answer.through is None:
        return True
    return answer.through.ordinal - answer.first + 1 < batch.count


def _is_out_of_order(error: RelaydError) -> bool:
    """Whether a batch was refused because the one before it was not recorded."""
    return (
        isinstance(error, InvalidStateError)
        and isinstance(error.detail, StateDetail)
        and error.detail.expected is not None
    )
