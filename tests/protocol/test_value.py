"""Which MessagePack a frame may hold, against a reader that is not relayd's."""

import math
import struct
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.strict_msgpack import UnacceptableError, read

from relayd.protocol.errors import InvalidRequestError
from relayd.protocol.value import decode_value

BRISK = settings(max_examples=200, derandomize=True, deadline=None)

NAN = struct.pack(">d", math.nan)

GOOD = {
    "an empty map": b"\x80",
    "a map with str8 for a short key": b"\x81\xd9\x01a\x01",
    "keys in four encodings": b"\x84\xa1a\x01\xd9\x01b\x02\xda\x00\x01c\x03\xdb\x00\x00\x00\x01d\x04",
    "1 as u64": b"\xcf" + bytes(7) + b"\x01",
    "1 as i64": b"\xd3" + bytes(7) + b"\x01",
    "-1 as i8, i16, i32": b"\x93\xd0\xff\xd1\xff\xff\xd2\xff\xff\xff\xff",
    "float32": b"\xca\x3f\xc0\x00\x00",
    "map16 and map32 of one": b"\x92\xde\x00\x01\xa1a\x01\xdf\x00\x00\x00\x01\xa1a\x01",
    "array16 and array32 of one": b"\x92\xdc\x00\x01\xc0\xdd\x00\x00\x00\x01\xc0",
    "bin8, bin16, bin32": b"\x93\xc4\x01a\xc5\x00\x01a\xc6\x00\x00\x00\x01a",
    "the largest and the smallest integer": b"\x92\xcf" + b"\xff" * 8 + b"\xd3\x80" + bytes(7),
    "equal keys of different maps": b"\x92\x81\xa1a\x01\x82\xa1a\x81\xa1a\x01\xa1b\x01",
    "a key that is also a value": b"\x82\xa1a\xa1a\xa1b\xa1a",
    "keys of one content but for their case": b"\x82\xa1a\x01\xa1A\x02",
    "an odd encoding beside unique keys": b"\x82\xa1a\xcc\x01\xa1b\xcc\x01",
    "empty str, bin, array, map": b"\x94\xa0\xc4\x00\x90\x80",
    "an empty key": b"\x81\xa0\x01",
    "a NUL in a string": b"\xa3a\x00b",
    "all six kinds of scalars": b"\x96\xc0\xc3\x05\xcb" + struct.pack(">d", 0.5) + b"\xa1x\xc4\x01x",
}

