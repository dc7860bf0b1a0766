"""Cutting an oversize event to the bound (docs/reference/protocol.md, "Bounds", `oversize`). Pure.

The longest strings and binaries are cut to one common length, as large as fits and never below 4 KiB; each cut one ends
with a marker that says how many of its bytes went, which comes on top.
"""

from typing import Final

import msgspec

from relayd.protocol.limits import CLAMP_BYTES_MIN
from relayd.protocol.value import Value

_encode: Final = msgspec.msgpack.Encoder().encode
_CONTINUATION: Final = 0x80
"""The two high bits of a byte of UTF-8 that begins no character."""


def clamp(data: bytes, room: int) -> bytes | None:
    """`data`, one MessagePack value, cut to at most `room` bytes; None where no cutting can do it."""
    value: Value = msgspec.msgpack.decode(data)
    long: list[str | bytes] = []
    _collect(value, long)
    # The search for the length looks at what can be cut, and not at the whole value again and again.
    fixed = len(_encode(value)) - sum(len(_encode(text)) for text in long)

    def fits(length: int) -> bool:
        return fixed + sum(len(_encode(_cut(text, length))) for text in long) <= room

    if not fits(CLAMP_BYTES_MIN):
        return None
    good, bad = CLAMP_BYTES_MIN, len(data) + 1
    while bad - good > 1:
        length = (good + bad) // 2
        if fits(length):
            good = length
        else:
            bad = length
    return _encode(_cut_all(value, good))


def _collect(value: Value, long: list[str | bytes]) -> None:
    """Adds every string and binary of `value` that could be cut; keys are never cut, since they could become equal."""
    match value:
        case str():
            if _is_longer(value, CLAMP_BYTES_MIN):
                long.append(value)
        case bytes():
            if len(value) > CLAMP_BYTES_MIN:
                long.append(value)
        case list():
            for member in value:
                _collect(member, long)
        case dict():
            for member in value.values():
                _collect(member, long)
        case _:
            pass


def _cut_all(value: Value, length: int) -> Value:
    """`value` with every string and binary cut to `length` bytes and a marker."""
    match value:
        case str() | bytes():
            return _cut(value, length)
        case list():
            return [_cut_all(member, length) for member in value]
        case dict():
            return {key: _cut_all(member, length) for key, member in value.items()}
        case _:
            return value


def _cut(text: str | bytes, length: int) -> str | bytes:
    """The first `length` bytes of `text` and a marker; `text` itself where that would not be shorter.

    A cut inside a character keeps the whole character.
    """
    if isinstance(text, bytes):
        shorter = text[:length] + _marker(len(text) - length)
        return shorter if len(shorter) < len(text) else text
    if not _is_longer(text, length):
        return text
    encoded = text.encode()
    kept = length
    while kept < len(encoded) and encoded[kept] & 0xC0 == _CONTINUATION:
        kept += 1
    marker = _marker(len(encoded) - kept)
    return (encoded[:kept] + marker).decode() if kept + len(marker) < len(encoded) else text


def _is_longer(text: str, length: int) -> bool:
    """Whether `text` has more than `length` bytes; most are told from their characters alone."""
    return len(text) > length or (len(text) * 4 > length and len(text.encode()) > length)


def _marker(gone: int) -> bytes:
    return f"… [{gone} bytes cut]".encode()
