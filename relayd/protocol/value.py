"""Which MessagePack is taken: what has one meaning and a JSON form (docs/reference/protocol.md, "Frames").

The decoder keeps the last of two equal keys in silence, takes keys that are no strings, and extensions. So: encoding
again what was decoded gives the same bytes unless a key came twice or an encoding was odd (rare: only then the bytes
are walked), and the decoded value is walked level by level for key types, extensions and depth.
"""

from collections.abc import Collection, Iterable
from typing import Final, cast

import msgspec

from relayd.protocol.errors import FieldDetail, InvalidRequestError
from relayd.protocol.limits import NESTING_MAX

Value = None | bool | int | float | str | bytes | list["Value"] | dict[str, "Value"]

_decode: Final = msgspec.msgpack.Decoder().decode
_encode: Final = msgspec.msgpack.Encoder().encode

_SCALARS: Final = frozenset({type(None), bool, int, float, str, bytes})
_STRINGS: Final = frozenset({str})
_Container = dict[object, object] | list[object]

# Content bytes by first byte: nil and booleans, floats, integers; then the bytes of the length of str, bin, array, map.
_FIXED_BYTES: Final = dict(zip(range(0xC0, 0xC4), (0, 0, 0, 0), strict=True)) | dict(
    zip(range(0xCA, 0xD4), (4, 8, 1, 2, 4, 8, 1, 2, 4, 8), strict=True)
)
_LENGTH_BYTES: Final = {
    0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4, 0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4,
}  # fmt: skip


def decode_value(encoded: bytes) -> Value:
    """Decodes one whole value, the strict way; a frame's map is level 1.

    Raises InvalidRequestError for bytes that are no MessagePack or go on after the value, a key that came twice or is
    no string, an extension (timestamps too), and nesting over 64.
    """
    try:
        value: Value = _decode(encoded)
        same = _encode(value) == encoded
    except RecursionError:
        raise _refusal(f"values nested at most {NESTING_MAX} deep", "values are nested far too deep") from None
    except (msgspec.DecodeError, ValueError, TypeError, OverflowError) as error:
        raise _refusal("one whole MessagePack value", f"the bytes do not decode as MessagePack: {error}") from None
    check_value(value)
    if not same:
        _refuse_repeated_keys(encoded)
    return value


def check_value(value: object) -> None:
    """Refuses extensions, keys that are no strings, and nesting over the bound, in a decoded value."""
    level = _containers([value])
    depth = 0
    while level:
        depth += 1
        if depth > NESTING_MAX:
            expected = f"values nested at most {NESTING_MAX} deep"
            raise _refusal(expected, f"values are nested more than {NESTING_MAX} deep")
        below: list[_Container] = []
        for container in level:
            if type(container) is dict:
                if not _STRINGS.issuperset(map(type, container)):
                    raise _refusal("string keys", "a map has a key that is no string; every key must be one")
                members: Collection[object] = container.values()
            else:
                members = container
            # One step in C for the usual container, whose members are all scalars.
            if not _SCALARS.issuperset(map(type, members)):
                below += _containers(members)
        level = below


def _containers(members: Iterable[object]) -> list["_Container"]:
    """The maps and arrays among `members`; anything else but a scalar is refused."""
    containers: list[_Container] = []
    for member in members:
        kind = type(member)
        if kind is dict or kind is list:
            containers.append(cast("_Container", member))
        elif kind not in _SCALARS:
            raise _refusal(
                "nil, booleans, numbers, strings, binaries, arrays, maps",
                "an extension or timestamp has no JSON form and is not taken; send a number, a string or a map",
            )
    return containers


def _refuse_repeated_keys(encoded: bytes) -> None:
    """Walks bytes that are known to decode, and refuses a map that holds a key twice."""
    # A frame of the stack: members still to come, and the keys so far (None in an array).
    stack: list[tuple[int, set[bytes] | None]] = []
    offset = 0
    while True:
        remaining, keys = stack.pop() if stack else (1, None)
        start, size, members = _token(encoded, offset)
        if keys is not None and remaining % 2 == 0:
            key = encoded[start : start + size]
            if key in keys:
                name = key.decode("utf-8", "backslashreplace")[:100]
                raise _refusal("each key once", f"a map has the key `{name}` twice; each key may come once")
            keys.add(key)
        offset = start + size
        if remaining > 1:
            stack.append((remaining - 1, keys))
        if members is not None and members[0]:
            stack.append((members[0], set() if members[1] else None))
        if not stack:
            return


def _token(encoded: bytes, offset: int) -> tuple[int, int, tuple[int, bool] | None]:
    """One token: where its content starts, its bytes, and for a container how many members, and whether it is a map.

    A map has twice as many members as keys.
    """
    first = encoded[offset]
    offset += 1
    if first <= 0x7F or first >= 0xE0:
        return offset, 0, None
    if first <= 0x8F:
        return offset, 0, (2 * (first & 0x0F), True)
    if first <= 0x9F:
        return offset, 0, (first & 0x0F, False)
    if first <= 0xBF:
        return offset, first & 0x1F, None
    if first in _FIXED_BYTES:
        return offset, _FIXED_BYTES[first], None
    length_bytes = _LENGTH_BYTES[first]
    length = int.from_bytes(encoded[offset : offset + length_bytes])
    offset += length_bytes
    if first in (0xDC, 0xDD):
        return offset, 0, (length, False)
    if first in (0xDE, 0xDF):
        return offset, 0, (2 * length, True)
    return offset, length, None


def _refusal(expected: str, message: str) -> InvalidRequestError:
    return InvalidRequestError(f"not a frame this version takes: {message}", FieldDetail("frame", expected))
