"""What a command may say, and when two say the same: the tables of the reference again, on plain values.

Nothing here is relayd's own: `normal` is the oracle of what `submit` refuses by its form alone.
"""

import re

import msgspec

BYTES_MAX = 1024 * 1024
CANCELLABLE = ("task", "configure", "side_task", "begin_checkpoint")
_ID = re.compile(r"[A-Za-z0-9_-]{8,128}", re.ASCII)
_NEEDED = object()
_FIELDS = {
    "task": {"payload": None, "on_loss": "interrupt"},
    "configure": {"key": _NEEDED, "value": _NEEDED},
    "side_task": {"payload": None},
    "cancel": {"target": _NEEDED},
    "remove_queued": {"command_id": _NEEDED},
    "clear_queue": {},
    "begin_checkpoint": {},
    "complete_checkpoint": {"barrier": _NEEDED},
    "release_checkpoint": {"barrier": _NEEDED},
    "advance_floor": {"cursor": _NEEDED},
    "close": {"barrier": _NEEDED, "cut": _NEEDED},
    "notice": {"text": _NEEDED},
}


class RefusedError(Exception):
    """The answer is an error with this code."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


def is_id(value: object) -> bool:
    return isinstance(value, str) and _ID.fullmatch(value) is not None


def is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_cursor(value: object) -> bool:
    if not isinstance(value, list | tuple) or len(value) != 2:
        return False
    ordinal, digest = value
    return type(ordinal) is int and 0 <= ordinal < 2**64 and isinstance(digest, bytes) and len(digest) == 16


def _fits(kind: str, name: str, value: object) -> bool:
    match name:
        case "target" | "barrier" | "command_id":
            return is_id(value)
        case "text" | "key":
            return is_text(value)
        case "value":
            return not isinstance(value, str) or is_text(value)
        case "cursor" | "cut":
            return _is_cursor(value)
        case "on_loss":
            return value in ("interrupt", "requeue")
        case _:
            return (kind, name) in (("task", "payload"), ("side_task", "payload"))


def normal(command: object) -> dict:
    """The command with nulls and defaults left out. Raises RefusedError where it is none."""
    if len(msgspec.msgpack.encode(command)) > BYTES_MAX:
        raise RefusedError("too_large")
    if not isinstance(command, dict):
        raise RefusedError("invalid_request")
    said = {name: value for name, value in command.items() if value is not None}
    kind = said.pop("type", None)
    fields = _FIELDS.get(kind) if isinstance(kind, str) else None
    if fields is None or said.keys() - fields.keys():
        raise RefusedError("invalid_request")
    for name, default in fields.items():
        if name not in said:
            if default is _NEEDED:
                raise RefusedError("invalid_request")
        elif not _fits(kind, name, said[name]):
            raise RefusedError("invalid_request")
    return {"type": kind, **{name: value for name, value in said.items() if not same(value, fields[name])}}


def same(one: object, other: object) -> bool:
    """Whether two values are one in MessagePack, however each was written: 1 is no 1.0 and no True."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if type(one) is not type(other):
        return False
    return one == other or (one != one and other != other)  # noqa: PLR0124 - NaN is the one value unlike itself
