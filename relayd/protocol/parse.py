"""From a frame to a request, and from a frame to a response (docs/reference/protocol.md, "Frames" and "Operations")."""

import re
from collections.abc import Callable
from typing import Final, TypeVar, cast, get_args

import msgspec

from relayd.protocol.errors import FieldDetail, InternalError, InvalidRequestError
from relayd.protocol.limits import REQUEST_ID_MAX
from relayd.protocol.messages import (
    Acknowledge,
    AnyRequest,
    AnyResponse,
    Attach,
    AwaitAcknowledged,
    ConsumerPosition,
    ForgetConsumer,
    Hello,
    Record,
)
from relayd.protocol.names import is_identity
from relayd.protocol.tokens import readable_id
from relayd.protocol.value import decode_value

_decode_request: Final = msgspec.msgpack.Decoder(AnyRequest).decode
_decode_response: Final = msgspec.msgpack.Decoder(AnyResponse).decode
_decode_fields: Final = msgspec.msgpack.Decoder(dict[str, msgspec.Raw]).decode
_encode: Final = msgspec.msgpack.Encoder().encode
T = TypeVar("T")

_COMPLAINT: Final = re.compile(r"(?P<what>.*?)(?: - at `(?P<path>.*)`)?", re.DOTALL)
_NAMED_FIELD: Final = re.compile(r"Object (?P<why>contains unknown|missing required) field `(?P<field>[^`]*)")

_ECHO_CHARACTERS_MAX: Final = 200
"""How much of a refused request's own words its refusal says again."""
_EXPECTED: Final = {
    "relay": "1 to 64 of a-z 0-9 . _ -, beginning with a letter or digit",
    "retention": "`checkpointed`, `acknowledged` or {bytes: n}",
    "oversize": "`refuse` or `clamp`",
    "after": "a cursor, `earliest`, `latest` or {consumer: name}",
}
"""Said in place of the decoder's own words, where those are a pattern or say only what was wrong."""


class BadRequestError(Exception):
    """A frame that is no request: `error` answers it under `request` (0 where no id could be read)."""

    def __init__(self, request: int, error: InvalidRequestError) -> None:
        super().__init__(error.message)
        self.request = request
        self.error = error


def parse_request(frame: bytes) -> AnyRequest:
    """Reads one request. Raises BadRequestError, with the id where one can be read."""
    try:
        value = decode_value(frame)
    except InvalidRequestError as error:
        raise BadRequestError(readable_id(frame), error) from None
    try:
        request = _decode_without_nils(_decode_request, frame)
        _check_identities(request)
    except msgspec.ValidationError as error:
        raise BadRequestError(_id_of(value), _refusal(str(error), value)) from None
    except InvalidRequestError as error:
        raise BadRequestError(_id_of(value), error) from None
    return request


def parse_response(frame: bytes) -> AnyResponse:
    """Reads one response. Raises InternalError where it is none, which only a faulty daemon sends."""
    try:
        return _decode_without_nils(_decode_response, frame)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InternalError(f"the daemon sent a frame that is no response of this protocol: {error}") from None


def _decode_without_nils(decode: Callable[[bytes], T], frame: bytes) -> T:
    """Decodes a message in which nil means absent, for every field; all other bytes are read as they came."""
    try:
        return decode(frame)
    except msgspec.ValidationError:
        try:
            fields = _decode_fields(frame)
        except msgspec.DecodeError:
            fields = {}
        present = {name: content for name, content in fields.items() if bytes(content) != b"\xc0"}
        if len(present) == len(fields):
            raise
        return decode(_encode(present))


def _check_identities(request: AnyRequest) -> None:
    match request:
        case Record(producer=name):
            _check_identity("producer", name)
        case Acknowledge(consumer=name) | AwaitAcknowledged(consumer=name) | ForgetConsumer(consumer=name):
            _check_identity("consumer", name)
        case Attach(after=ConsumerPosition(consumer=name)):
            _check_identity("after.consumer", name)
        case Hello():
            for field in ("client", "asker", "author", "worker"):
                _check_identity(field, getattr(request, field))
        case _:
            pass


def _check_identity(field: str, name: str | None) -> None:
    if name is not None and not is_identity(name):
        expected = "1 to 128 printable characters, not blank"
        raise InvalidRequestError(f"`{field}` is {name!r}; {expected} make an identity", FieldDetail(field, expected))


def _refusal(complaint: str, value: object) -> InvalidRequestError:
    """The decoder's complaint as an error that names the field and what belongs there."""
    found = _COMPLAINT.fullmatch(complaint)
    what, path = (found["what"], found["path"]) if found else (complaint, None)
    place = (path or "$").removeprefix("$").lstrip(".")[:_ECHO_CHARACTERS_MAX]
    what = what[:_ECHO_CHARACTERS_MAX]
    named = _NAMED_FIELD.match(what)
    if named:
        field = f"{place}.{named['field']}".lstrip(".")
        expected = "no such field" if named["why"] == "contains unknown" else "this field"
    else:
        field = place or "frame"
        expected = _EXPECTED.get(field) or what.removeprefix("Expected ").partition(", got ")[0]
    operation = _text_of(value, "op")
    if field == "op":
        message = (
            f"there is no operation `{operation}`" if operation is not None else "a request names its operation in `op`"
        )
        expected = "one of " + ", ".join(sorted(_OPERATIONS))
    else:
        message = f"`{operation}` cannot be read: {what}" + (f" at `{place}`" if place else "")
    return InvalidRequestError(
        f"{message}; docs/reference/protocol.md lists the operations", FieldDetail(field, expected)
    )


_OPERATIONS: Final = frozenset(str(request.__struct_config__.tag) for request in get_args(AnyRequest))


def _id_of(value: object) -> int:
    if isinstance(value, dict):
        found = cast("dict[str, object]", value).get("id")
        if type(found) is int and 1 <= found <= REQUEST_ID_MAX:
            return found
    return 0


def _text_of(value: object, key: str) -> str | None:
    if isinstance(value, dict):
        found = cast("dict[str, object]", value).get(key)
        if isinstance(found, str):
            return found[:64]
    return None
