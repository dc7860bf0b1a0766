"""What a frame is by protocol.md, decided apart from relayd: a request that is allowed, or none, and under which id.

One table says which fields each operation has and what belongs in them. Nothing here knows a relay's state.
"""

import re
import unicodedata
from collections.abc import Callable
from typing import NamedTuple

from chaos.peers.packing import readable_id
from support.strict_msgpack import UnacceptableError, read

CODES = {
    "invalid_request": False, "hello_required": False, "incompatible_protocol": False, "forbidden": False,
    "not_found": False, "already_exists": False, "invalid_state": False, "conflict": False, "desynchronized": False,
    "too_large": False, "overloaded": True, "storage_full": True, "storage_failed": True, "unavailable": False,
    "relay_removed": False, "shutting_down": True, "timeout": True, "cancelled": True, "internal": True,
}  # fmt: skip
"""errors.md, "Codes": whether sending again can help."""
RESERVED = ("relay.", "command.", "checkpoint.", "surface.", "reply.", "edits.")
SEQUENCE_MAX = 2**63


class Request(NamedTuple):
    """A request that is allowed. Fields that are nil are absent."""

    id: int
    op: str
    fields: dict


class Refused(NamedTuple):
    """A frame that is no request, to be answered `invalid_request` under `id`; `far`: or under 0."""

    id: int
    far: bool = False


def _integer(low: int, high: int) -> Callable[[object], bool]:
    return lambda value: type(value) is int and low <= value <= high


def _text(pattern: str) -> Callable[[object], bool]:
    matches = re.compile(pattern, re.ASCII).fullmatch
    return lambda value: type(value) is str and matches(value) is not None


def _flag(value: object) -> bool:
    return type(value) is bool


def _store(value: object) -> bool:
    return type(value) is bytes and len(value) == 16


def _identity(value: object) -> bool:
    """1 to 128 printable characters, not blank. Of the separators only the plain space is printable."""
    if type(value) is not str or not 1 <= len(value) <= 128 or not value.strip(" "):
        return False
    return all(one == " " or unicodedata.category(one)[0] not in "CZ" for one in value)


def _cursor(value: object) -> bool:
    if type(value) is not list or not 1 <= len(value) <= 2 or not _integer(0, 2**64 - 1)(value[0]):
        return False
    return len(value) == 1 or value[1] is None or _store(value[1])


def _position(value: object) -> bool:
    if type(value) is dict:
        return list(value) == ["consumer"] and _identity(value["consumer"])
    return value in ("earliest", "latest") if type(value) is str else _cursor(value)


def _retention(value: object) -> bool:
    if type(value) is dict:
        return list(value) == ["bytes"] and _integer(1, 2**64 - 1)(value["bytes"])
    return type(value) is str and value in ("checkpointed", "acknowledged")


_kind = _text(r"[a-z][a-z0-9._-]{0,63}")
_command_id = _text(r"[A-Za-z0-9_-]{8,128}")


def _events(value: object) -> bool:
    return type(value) is list and all(map(_event, value))


def _event(value: object) -> bool:
    if type(value) is not list or not 1 <= len(value) <= 3:
        return False
    if not _kind(value[0]) or value[0].startswith(RESERVED):
        return False
    return len(value) < 3 or value[2] is None or _command_id(value[2])


def _versions(value: object) -> bool:
    return type(value) is list and all(type(one) is int for one in value)


def _oversize(value: object) -> bool:
    return type(value) is str and value in ("refuse", "clamp")


_request_id = _integer(1, 2**32 - 1)
_relay = _text(r"[a-z0-9][a-z0-9._-]{0,63}")
_wait = _integer(0, 60_000)

FIELDS: dict[str, dict[str, Callable[[object], bool]]] = {
    "hello": {
        "versions": _versions,
        "client": _identity,
        "asker?": _identity,
        "author?": _identity,
        "worker?": _identity,
    },
    "relays": {},
    "open": {"relay": _relay, "create?": _flag, "retention?": _retention, "max_active?": _integer(1, 10_000)},
    "delete_relay": {"relay": _relay, "store": _store},
    "status": {"relay": _relay},
    "record": {
        "relay": _relay,
        "events?": _events,
        "producer?": _identity,
        "sequence?": _integer(1, SEQUENCE_MAX),
        "oversize?": _oversize,
    },
    "attach": {
        "relay": _relay,
        "after": _position,
        "wait_ms?": _wait,
        "max_bytes?": _integer(1, 4 << 20),
        "status?": _flag,
    },
    "acknowledge": {"relay": _relay, "through": _cursor, "consumer?": _identity},
    "await_acknowledged": {"relay": _relay, "consumer": _identity, "through": _cursor, "wait_ms": _wait},
    "forget_consumer": {"relay": _relay, "consumer": _identity},
    "cancel_request": {"request": _request_id},
    "leave": {},
}
"""Each operation's fields; those that end in `?` may be absent."""
_REQUIRED = {op: {name for name in fields if not name.endswith("?")} for op, fields in FIELDS.items()}
_CHECKS = {op: {name.rstrip("?"): check for name, check in fields.items()} for op, fields in FIELDS.items()}


def judge(frame: bytes) -> Request | Refused:
    """What protocol.md says of one frame's content."""
    try:
        value = read(frame)
    except UnacceptableError:
        return Refused(*readable_id(frame))
    if type(value) is not dict:
        return Refused(0)
    request, op = value.pop("id", None), value.pop("op", None)
    if not _request_id(request):
        return Refused(0)
    fields = {name: content for name, content in value.items() if content is not None}
    if type(op) is not str or op not in FIELDS or not _fits(op, fields):
        return Refused(request)
    return Request(request, op, fields)


def _fits(op: str, fields: dict) -> bool:
    checks = _CHECKS[op]
    if not fields.keys() <= checks.keys() or not _REQUIRED[op] <= fields.keys():
        return False
    return all(checks[name](value) for name, value in fields.items()) and (op != "record" or _record_fits(fields))


def _record_fits(fields: dict) -> bool:
    """A sequence goes with a producer and events, always; nothing at all is no request."""
    events, sequence = fields.get("events") or [], fields.get("sequence")
    if sequence is None:
        return bool(events) != ("producer" in fields)
    return "producer" in fields and bool(events) and sequence + len(events) - 1 <= SEQUENCE_MAX
