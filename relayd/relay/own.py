"""Events of relayd's own kinds, encoded."""

from typing import Final

import msgspec

from relayd.protocol.errors import SizeDetail, TooLargeError
from relayd.protocol.event import NIL, encode_body
from relayd.protocol.kinds import KIND_OF, EventData
from relayd.protocol.limits import EVENT_BODY_BYTES_MAX

_encode: Final = msgspec.msgpack.Encoder().encode


def own_body(now_ms: int, data: EventData, command_id: str | None = None) -> bytes:
    """The body of an event with `data`, recorded at `now_ms`, milliseconds since 1970."""
    encoded = msgspec.Raw(_encode(data)) if data.__struct_fields__ else NIL
    return encode_body(now_ms, KIND_OF[type(data)], encoded, command_id)


def check_size(body: bytes) -> None:
    """Raises TooLargeError where an event would be over its bound: what a client gave with it is too much."""
    if len(body) > EVENT_BODY_BYTES_MAX:
        text = f"the event would have {len(body)} bytes; one may have {EVENT_BODY_BYTES_MAX}: send less with it"
        raise TooLargeError(text, SizeDetail(EVENT_BODY_BYTES_MAX, len(body)))


def raw(value: object) -> msgspec.Raw:
    """`value` as the bytes of one MessagePack value."""
    return msgspec.Raw(_encode(value))
