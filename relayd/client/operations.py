"""What can be asked, as calls that both clients make: the request, what must answer it, whether it may be repeated.

docs/reference/protocol.md, "Operations". A call may be repeated where doing it twice is doing it once.
"""

import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Generic, NamedTuple, TypeVar, cast

import msgspec

from relayd.client.errors import ProtocolViolationError
from relayd.protocol.commands import AnyCommand, OutcomeWord
from relayd.protocol.cursor import Cursor, parse_cursor
from relayd.protocol.errors import ErrorResponse, FieldDetail, InvalidRequestError, ShuttingDownError, from_wire
from relayd.protocol.event import NIL
from relayd.protocol.kinds import Retention, RetentionBytes
from relayd.protocol.limits import PAGE_BYTES_DEFAULT
from relayd.protocol.messages import (
    Accepted,
    Acknowledge,
    Acknowledged,
    AnyResponse,
    Attach,
    AwaitAcknowledged,
    Claim,
    Claimed,
    CommandQuery,
    CommandReport,
    ConsumerPosition,
    DeleteRelay,
    Done,
    Export,
    Exported,
    Finish,
    Finished,
    ForgetConsumer,
    Leave,
    NewEvent,
    Open,
    Opened,
    Oversize,
    Page,
    Position,
    Record,
    Recorded,
    RelayList,
    Relays,
    Request,
    Status,
    StatusResponse,
    Submit,
)
from relayd.protocol.names import is_relay_name

R = TypeVar("R", bound=msgspec.Struct)

NewEventLike = NewEvent | tuple[str, object] | tuple[str, object, str | None]
"""An event to record: (kind, data), (kind, data, command_id), or one that is encoded already."""

PositionLike = Position | str | Mapping[str, str]
"""A cursor, its text, "earliest", "latest", or where a consumer stands: `{"consumer": name}`."""

_encode: Final = msgspec.msgpack.Encoder().encode
_EVENT_LENGTHS: Final = (2, 3)


ENCODING_ERRORS: Final = (TypeError, ValueError, OverflowError, RecursionError)


class Call(NamedTuple, Generic[R]):
    """One request that is to be made. `wait_seconds`: how long the daemon itself may take to answer, at most."""

    request: Request
    expected: type[R]
    repeatable: bool = True
    wait_seconds: float = 0.0

    def answer(self, response: AnyResponse) -> R:
        """The answer, of the type it must have. Raises the daemon's refusal, or ProtocolViolationError."""
        if isinstance(response, self.expected):
            return response
        if isinstance(response, ErrorResponse):
            raise from_wire(response)
        asked = type(self.request).__name__
        raise ProtocolViolationError(f"the daemon answered {asked} with {type(response).__name__}")

    def ends_with(self, response: AnyResponse) -> bool:
        """Whether this is no answer but the daemon's goodbye, and the call is for its successor."""
        return self.repeatable and isinstance(response, ErrorResponse) and response.code == ShuttingDownError.code


def relays() -> Call[RelayList]:
    """Lists all relays."""
    return Call(Relays(0), RelayList)


def open_relay(relay: str, *, create: bool, retention: Retention | None, max_active: int | None) -> Call[Opened]:
    """Opens a relay; repeated, it is opened still, and `created` may be False though the first try made it."""
    return Call(Open(0, named(relay), create, _retention(retention), max_active), Opened)


def delete_relay(relay: str, store: bytes) -> Call[Done]:
    """Deletes a relay; a repetition would be refused for what the first try did."""
    return Call(DeleteRelay(0, named(relay), store), Done, repeatable=False)


def status(relay: str) -> Call[StatusResponse]:
    """Asks for a relay's state."""
    return Call(Status(0, named(relay)), StatusResponse)


def export(relay: str, at: Cursor | None = None, offset: int = 0) -> Call[Exported]:
    """Asks for a relay's whole state, or for a further part of it."""
    return Call(Export(0, named(relay), at, offset), Exported)


def record(
    relay: str,
    events: Iterable[NewEventLike],
    *,
    producer: str | None,
    sequence: int | None,
    oversize: Oversize,
) -> Call[Recorded]:
    """Records events. Only numbered ones may be sent twice."""
    request = Record(0, named(relay), [encode_event(event) for event in events], producer, sequence, oversize)
    return Call(request, Recorded, repeatable=producer is not None)


def attach(
    relay: str,
    after: PositionLike,
    *,
    wait_ms: int = 0,
    max_bytes: int = PAGE_BYTES_DEFAULT,
    status: bool = False,
) -> Call[Page]:
    """Asks for a page."""
    request = Attach(0, named(relay), position(after), wait_ms, max_bytes, status)
    return Call(request, Page, wait_seconds=wait_ms / 1000)


def acknowledge(relay: str, through: Cursor | str, consumer: str) -> Call[Acknowledged]:
    """Says that a consumer has everything through a cursor."""
    return Call(Acknowledge(0, named(relay), cursor(through), consumer), Acknowledged)


def await_acknowledged(relay: str, consumer: str, through: Cursor | str, wait_ms: int) -> Call[Acknowledged]:
    """Waits until a consumer has acknowledged a cursor."""
    request = AwaitAcknowledged(0, named(relay), consumer, cursor(through), wait_ms)
    return Call(request, Acknowledged, wait_seconds=wait_ms / 1000)


