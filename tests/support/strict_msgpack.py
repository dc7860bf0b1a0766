"""A reader of MessagePack that is not relayd's own: as strict as the wire, one token after the other, in no hurry."""

import struct

LEVELS = 64


class UnacceptableError(Exception):
    """The bytes are no value that a frame may hold."""


def read(data: bytes) -> object:
    """The one value of `data`. Raises UnacceptableError."""
    value, end = _value(data, 0, 1)
    if end != len(data):
        raise UnacceptableError("bytes after the value")
    return value


def _value(data: bytes, at: int, level: int) -> tuple[object, int]:
    first = _take(data, at, 1)[0]
    at += 1
    if first < 0x80:
        return first, at
    if first >= 0xE0:
        return first - 256, at
    if first in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}[first], at
    numbers = {0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q"}
    numbers |= {0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"}
    if first in numbers:
        size = struct.calcsize(numbers[first])
        return struct.unpack(numbers[first], _take(data, at, size))[0], at + size
    kind, length, at = _header(data, first, at)
    if kind in ("str", "bin"):
        content = bytes(_take(data, at, length))
        return (_text(content) if kind == "str" else content), at + length
    if level > LEVELS:
        raise UnacceptableError("too deep")
    return _array(data, at, length, level) if kind == "array" else _map(data, at, length, level)


def _header(data: bytes, first: int, at: int) -> tuple[str, int, int]:
    if first < 0x90:
        return "map", first - 0x80, at
    if first < 0xA0:
        return "array", first - 0x90, at
    if first < 0xC0:
        return "str", first - 0xA0, at
    sized = {0xC4: ("bin", 1), 0xC5: ("bin", 2), 0xC6: ("bin", 4), 0xD9: ("str", 1), 0xDA: ("str", 2)}
    sized |= {0xDB: ("str", 4), 0xDC: ("array", 2), 0xDD: ("array", 4), 0xDE: ("map", 2), 0xDF: ("map", 4)}
    if first not in sized:
        raise UnacceptableError(f"byte {first:#x} begins nothing that is taken")
    kind, size = sized[first]
    return kind, int.from_bytes(_take(data, at, size), "big"), at + size


def _array(data: bytes, at: int, length: int, level: int) -> tuple[list, int]:
    members = []
    for _ in range(length):
        member, at = _value(data, at, level + 1)
        members.append(member)
    return members, at


def _map(data: bytes, at: int, length: int, level: int) -> tuple[dict, int]:
    fields = {}
    for _ in range(length):
        key, at = _value(data, at, level + 1)
        if not isinstance(key, str):
            raise UnacceptableError("a key that is no string")
        if key in fields:
            raise UnacceptableError("a key twice")
        fields[key], at = _value(data, at, level + 1)
    return fields, at


def _text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise UnacceptableError("no UTF-8") from None


def _take(data: bytes, at: int, size: int) -> bytes:
    if len(data) < at + size:
        raise UnacceptableError("cut short")
    return data[at : at + size]
