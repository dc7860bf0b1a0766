"""Cutting an oversize event to the bound (docs/reference/protocol.md, "Bounds", `oversize`). Pure.

The longest strings and binaries are cut to one common length, as large as fits and never below 4 KiB; each cut one ends
with a marker that says how many of its bytes went.
"""

from typing import Final

import msgspec

from relayd.protocol.limits import CLAMP_BYTES_MIN
from relayd.protocol.value import Value

_encode: Final = msgspec.msgpack.Encoder().encode


def clamp(data: bytes, room: int) -> bytes | None:
    """`data`, one MessagePack value, cut to at most `room` bytes; None where no cutting can do it."""
    value: Value = msgspec.msgpack.decode(data)
    if len(_encode(_cut(value, CLAMP_BYTES_MIN))) > room:
        return None
    fits, too_long = CLAMP_BYTES_MIN, len(data)
    while too_long - fits > 1:
        length = (fits + too_long) // 2
        if len(_encode(_cut(value, length))) <= room:
            fits = length
        else:
            too_long = length
    return _encode(_cut(value, fits))


def _cut(value: Value, length: int) -> Value:
    """`value` with every string and binary longer than `length` bytes cut to `length`, marker included."""
    match value:
        case str():
            return _cut_text(value, length)
        case bytes():
            return _cut_bytes(value, length)
        case list():
            return [_cut(member, length) for member in value]
        case dict():
            return {key: _cut(member, length) for key, member in value.items()}
        case _:
            return value


def _marker(gone: int) -> str:
    return f"… [{gone} bytes cut]"


def _cut_text(text: str, length: int) -> str:
    if len(text) * 4 <= length:
        return text
    encoded = text.encode()
    if len(encoded) <= length:
        return text
    kept = _kept(len(encoded), length)
    # A cut inside a character takes the whole character away.
    head = encoded[:kept].decode("utf-8", "ignore")
    return head + _marker(len(encoded) - len(head.encode()))


def _cut_bytes(binary: bytes, length: int) -> bytes:
    if len(binary) <= length:
        return binary
    kept = _kept(len(binary), length)
    return binary[:kept] + _marker(len(binary) - kept).encode()


def _kept(size: int, length: int) -> int:
    """How many bytes stay of `size` so that they and the marker have at most `length`."""
    return length - len(_marker(size).encode())