BAD = {
    "no byte at all": b"",
    "a byte after the map": b"\x80\xc0",
    "a map after the map": b"\x80\x80",
    "0xc1": b"\xc1",
    "0xc1 inside": b"\x92\x01\xc1",
    "a key twice": b"\x82\xa1a\x01\xa1a\x01",
    "a key twice, once as str8": b"\x82\xa1a\x01\xd9\x01a\x02",
    "a key twice, as str16 and str32": b"\x82\xda\x00\x01a\x01\xdb\x00\x00\x00\x01a\x02",
    "an empty key twice": b"\x82\xa0\x01\xa0\x02",
    "a key twice in level 2": b"\x81\xa1o\x82\xa1a\x01\xa1a\x01",
    "a key twice in level 3, in an array": b"\x81\xa1o\x92\x01\x82\xa1a\xcc\x01\xa1a\xcc\x01",
    "a key twice after a container in between": b"\x83\xa1a\x92\x01\x81\xa1a\x02\xa1b\x01\xa1a\x03",
    "a key twice, its values containers": b"\x82\xa1a\x80\xa1a\x90",
    "a key twice beside odd encodings": b"\x83\xa1b\xca\x3f\xc0\x00\x00\xa1a\xcd\x00\x01\xa1a\x01",
    "a key twice in a map16": b"\xde\x00\x02\xa1a\x01\xa1a\x01",
    "a key that is an integer": b"\x81\x01\x02",
    "a key that is a bin": b"\x81\xc4\x01a\x02",
    "a str and a bin of one content as keys": b"\x82\xa1a\x01\xc4\x01a\x02",
    "a key that is nil": b"\x81\xc0\x02",
    "a key that is true": b"\x81\xc3\x02",
    "a key that is a float": b"\x81\xca\x00\x00\x00\x00\x02",
    "a key that is an array": b"\x81\x90\x02",
    "a key that is a map": b"\x81\x80\x02",
    "a key that is an extension": b"\x81\xd4\x05x\x02",
    "a key that is a timestamp": b"\x81\xd6\xff\x00\x00\x00\x01\x02",
    "a key that is no string, deep inside": b"\x91\x91\x81\xa1a\x91\x81\x01\x01",
    "fixext 1": b"\xd4\x05x",
    "fixext 2": b"\xd5\x05xx",
    "fixext 4": b"\xd6\x05xxxx",
    "fixext 8": b"\xd7\x05" + b"x" * 8,
    "fixext 16": b"\xd8\x05" + b"x" * 16,
    "ext 8": b"\xc7\x03\x05xxx",
    "ext 16": b"\xc8\x00\x03\x05xxx",
    "ext 32": b"\xc9\x00\x00\x00\x03\x05xxx",
    "an ext that is empty": b"\xc7\x00\x05",
    "an ext inside an array": b"\x92\x01\xd4\x05x",
    "an ext inside a map": b"\x82\xa1a\x01\xa1b\xd4\x05x",
    "timestamp 32": b"\xd6\xff\x00\x00\x00\x01",
    "timestamp 64": b"\xd7\xff\x00\x00\x00\x00\x00\x00\x00\x01",
    "timestamp 96": b"\xc7\x0c\xff" + bytes(12),
    "a timestamp with too many nanoseconds": b"\xd7\xff" + b"\xff" * 8,
    "a timestamp inside": b"\x81\xa2at\xd6\xff\x00\x00\x00\x01",
    "a str that is no UTF-8": b"\xa1\xff",
    "a str with a surrogate": b"\xa3\xed\xa0\x80",
    "a str with an overlong NUL": b"\xa2\xc0\x80",
    "a str cut inside a character": b"\xa2\xe2\x82",
    "a key that is no UTF-8": b"\x81\xa1\xff\x01",
    "an array cut short": b"\x92\x01",
    "a map cut short": b"\x81\xa1a",
    "a str cut short": b"\xa5abcd",
    "an integer cut short": b"\xcd\x01",
    "a length cut short": b"\xdb\x00\x00",
}