def forget_consumer(relay: str, consumer: str) -> Call[Done]:
    """Frees what a consumer pins."""
    return Call(ForgetConsumer(0, named(relay), consumer), Done)


CommandLike = AnyCommand | Mapping[str, object]
"""A command, or the map that it travels as: `{"type": "task", "payload": …}`."""


def submit(relay: str, command_id: str, command: CommandLike) -> Call[Accepted]:
    """Has a command accepted; repeated, it is the same command still."""
    return Call(Submit(0, named(relay), command_id, encode_value(command)), Accepted)


def command(relay: str, command_id: str, wait_ms: int = 0) -> Call[CommandReport]:
    """Asks what became of a command."""
    return Call(CommandQuery(0, named(relay), command_id, wait_ms), CommandReport, wait_seconds=wait_ms / 1000)


def claim(relay: str, capacity: int, wait_ms: int = 0) -> Call[Claimed]:
    """Asks for work. Repeated, the daemon hands over again what a lost answer carried, to the same worker."""
    return Call(Claim(0, named(relay), capacity, wait_ms), Claimed, wait_seconds=wait_ms / 1000)


def finish(
    relay: str, command_id: str, outcome: OutcomeWord, *, result: object = None, message: str | None = None
) -> Call[Finished]:
    """Says how a command ended; repeated, it is the same end still."""
    encoded = NIL if result is None else encode_value(result)
    return Call(Finish(0, named(relay), command_id, outcome, encoded, message), Finished)


def new_command_id() -> str:
    """An id that no other command has."""
    return secrets.token_hex(16)


def encode_value(value: object) -> msgspec.Raw:
    """One MessagePack value. Raises InvalidRequestError for what has no such form."""
    try:
        return msgspec.Raw(_encode(value))
    except ENCODING_ERRORS as error:
        raise unencodable(error) from None


def leave() -> Call[Done]:
    """Says a planned goodbye."""
    return Call(Leave(0), Done)


def named(relay: str) -> str:
    """`relay`, if it can be a relay's name. Raises InvalidRequestError."""
    if not is_relay_name(relay):
        expected = "1 to 64 of a-z 0-9 . _ -, beginning with a letter or digit"
        raise InvalidRequestError(f"`{relay}` cannot be a relay's name: {expected}", FieldDetail("relay", expected))
    return relay


def _retention(given: object) -> Retention | None:
    """`given`, if it is a retention. Raises InvalidRequestError."""
    if given is None or (isinstance(given, str) and given in ("checkpointed", "acknowledged")):
        return given
    # A struct that is made in Python checks nothing by itself.
    if isinstance(given, RetentionBytes) and isinstance(cast("object", given.bytes), int) and given.bytes >= 1:
        return given
    expected = '"checkpointed", "acknowledged", or RetentionBytes with a number of bytes'
    raise InvalidRequestError(f"{given!r} is no retention; one is {expected}", FieldDetail("retention", expected))


def _check_shape(event: object) -> None:
    """Tells what is no event as such: `record("r", ("x", 1))` is one pair where a list of pairs belongs."""
    if isinstance(event, tuple | list):
        members = cast("Sequence[object]", event)
        if len(members) in _EVENT_LENGTHS and isinstance(members[0], str):
            return
    expected = "a list of (kind, data) or (kind, data, command_id)"
    raise InvalidRequestError(
        f"{event!r:.100} is no event; what is recorded is {expected}", FieldDetail("events", expected)
    )


def encode_event(event: NewEventLike) -> NewEvent:
    """An event as it is sent. Raises InvalidRequestError for what is none, or has no MessagePack form."""
    if isinstance(event, NewEvent):
        return event
    _check_shape(event)
    kind, data = event[0], event[1]
    try:
        raw = NIL if data is None else msgspec.Raw(_encode(data))
    except ENCODING_ERRORS as error:
        raise unencodable(error) from None
    return NewEvent(kind, raw, event[2] if len(event) > 2 else None)  # noqa: PLR2004 - the third of three


def unencodable(error: Exception) -> InvalidRequestError:
    """The refusal of data that has no MessagePack form."""
    expected = "null, booleans, numbers within 64 bits, strings, bytes, lists, maps with string keys"
    return InvalidRequestError(
        f"an event's data cannot be sent: {error or 'it is nested too deep'}; it is made of {expected}",
        FieldDetail("data", expected),
    )


def cursor(given: Cursor | str) -> Cursor:
    """A cursor, or its text read. Raises InvalidRequestError for text that is none."""
    if not isinstance(given, str):
        return Cursor(*given)
    parsed = parse_cursor(given)
    if parsed is None:
        expected = "an ordinal, or an ordinal, `-` and 32 lower-case hex digits"
        raise InvalidRequestError(f"`{given[:100]}` is no cursor; one is {expected}", FieldDetail("after", expected))
    return parsed


def position(given: PositionLike) -> Position:
    """Where to begin reading. Raises InvalidRequestError for what is no place."""
    if isinstance(given, str):
        if given in ("earliest", "latest"):
            return given
        return cursor(given)
    if isinstance(given, Mapping):
        if list(given) != ["consumer"]:
            expected = '{"consumer": name}'
            raise InvalidRequestError(
                f"{dict(given)!r:.100} is no place to begin; a consumer's is {expected}", FieldDetail("after", expected)
            )
        return ConsumerPosition(given["consumer"])
    return given if isinstance(given, ConsumerPosition) else cursor(given)
