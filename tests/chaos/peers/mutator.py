"""Frames made wrong on purpose, at every level: fields, values, bytes, lengths, and the order of whole frames.

Everything is drawn from one Random, so that a seed is a stream. A mutation begins from an allowed request.
"""

import struct
from collections.abc import Callable
from random import Random

import msgspec
from chaos.peers.packing import BrokenError, heads
from chaos.peers.valid import OPERATIONS, Known, make_request

MOST = b"\xff\xff\xff\xff"
FRAME_BYTES_MAX = 8 << 20
HTTP = b"GET /relays HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n"
TLS = bytes.fromhex("1603010200010001fc0303") + bytes(range(240))

WRONG_VALUES = (
    None, True, False, 0, -1, 5, 2**32, 2**63 + 1, 2**64 - 1, -(2**63), 0.0, 1.0, float("nan"), float("-inf"), "", " ",
    "\x00", "\u200b", "a", "A", "../x", "x" * 129, "é" * 128, b"", b"a", bytes(15), bytes(16), bytes(17), [], [[]],
    [None], [1, 2], {}, {"consumer": "\n"}, {"consumer": 5}, {"bytes": 0}, {"bytes": "1"}, {"": None}, ["x"], [["x"]],
    [["relay.x", 1]], [["x", 1, "short"]], [["x", 1, None, 2]], [["X"]], [[]], [[None]], [{"kind": "x"}],
)  # fmt: skip
WRONG_CURSORS = (
    [], [None], [None, None], [-1, None], [1.0, None], ["1", None], [True, None], [2**64 - 1, None], [0, bytes(16)],
    [0, b"\x01" * 16], [1, bytes(15)], [1, bytes(17)], [1, "x" * 16], [1, None, None], [[1, None]], {"ordinal": 1},
    "1", "", "Earliest", 1, None, True, [2**63, bytes(16)], {"consumer": "nobody"}, {"consumer": None}, {},
)  # fmt: skip
CLAIMS = {
    "array": (b"\xdd" + MOST, b"\xdc\xff\xff", b"\x9f"),
    "map": (b"\xdf" + MOST, b"\xde\xff\xff", b"\x8f"),
    "str": (b"\xdb" + MOST, b"\xda\xff\xff", b"\xd9\xff", b"\xbf"),
    "bin": (b"\xc6" + MOST, b"\xc5\xff\xff", b"\xc4\xff"),
}
"""Heads that claim more than there is."""
ODD = (
    b"\xc1", b"\xc7\x00\x05", b"\xc7\x03\x05abc", b"\xd4\x09\x00", b"\xd6\xff\x00\x00\x00\x00", b"\xd7\xff" + bytes(8),
    b"\xc7\x0c\xff" + bytes(12), b"\xc8\x00\x01\x2ax", b"\xc9" + MOST + b"\x05", b"\xa2\xff\xfe", b"\xa3\xed\xa0\x80",
    b"\xa2\xc0\x80", b"\xa4\xf4\x90\x80\x80", b"\xcb\x7f\xf8" + bytes(6), b"\xcb\x7f\xf0" + bytes(6),
    b"\xca\x7f\xa0\x00\x01", b"\xcf" + MOST * 2, b"\xd3\x80" + bytes(7), b"\xd3" + bytes(7) + b"\x05",
    b"\xcd\x00\x05", b"\xd9\x01a", b"\xda\x00\x01a", b"\xdb\x00\x00\x00\x01a", b"\xdc\x00\x00", b"\xde\x00\x00",
    b"\x81\x05\x06", b"\x82\xa1a\x01\xa1a\x02", b"\x82\xa1a\x01\xd9\x01a\x02", b"\x81\xc4\x01a\x01", b"\x81\x90\x01",
)  # fmt: skip
"""Whole values, or what stands in their place: extensions, broken text, odd and large numbers, keys that may not be."""