def same(one, other) -> bool:
    """Equality that takes NaN for itself and True for no 1."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return struct.pack(">d", one) == struct.pack(">d", other)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    return one == other


@pytest.mark.parametrize("encoded", GOOD.values(), ids=GOOD.keys())
def test_a_value_that_has_one_meaning_is_taken(encoded):
    assert same(decode_value(encoded), read(encoded))


@pytest.mark.parametrize("encoded", BAD.values(), ids=BAD.keys())
def test_a_value_that_has_no_json_form_or_two_meanings_is_refused(encoded):
    with pytest.raises(UnacceptableError):
        read(encoded)
    with pytest.raises(InvalidRequestError) as refusal:
        decode_value(encoded)
    assert refusal.value.detail.field == "frame"
    assert refusal.value.detail.expected


def test_a_refusal_names_the_key_that_came_twice():
    with pytest.raises(InvalidRequestError, match="`text` twice"):
        decode_value(b"\x82\xa4text\x01\xd9\x04text\x02")


MANY = {
    "fixints": b"\x05" * 20_000,
    "integers of 8 bits": b"\xcc\x05" * 20_000,
    "integers of 16 bits": b"\xd1\x00\x81" * 20_000,
    "floats of 32 bits": b"\xca\x80\xa1a\x81" * 20_000,
    "floats of 64 bits": b"\xcb\x3f\x80\xa1a\x81\xa1a\x81" * 20_000,
    "short strings": b"\xa3\x7fa\x05" * 20_000,
    "strings of 31 bytes": b"\xbf" + b"\x0a" * 31 + (b"\xbf" + b"a" * 31) * 19_999,
    "empty strings as str8": b"\xd9\x00" * 20_000,
    "strings as str16": b"\xda\x00\x02a\x01" * 20_000,
    "binaries as bin32": b"\xc6\x00\x00\x00\x02\x81\x82" * 20_000,
    "binaries of 40 bytes": (b"\xc4\x28" + b"\x81" * 40) * 20_000,
    "nils and booleans": b"\xc0\xc2" * 10_000,
}


@pytest.mark.parametrize("many", MANY.values(), ids=MANY.keys())
def test_a_key_that_comes_twice_is_found_behind_20000_values_of_any_encoding(many):
    array = b"\xdc\x4e\x20" + many
    once = b"\x84\xa1a\xcc\x01\xa1b" + array + b"\xa1c" + array + b"\xa1d\x81\xa1a\x01"
    assert len(decode_value(once)["c"]) == 20_000
    with pytest.raises(InvalidRequestError) as refusal:
        decode_value(once[:-4] + b"\x82\xa1a\x01\xa1a\x01")
    assert refusal.value.detail.expected == "each key once"


@pytest.mark.parametrize("special", [NAN, struct.pack(">d", math.inf), struct.pack(">d", -math.inf)])
def test_nan_and_infinities_are_data(special):
    assert struct.pack(">d", decode_value(b"\xcb" + special)) == special


def test_a_nan_of_four_bytes_does_not_hide_a_key_that_comes_twice():
    assert math.isnan(decode_value(b"\x81\xa1a\xca\x7f\xc0\x00\x00")["a"])
    with pytest.raises(InvalidRequestError):
        decode_value(b"\x82\xa1a\xca\x7f\xc0\x00\x00\xa1a\x01")


def nested(levels: int, kind: str) -> bytes:
    """A value with `levels` levels of containers and nil in the innermost."""
    return {"arrays": b"\x91", "maps": b"\x81\xa1k", "in turn": b"\x81\xa1k\x91"}[kind] * (
        levels // 2 if kind == "in turn" else levels
    ) + b"\xc0"


@pytest.mark.parametrize("kind", ["arrays", "maps", "in turn"])
def test_64_levels_are_taken_and_66_are_not(kind):
    assert same(decode_value(nested(64, kind)), read(nested(64, kind)))
    with pytest.raises(InvalidRequestError) as refusal:
        decode_value(nested(66, kind))
    assert refusal.value.detail.expected == "values nested at most 64 deep"


@pytest.mark.parametrize("kind", ["arrays", "maps"])
@pytest.mark.parametrize("levels", [65, 500, 990, 1010, 100_000])
def test_more_than_64_levels_are_refused_whatever_their_number(kind, levels):
    with pytest.raises(InvalidRequestError) as refusal:
        decode_value(nested(levels, kind))
    assert refusal.value.detail.expected == "values nested at most 64 deep"


def test_level_65_is_refused_where_it_is_empty_and_stands_beside_others():
    deep = b"\x91" * 63 + b"\x93\x01\x80\x02"
    with pytest.raises(InvalidRequestError):
        decode_value(deep)
    assert same(decode_value(deep[1:]), read(deep[1:]))


def _length(size: int, small: int | None, room: int, wide: list[tuple[int, int]]) -> st.SearchStrategy[bytes]:
    """Every way to say `size`: in the first byte where it fits, and in 1, 2 or 4 bytes after it."""
    ways = [bytes([first]) + size.to_bytes(width, "big") for first, width in wide if size < 256**width]
    if small is not None and size < room:
        ways.insert(0, bytes([small + size]))
    return st.sampled_from(ways)


TEXTS = st.text(max_size=4)


@st.composite
def strings(draw, text=TEXTS):
    content = draw(text).encode()
    return draw(_length(len(content), 0xA0, 32, [(0xD9, 1), (0xDA, 2), (0xDB, 4)])) + content


@st.composite
def binaries(draw):
    content = draw(st.binary(max_size=4))
    return draw(_length(len(content), None, 0, [(0xC4, 1), (0xC5, 2), (0xC6, 4)])) + content


@st.composite
def integers(draw):
    form, low, high = draw(
        st.sampled_from(
            [
                ("B", 0, 0xFF),
                ("H", 0, 0xFFFF),
                ("I", 0, 2**32 - 1),
                ("Q", 0, 2**64 - 1),
                ("b", -(2**7), 2**7 - 1),
                ("h", -(2**15), 2**15 - 1),
                ("i", -(2**31), 2**31 - 1),
                ("q", -(2**63), 2**63 - 1),
            ]
        )
    )
    return bytes([0xCC + "BHIQbhiq".index(form)]) + struct.pack(">" + form, draw(st.integers(low, high)))


OTHERS = st.sampled_from([b"\xd4\x05x", b"\xd6\xff\x00\x00\x00\x01", b"\xc1", b"\xa1\xff"])
SCALARS = st.one_of(
    st.sampled_from([b"\xc0", b"\xc2", b"\xc3", b"\x00", b"\x7f", b"\xe0", b"\xff", b"\xca\x7f\xc0\x00\x00"]),
    integers(),
    strings(),
    binaries(),
    st.binary(min_size=4, max_size=4).map(lambda four: b"\xca" + four),
    st.floats().map(lambda number: b"\xcb" + struct.pack(">d", number)),
)
KEYS = strings(st.sampled_from(["", "a", "b", "é"]))


@st.composite
def containers(draw, below, keys):
    members = draw(st.lists(below, max_size=4))
    size = len(members)
    if draw(st.booleans()):
        return draw(_length(size, 0x90, 16, [(0xDC, 2), (0xDD, 4)])) + b"".join(members)
    begin = draw(_length(size, 0x80, 16, [(0xDE, 2), (0xDF, 4)]))
    return begin + b"".join(draw(keys) + member for member in members)


SOUND = st.recursive(SCALARS, lambda below: containers(below, KEYS), max_leaves=12)
DOUBTFUL = st.recursive(
    st.one_of(SCALARS, SCALARS, SCALARS, OTHERS),
    lambda below: containers(below, st.one_of(KEYS, KEYS, KEYS, KEYS, SCALARS)),
    max_leaves=12,
)


def agree(encoded: bytes) -> None:
    """Relayd takes what the other reader takes, as the same value, and refuses the rest."""
    try:
        expected = read(encoded)
    except UnacceptableError:
        with pytest.raises(InvalidRequestError):
            decode_value(encoded)
    else:
        assert same(decode_value(encoded), expected)


@given(SOUND)
@BRISK
def test_maps_with_few_keys_in_odd_encodings_are_judged_as_by_the_other_reader(encoded):
    agree(encoded)


@given(DOUBTFUL)
@BRISK
def test_extensions_odd_keys_and_bad_bytes_are_judged_as_by_the_other_reader(encoded):
    agree(encoded)


@given(SOUND, st.data())
@BRISK
def test_a_value_with_one_byte_changed_is_judged_as_by_the_other_reader(encoded, data):
    at = data.draw(st.integers(0, len(encoded) - 1))
    agree(encoded[:at] + data.draw(st.binary(min_size=1, max_size=1)) + encoded[at + 1 :])


@given(st.binary(max_size=24))
@BRISK
def test_any_bytes_are_judged_as_by_the_other_reader(encoded):
    agree(encoded)


CONTAINERS = 524_288
MANY = {"empty maps": b"\x80", "empty arrays": b"\x90", "maps in odd clothes": b"\xde\x00\x00"}


@pytest.mark.parametrize("one", MANY.values(), ids=MANY)
def test_as_many_containers_as_a_frame_may_hold_are_taken(one):
    members = CONTAINERS - 1
    assert len(decode_value(b"\xdd" + struct.pack(">I", members) + one * members)) == members


@pytest.mark.parametrize("one", MANY.values(), ids=MANY)
@pytest.mark.parametrize("members", [CONTAINERS, 2_000_000])
def test_more_containers_are_refused_before_they_cost_anything(one, members):
    encoded = b"\xdd" + struct.pack(">I", members) + one * members
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRequestError, match="more than 524288 maps and arrays") as refused:
            decode_value(encoded)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert refused.value.detail.expected == "at most 524288 maps and arrays"
    assert peak < 2 * len(encoded) + 65_536


def test_bytes_that_look_like_containers_inside_of_texts_are_no_containers():
    text = "\u0480" * 600_000  # each encoded as d2 80
    assert decode_value(b"\xdb" + struct.pack(">I", 1_200_000) + text.encode()) == text
    binary = b"\x80" * 1_000_000
    assert decode_value(b"\xc6" + struct.pack(">I", len(binary)) + binary) == binary


def test_a_claim_of_many_containers_that_do_not_follow_is_no_messagepack():
    with pytest.raises(InvalidRequestError, match="do not decode"):
        decode_value(b"\xdd\x00\x10\x00\x00" + b"\x80" * (CONTAINERS - 1) + b"\xc1" * 100)
