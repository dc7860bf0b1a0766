"""Which MessagePack is taken: what has one meaning and a JSON form (docs/reference/protocol.md, "Frames").

The decoder keeps the last of two equal keys in silence, takes keys that are no strings, and extensions. So: encoding
again what was decoded gives the same bytes unless a key came twice or an encoding was odd (rare: only then the bytes
are walked), and the decoded value is walked level by level for key types, extensions and depth.
"""

from collections.abc import Iterable
from itertools import chain
from typing import Final, cast

import msgspec

from relayd.protocol.errors import FieldDetail, InvalidRequestError
from relayd.protocol.limits import NESTING_MAX
from relayd.protocol.tokens import repeated_key

Value = None | bool | int | float | str | bytes | list["Value"] | dict[str, "Value"]

_decode: Final = msgspec.msgpack.Decoder().decode
_encode: Final = msgspec.msgpack.Encoder().encode

_STRINGS: Final = frozenset({str})
_SCALARS: Final = frozenset({type(None), bool, int, float, str, bytes})
_CONTAINERS: Final = frozenset({dict, list})
_TAKEN: Final = _SCALARS | _CONTAINERS

_Map = dict[object, object]
_Array = list[object]


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
        key = repeated_key(encoded)
        if key is not None:
            name = key.decode("utf-8", "backslashreplace")[:100]
            raise _refusal("each key once", f"a map has the key `{name}` twice; each key may come once")
    return value


def check_value(value: object) -> None:
    """Refuses extensions, keys that are no strings, and nesting over the bound, in a decoded value.

    A whole level is looked at in a few steps that run in C, however many containers it has.
    """
    maps: list[_Map] = []
    arrays: list[_Array] = [[value]]
    for _ in range(NESTING_MAX + 1):
        if not _STRINGS.issuperset(map(type, chain.from_iterable(maps))):
            raise _refusal("string keys", "a map has a key that is no string; every key must be one")
        if _SCALARS.issuperset(map(type, _members(maps, arrays))):
            return
        if not _TAKEN.issuperset(map(type, _members(maps, arrays))):
            raise _refusal(
                "nil, booleans, numbers, strings, binaries, arrays, maps",
                "an extension or timestamp has no JSON form and is not taken; send a number, a string or a map",
            )
        containers = [member for member in _members(maps, arrays) if type(member) in _CONTAINERS]
        maps = [cast("_Map", member) for member in containers if type(member) is dict]
        arrays = [cast("_Array", member) for member in containers if type(member) is list]
    expected = f"values nested at most {NESTING_MAX} deep"
    raise _refusal(expected, f"values are nested more than {NESTING_MAX} deep")


def _members(maps: list[_Map], arrays: list[_Array]) -> Iterable[object]:
    """The values of `maps`, and what is in `arrays`."""
    return chain(chain.from_iterable(members.values() for members in maps), chain.from_iterable(arrays))


def _refusal(expected: str, message: str) -> InvalidRequestError:
    return InvalidRequestError(f"not a frame this version takes: {message}", FieldDetail("frame", expected))
