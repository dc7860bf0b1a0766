"""MessagePack as bytes: where values begin and end. For frames that are to be broken, and for those that are broken."""

from collections.abc import Iterator
from typing import NamedTuple

SCALARS = {0xC0: 0, 0xC2: 0, 0xC3: 0, 0xCA: 4, 0xCB: 8} | dict(zip(range(0xCC, 0xD4), (1, 2, 4, 8) * 2, strict=True))
SIZED = {
    0xC4: ("bin", 1), 0xC5: ("bin", 2), 0xC6: ("bin", 4), 0xC7: ("ext", 1), 0xC8: ("ext", 2), 0xC9: ("ext", 4),
    0xD9: ("str", 1), 0xDA: ("str", 2), 0xDB: ("str", 4), 0xDC: ("array", 2), 0xDD: ("array", 4), 0xDE: ("map", 2),
    0xDF: ("map", 4),
}  # fmt: skip
INTEGERS = range(0xCC, 0xD4)
ID_MAX = 2**32 - 1


VALUES_MAX = 10_000
"""How many values into a refused frame its id is certainly looked for; behind that it may be, or not."""


class BrokenError(Exception):
    """Here is no value that MessagePack has, or its head is cut."""


class Head(NamedTuple):
    """What stands before a value's content; `size`: content bytes, or how many values an array or a map claims."""

    kind: str
    content: int
    size: int

    @property
    def members(self) -> int:
        """How many values come behind it that are its own."""
        return self.size * 2 if self.kind == "map" else self.size if self.kind == "array" else 0

    @property
    def end(self) -> int:
        """Where its own bytes end, its members' not counted."""
        return self.content if self.kind in ("array", "map") else self.content + self.size


def head(data: bytes, at: int) -> Head:
    """The head of the value at `at`. Raises BrokenError."""
    if at >= len(data):
        raise BrokenError
    first = data[at]
    if first < 0x80 or first >= 0xE0:
        return Head("int", at + 1, 0)
    if first < 0xC0:
        kind, size = ("map", first - 0x80) if first < 0x90 else ("array", first - 0x90)
        return Head(kind, at + 1, size) if first < 0xA0 else Head("str", at + 1, first - 0xA0)
    if first in SCALARS:
        return Head("int" if first in INTEGERS else "scalar", at + 1, SCALARS[first])
    if 0xD4 <= first <= 0xD8:
        return Head("ext", at + 1, 1 + (1 << first - 0xD4))
    if first not in SIZED:
        raise BrokenError
    kind, length = SIZED[first]
    if len(data) < at + 1 + length:
        raise BrokenError
    return Head(kind, at + 1 + length, int.from_bytes(data[at + 1 : at + 1 + length]) + (kind == "ext"))


def skip(data: bytes, at: int) -> int:
    """The end of the value at `at`, whatever is in it. Raises BrokenError."""
    return _pass(data, at)[0]


def _pass(data: bytes, at: int) -> tuple[int, int]:
    """The end of the value at `at`, and how many values that was."""
    left, count = 1, 0
    while left:
        found = head(data, at)
        at, left, count = found.end, left - 1 + found.members, count + 1
    return at, count


def heads(data: bytes) -> list[tuple[int, Head]]:
    """Every value of one whole value, in order of their bytes: where it begins, and its head."""
    found, at, left = [], 0, 1
    while left:
        one = head(data, at)
        found.append((at, one))
        at, left = one.end, left - 1 + one.members
    return found


def members(data: bytes, at: int) -> Iterator[tuple[int, int]]:
    """The values in the array or map at `at`, keys too: where each begins and ends. Raises BrokenError."""
    container = head(data, at)
    at = container.content
    for _ in range(container.members):
        end = skip(data, at)
        yield at, end
        at = end


def readable_id(frame: bytes) -> tuple[int, bool]:
    """The id of a frame that is refused: its first `id`, read from the left; 0 where none can be read.

    Also whether it stands so far into the frame that it may be left unread.
    """
    try:
        if head(frame, 0).kind != "map":
            return 0, False
        is_key, is_id, at, passed = True, False, head(frame, 0).content, 0
        for _ in range(head(frame, 0).members):
            if is_id:
                return _integer(frame, at), passed > VALUES_MAX
            found = head(frame, at)
            is_id = is_key and found.kind == "str" and frame[found.content : found.end] == b"id"
            at, more = _pass(frame, at)
            is_key, passed = not is_key, passed + more
    except BrokenError:
        pass
    return 0, False


def _integer(frame: bytes, at: int) -> int:
    found = head(frame, at)
    if found.kind != "int" or found.end > len(frame):
        return 0
    value = int.from_bytes(frame[found.content : found.end], signed=frame[at] >= 0xD0) if found.size else frame[at]
    return value if 1 <= value <= ID_MAX and frame[at] < 0xE0 else 0


def data_of_events(frame: bytes) -> list[bytes]:
    """The data of each event of a `record` that can be read, as the bytes it was sent in; nil where there is none."""
    at = 0
    inside = list(members(frame, 0))
    for (key, key_end), (value, _) in zip(inside[::2], inside[1::2], strict=True):
        if frame[head(frame, key).content : key_end] == b"events":
            at = value
    if not at or frame[at] == 0xC0:
        return []
    found = []
    for event, _ in members(frame, at):
        parts = list(members(frame, event))
        found.append(frame[slice(*parts[1])] if len(parts) > 1 else b"\xc0")
    return found
