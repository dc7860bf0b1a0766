"""The JSON form of events (docs/reference/cli.md, "Events"): every MessagePack value that relayd takes has one.

Binary is `{"$base64": "…"}`; a map that has the key `$base64` or `$map` itself is `{"$map": {…}}`; NaN and infinities
are strings, which alone do not come back.
"""

import binascii
import math
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Final, cast

import msgspec

from relayd.protocol.cursor import Cursor, format_cursor
from relayd.protocol.event import Body

BINARY: Final = "$base64"
MAP: Final = "$map"


class ProducerLine(msgspec.Struct):
    """Who numbered the event, and with which number."""

    name: str
    sequence: int


class EventLine(msgspec.Struct, omit_defaults=True):
    """One event as a line of JSON; what is absent is null. `at_ms` is milliseconds since 1970."""

    ordinal: int
    cursor: str
    at_ms: int
    kind: str
    data: object = None
    command_id: str | None = None
    producer: ProducerLine | None = None


def to_json(value: object) -> object:
    """A decoded MessagePack value as what JSON can hold."""
    match value:
        case bytes():
            return {BINARY: b64encode(value).decode("ascii")}
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case list():
            return [to_json(member) for member in cast("list[object]", value)]
        case dict():
            members = cast("dict[str, object]", value)
            converted = {key: to_json(member) for key, member in members.items()}
            return {MAP: converted} if BINARY in members or MAP in members else converted
        case _:
            return value


def from_json(value: object) -> object:
    """What `to_json` was given. Raises ValueError for a `$base64` that is none."""
    match value:
        case list():
            return [from_json(member) for member in cast("list[object]", value)]
        case dict():
            members = cast("dict[str, object]", value)
            if len(members) == 1:
                match members:
                    case {"$base64": str(text)}:
                        return _binary(text)
                    case {"$map": {}}:
                        return _convert_members(cast("dict[str, object]", members[MAP]))
                    case _:
                        pass
            return _convert_members(members)
        case _:
            return value


def _convert_members(members: Mapping[str, object]) -> dict[str, object]:
    return {key: from_json(member) for key, member in members.items()}


def _binary(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"`{BINARY}` holds no base64: {error}") from None


def line_of_body(cursor: Cursor, body: Body) -> EventLine:
    """The line of a stored body."""
    producer = None if body.producer is None else ProducerLine(*body.producer)
    data = to_json(msgspec.msgpack.decode(body.data))
    return EventLine(
        cursor.ordinal, format_cursor(cursor), body.recorded_at_ms, body.kind, data, body.command_id, producer
    )
