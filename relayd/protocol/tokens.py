"""MessagePack's tokens, for what a decoder does not tell: keys that come twice, and the id of a frame it refuses."""
# ruff: noqa: PLR2004 - the first bytes of MessagePack's tokens are their own names

import re
from typing import Final

from relayd.protocol.limits import CONTAINERS_MAX, REQUEST_ID_MAX

# Content bytes by first byte: nil and booleans, floats, integers, extensions of a fixed size (with their type).
_FIXED_BYTES: Final = (
    dict.fromkeys((0xC0, 0xC2, 0xC3), 0)
    | dict(zip(range(0xCA, 0xD4), (4, 8, 1, 2, 4, 8, 1, 2, 4, 8), strict=True))
    | dict(zip(range(0xD4, 0xD9), (2, 3, 5, 9, 17), strict=True))
)
# Bytes of the length of what says its length: bin, ext, str, array, map.
_LENGTH_BYTES: Final = {
    0xC4: 1, 0xC5: 2, 0xC6: 4, 0xC7: 1, 0xC8: 2, 0xC9: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4, 0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4,
}  # fmt: skip
_EXT: Final = range(0xC7, 0xCA)
_ID_KEYS: Final = (b"\xa2id", b"\xd9\x02id", b"\xda\x00\x02id", b"\xdb\x00\x00\x00\x02id")
_UNSIGNED: Final = range(0xCC, 0xD0)
_SIGNED: Final = range(0xD0, 0xD4)

TOKENS_MAX: Final = 10_000
"""How far into a refused frame its id or a key is looked for: the search is no work to be given to a daemon."""

# Scalars and short strings and binaries in any encoding, as many as follow each other: passed over together, in C.
_SHORT: Final = range(1, 0x20)
_PASSED_OVER: Final = re.compile(
    b"(?:"
    + b"|".join(
        (
            rb"[\x00-\x7f\xc0\xc2\xc3\xe0-\xff\xa0]+",
            rb"[\xcc\xd0].",
            rb"[\xcd\xd1].{2}",
            rb"[\xca\xce\xd2].{4}",
            rb"[\xcb\xcf\xd3].{8}",
            *(b"%c.{%d}" % (0xA0 + size, size) for size in _SHORT),
            rb"(?:[\xc4\xd9]|[\xc5\xda]\x00|[\xc6\xdb]\x00\x00\x00)"
            rb"(?:\x00|" + b"|".join(b"%c.{%d}" % (size, size) for size in _SHORT) + b")",
        )
    )
    + b")*+",
    re.DOTALL,
)

# Where a token's content starts, its bytes, how many members a container says it has (a map's keys count), whether it
# is a map. A plain tuple: a frame has many.
_Token = tuple[int, int, int, bool]


_CONTAINERS: Final = bytes((*range(0x80, 0xA0), 0xDC, 0xDD, 0xDE, 0xDF))


def holds_too_many_containers(encoded: bytes) -> bool:
    """Whether `encoded` says it has more maps and arrays than a frame may; told without decoding, and in little time.

    False where it is no MessagePack: that is the decoder's to say.
    """
    if len(encoded) - len(encoded.translate(None, _CONTAINERS)) <= CONTAINERS_MAX:
        # No more bytes than that could begin one. Nearly every frame ends here.
        return False
    count, offset, end = 0, 0, len(encoded)
    try:
        while count <= CONTAINERS_MAX:
            passed_over = _PASSED_OVER.match(encoded, offset)
            offset = passed_over.end() if passed_over else offset
            if offset >= end:
                return False
            first = encoded[offset]
            start, size, _, _ = _token(encoded, offset)
            offset = start + size
            count += first in _CONTAINERS
    except (IndexError, KeyError):
        return False
    return True


def count_keys(encoded: bytes) -> int:
    """How many keys all maps of `encoded`, one whole value, say they have together; equal ones count each time."""
    count, offset, end = 0, 0, len(encoded)
    while True:
        passed_over = _PASSED_OVER.match(encoded, offset)
        offset = passed_over.end() if passed_over else offset
        if offset == end:
            return count
        start, size, members, is_map = _token(encoded, offset)
        offset = start + size
        if is_map:
            count += members // 2


def repeated_key(encoded: bytes) -> bytes | None:
    """A key that comes twice in one map of `encoded`, one whole value; None where the search did not come to it."""
    # One level of the stack: members still to come, and the keys so far (None in an array).
    stack: list[tuple[int, set[bytes] | None]] = []
    offset = 0
    for _ in range(TOKENS_MAX):
        remaining, keys = stack.pop() if stack else (1, None)
        start, size, members, is_map = _token(encoded, offset)
        offset = start + size
        if keys is not None and remaining % 2 == 0:
            key = encoded[start:offset]
            if key in keys:
                return key
            keys.add(key)
        if remaining > 1:
            stack.append((remaining - 1, keys))
        if members:
            stack.append((members, set() if is_map else None))
        if not stack:
            break
    return None


def readable_id(frame: bytes) -> int:
    """The id of a frame that is refused for what it holds: the first `id` of its map, 0 where none can be read."""
    try:
        offset, _, members, is_map = _token(frame, 0)
        if not is_map:
            return 0
        # Tokens still to come before the next member of the frame's map, and whether that is the value of `id`.
        pending, is_id = 0, False
        for _ in range(TOKENS_MAX):
            if not pending:
                if not members:
                    return 0
                if is_id:
                    return _read_id(frame, offset)
                is_id = members % 2 == 0 and frame.startswith(_ID_KEYS, offset)
                members, pending = members - 1, 1
            start, size, below, _ = _token(frame, offset)
            pending += below - 1
            offset = start + size
    except (IndexError, KeyError):
        pass
    return 0


def _read_id(frame: bytes, offset: int) -> int:
    """The integer at `offset`, where it can be an id; else 0."""
    first = frame[offset]
    start, size, _, _ = _token(frame, offset)
    content = frame[start : start + size]
    if first <= 0x7F:
        found = first
    elif (first in _UNSIGNED or first in _SIGNED) and len(content) == size:
        found = int.from_bytes(content, signed=first in _SIGNED)
    else:
        found = 0
    return found if 1 <= found <= REQUEST_ID_MAX else 0


def _token(encoded: bytes, offset: int) -> _Token:
    """The token at `offset`. Raises IndexError past the end, KeyError for the byte that begins nothing (0xc1).

    Lengths are as the bytes say, whether or not that much follows.
    """
    first = encoded[offset]
    offset += 1
    if first <= 0x7F or first >= 0xE0:
        return offset, 0, 0, False
    if first <= 0x8F:
        return offset, 0, 2 * (first & 0x0F), True
    if first <= 0x9F:
        return offset, 0, first & 0x0F, False
    if first <= 0xBF:
        return offset, first & 0x1F, 0, False
    if first in _FIXED_BYTES:
        return offset, _FIXED_BYTES[first], 0, False
    length_bytes = _LENGTH_BYTES[first]
    length = int.from_bytes(encoded[offset : offset + length_bytes])
    offset += length_bytes
    if first in (0xDC, 0xDD):
        return offset, 0, length, False
    if first in (0xDE, 0xDF):
        return offset, 0, 2 * length, True
    return offset, length + (first in _EXT), 0, False