class Mutator:
    """Draws frames. `counts` says how often each mutation was made."""

    def __init__(self, random: Random, known: Known) -> None:
        self.random = random
        self.known = known
        self.counts: dict[str, int] = {}
        self._earlier: list[int] = []
        self._repeated: set[int] = set()

    def content(self) -> bytes:
        """What stands in one frame: as it was, or changed once to three times."""
        random = self.random
        request = make_request(random, self.known)
        if request["op"] == "cancel_request" and self._earlier:
            request["request"] = random.choice(self._earlier)
        if random.random() < 0.3:
            self._count("none")
            return self._keep(request)
        if random.random() < 0.45:
            self._one(FIELD_MUTATIONS)(self, request)
        content = self._keep(request)
        for _ in range(random.choice((0, 1, 1, 1, 2))):
            content = self._one(BYTE_MUTATIONS)(self, content) or b"\xc0"
        return content

    def frame(self) -> bytes:
        """One frame with its right length."""
        content = self.content()
        return struct.pack(">I", len(content)) + content

    def ending(self) -> bytes:
        """Bytes with which framing is lost, or that never become a frame; nothing for the most part."""
        random = self.random
        if random.random() < 0.6:
            return b""
        name, make = random.choice(list(ENDINGS.items()))
        self._count(name)
        return make(self)

    def pieces(self, stream: bytes) -> list[bytes]:
        """The stream as it comes to the daemon: in one piece, or cut anywhere."""
        random = self.random
        if random.random() < 0.5:
            return [stream]
        cuts = sorted({random.randrange(1, len(stream)) for _ in range(random.randrange(1, 12))})
        return [stream[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]

    def _keep(self, request: dict) -> bytes:
        if type(request.get("id")) is int and request["id"] not in self._repeated:
            self._earlier = [*self._earlier[-7:], request["id"]]
        return msgspec.msgpack.encode(request)

    def _one(self, mutations: dict[str, Callable]) -> Callable:
        name = self.random.choice(list(mutations))
        self._count(name)
        return mutations[name]

    def _count(self, name: str) -> None:
        self.counts[name] = self.counts.get(name, 0) + 1

    # Fields

    def wrong_type(self, request: dict) -> None:
        name = self.random.choice([*request][1:])
        request[name] = self.random.choice(WRONG_VALUES)

    def wrong_cursor(self, request: dict) -> None:
        name = self.random.choice([name for name in request if name in ("after", "through")] or ["after"])
        request[name] = self.random.choice(WRONG_CURSORS)

    def unknown_op(self, request: dict) -> None:
        request["op"] = self.random.choice(
            ("submit", "Record", "", "record ", "x" * 1000, 5, None, b"record", ["record"])
        )

    def other_op(self, request: dict) -> None:
        request["op"] = self.random.choice(OPERATIONS)

    def unknown_field(self, request: dict) -> None:
        request[self.random.choice(("all", "", "Relay", "x" * 300, "re"))] = self.random.choice(WRONG_VALUES)

    def missing_field(self, request: dict) -> None:
        del request[self.random.choice(list(request))]

    def wrong_id(self, request: dict) -> None:
        request["id"] = self.random.choice((0, -1, 2**32, 2**64 - 1, 1.0, "5", None, True, [5], -(2**63)))

    def repeated_id(self, request: dict) -> None:
        """An id that was used before, once: it may be in flight."""
        if self._earlier:
            request["id"] = self._earlier.pop()
            self._repeated.add(request["id"])

    def turned_about(self, request: dict) -> None:
        """The same fields in another order."""
        fields = list(request.items())
        self.random.shuffle(fields)
        request.clear()
        request.update(fields)

    # Bytes

    def odd_value(self, content: bytes) -> bytes:
        """One value of the frame becomes another."""
        begin, end = self._value(content)
        return content[:begin] + self.random.choice(ODD) + content[end:]

    def claimed_size(self, content: bytes) -> bytes:
        """One value claims more than follows."""
        begin, end = self._value(content)
        claim = self.random.choice(CLAIMS[self.random.choice(list(CLAIMS))])
        rest = content[end:] if self.random.random() < 0.5 else b""
        return content[:begin] + claim + rest

    def type_byte(self, content: bytes) -> bytes:
        """The first byte of one value is any other."""
        begin, _ = self._value(content)
        return content[:begin] + self.random.randbytes(1) + content[begin + 1 :]

    def nested(self, content: bytes) -> bytes:
        """One value is in arrays or maps, few to a hundred thousand."""
        begin, end = self._value(content)
        depth = self.random.choice(
            (1, 50, 61, 62, 63, 64, 65, 200, 1200, 100_000 if self.random.random() < 0.1 else 99)
        )
        around = self.random.choice((b"\x91", b"\x81\xa1k", b"\xdc\x00\x01"))
        return content[:begin] + around * depth + content[begin:end] + content[end:]

    def key_twice(self, content: bytes) -> bytes:
        """A pair of the frame's map comes again; its head says so, or does not."""
        if not content or not 0x81 <= content[0] <= 0x8E:
            return content
        try:
            found = heads(content)
        except BrokenError:
            return content
        keys = [
            at for at, one in found if one.kind == "str" and content[one.content : one.end] in (b"id", b"relay", b"op")
        ]
        pair = content[keys[-1] if keys else 1 :][: self.random.choice((4, 8, 12))] + b"\xc0"
        said = content[0] + (self.random.random() < 0.8)
        return bytes([said]) + content[1:] + pair

    def trailing(self, content: bytes) -> bytes:
        return content + self.random.choice((b"\xc0", b"\x00", b"\x80", b"\xc1", self.random.randbytes(7)))

    def cut(self, content: bytes) -> bytes:
        return content[: self.random.randrange(max(1, len(content)))]

    def flipped(self, content: bytes) -> bytes:
        """Up to four bytes are others."""
        changed = bytearray(content)
        for _ in range(self.random.randrange(1, 5)):
            changed[self.random.randrange(len(changed))] = self.random.randrange(256)
        return bytes(changed)

    def spliced(self, content: bytes) -> bytes:
        """The beginning of one frame and the end of another."""
        other = msgspec.msgpack.encode(make_request(self.random, self.known))
        return content[: self.random.randrange(len(content) + 1)] + other[self.random.randrange(len(other) + 1) :]

    def dropped(self, content: bytes) -> bytes:
        begin, end = self._value(content)
        return content[:begin] + content[end:]

    def doubled(self, content: bytes) -> bytes:
        begin, end = self._value(content)
        return content[:end] + content[begin:end] + content[end:]

    def no_map(self, content: bytes) -> bytes:
        return self.random.choice(
            (b"\xc0", b"\x90", b"\x05", b"\xa5hello", b"\x91" + content, content[1:] or b"\x80", b"\x80")
        )

    def wire_of_another(self, content: bytes) -> bytes:  # noqa: ARG002 - it takes the frame's place
        return self.random.choice((HTTP, TLS, b'{"op": "relays", "id": 5}', bytes(40), b"\xff" * 40))

    def _value(self, content: bytes) -> tuple[int, int]:
        """Where one value of a whole frame is; anywhere in one that is broken already."""
        try:
            found = heads(content)
            at, one = self.random.choice(found)
        except BrokenError:
            at = self.random.randrange(max(1, len(content)))
            return at, min(len(content), at + self.random.randrange(4))
        return at, min(len(content), one.end)

    # Endings

    def length_0(self) -> bytes:
        return bytes(4) + self.frame()

    def over_the_limit(self) -> bytes:
        length = self.random.choice(
            (FRAME_BYTES_MAX + 1, 2**31 - 1, 2**31, 2**32 - 1, 0x01000000, FRAME_BYTES_MAX << 1)
        )
        return struct.pack(">I", length) + self.frame()

    def length_short(self) -> bytes:
        """What is left of the frame is read as the next one's length."""
        content = self.content()
        return struct.pack(">I", max(1, len(content) - self.random.choice((1, 2, 4, 9)))) + content + self.frame()

    def length_long(self) -> bytes:
        """The next frame's beginning is taken for this one's end."""
        content = self.content()
        return (
            struct.pack(">I", len(content) + self.random.choice((1, 2, 4, 9))) + content + self.frame() + self.frame()
        )

    def half_a_frame(self) -> bytes:
        frame = self.frame()
        return frame[: self.random.randrange(len(frame))]

    def foreign(self) -> bytes:
        return self.random.choice((HTTP, TLS, self.random.randbytes(60)))


FIELD_MUTATIONS = {
    "field of a wrong type": Mutator.wrong_type, "cursor of a wrong shape": Mutator.wrong_cursor,
    "unknown operation": Mutator.unknown_op, "another operation's fields": Mutator.other_op,
    "unknown field": Mutator.unknown_field, "missing field": Mutator.missing_field, "wrong id": Mutator.wrong_id,
    "id used before": Mutator.repeated_id, "fields in another order": Mutator.turned_about,
}  # fmt: skip
BYTE_MUTATIONS = {
    "odd value": Mutator.odd_value, "claimed size": Mutator.claimed_size, "type byte": Mutator.type_byte,
    "nesting": Mutator.nested, "key twice": Mutator.key_twice, "bytes behind the map": Mutator.trailing,
    "cut short": Mutator.cut, "bytes flipped": Mutator.flipped, "two frames spliced": Mutator.spliced,
    "value dropped": Mutator.dropped, "value doubled": Mutator.doubled, "no map": Mutator.no_map,
    "another protocol's bytes": Mutator.wire_of_another,
}  # fmt: skip
ENDINGS = {
    "length 0": Mutator.length_0, "length over the limit": Mutator.over_the_limit,
    "length too short": Mutator.length_short, "length too long": Mutator.length_long,
    "half a frame": Mutator.half_a_frame, "HTTP, TLS or noise": Mutator.foreign,
}  # fmt: skip
