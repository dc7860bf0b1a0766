"""Which MessagePack is taken: what has one meaning and a JSON form (docs/reference/protocol.md, "Frames").

The decoder keeps the last of two equal keys in silence, takes keys that are no strings, and extensions. So: encoding
again what was decoded gives the same bytes unless a key came twice or an encoding was odd (rare: only then the keys are
counted), and the decoded value is walked level by level for key types, extensions and depth.
"""

from collections.abc import Collection, Iterable
from typing import Final, cast

import msgspec

from relayd.protocol.errors import FieldDetail, InvalidRequestError
from relayd.protocol.limits import CONTAINERS_MAX, NESTING_MAX
from relayd.protocol.tokens import count_keys, holds_too_many_containers, repeated_key

Value = None | bool | int | float | str | bytes | list["Value"] | dict[str, "Value"]

_decode: Final = msgspec.msgpack.Decoder().decode
_encode: Final = msgspec.msgpack.Encoder().encode

_SCALARS: Final = frozenset({type(None), bool, int, float, str, bytes})
_STRINGS: Final = frozenset({str})
_Container = dict[object, object] | list[object]


def decode_value(encoded: bytes) -> Value:
    """Decodes one whole value, the strict way; a frame's map is level 1.

    Raises InvalidRequestError for bytes that are no MessagePack or go on after the value, a key that came twice or is
    no string, an extension (timestamps too), nesting over 64, and more maps and arrays than a frame may hold.
    """
    if len(encoded) > CONTAINERS_MAX and holds_too_many_containers(encoded):
        expected = f"at most {CONTAINERS_MAX} maps and arrays"
        raise _refusal(expected, f"it holds more than {CONTAINERS_MAX} maps and arrays; send fewer at once")
    try:
        value: Value = _decode(encoded)
        same = _encode(value) == encoded
    except RecursionError:
        raise _refusal(f"values nested at most {NESTING_MAX} deep", "values are nested far too deep") from None
    except (msgspec.DecodeError, ValueError, TypeError, OverflowError) as error:
        raise _refusal("one whole MessagePack value", f"the bytes do not decode as MessagePack: {error}") from None
    check_value(value)
    if not same and count_keys(encoded) != _count_held(value):
        key = repeated_key(encoded)
        name = "a key" if key is None else f"the key `{key.decode('utf-8', 'backslashreplace')[:100]}`"
        raise _refusal("each key once", f"a map has {name} twice; each key may come once")
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


def _count_held(value: object) -> int:
    """How many keys the maps of a decoded value have together."""
    count = 0
    level = _containers([value])
    while level:
        count += sum(len(container) for container in level if type(container) is dict)
        members = (container.values() if type(container) is dict else container for container in level)
        level = _containers(member for some in members for member in some if type(member) not in _SCALARS)
    return count


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


def _refusal(expected: str, message: str) -> InvalidRequestError:
    return InvalidRequestError(f"not a frame this version takes: {message}", FieldDetail("frame", expected))
