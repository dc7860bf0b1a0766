"""Event sizes: 2 MiB and not a byte more, and what clamping makes of a larger one."""

import re

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.strict_msgpack import read

from relayd.protocol.cursor import Cursor
from relayd.protocol.errors import TooLargeError
from relayd.protocol.event import decode_body
from relayd.protocol.messages import NewEvent, Record
from relayd.relay.clamp import clamp
from relayd.relay.decide import decide
from relayd.relay.fold import fold, new_state
from relayd.relay.state import ProducerMark

pack = msgspec.msgpack.encode
BRISK = settings(max_examples=60, derandomize=True, deadline=None)
STORE = bytes(range(16))
LIMIT = 2 * 1024 * 1024
LEAST = 4096
MARKER = re.compile(r"… \[(\d+) bytes cut\]\Z")
# An array of four (time 5, kind `x`, a bin32, no more): 1 + 1 + 2 + 5 bytes before the binary.
AROUND = 9


def record(data: object, *, oversize: str = "refuse", producer=None, sequence=None, command_id=None) -> Record:
    raw = data if isinstance(data, msgspec.Raw) else msgspec.Raw(pack(data))
    return Record(1, "r", [NewEvent("x", raw, command_id)], producer, sequence, oversize)


def body_of(request: Record) -> bytes:
    (body,) = decide(new_state(STORE), request, 5).bodies
    return body


@pytest.mark.parametrize("oversize", ["refuse", "clamp"])
def test_a_body_of_exactly_2_mib_is_recorded_as_it_is(oversize):
    body = body_of(record(bytes(LIMIT - AROUND), oversize=oversize))
    assert len(body) == LIMIT
    assert read(body) == [5, "x", bytes(LIMIT - AROUND)]


def test_a_body_of_2_mib_and_a_byte_is_too_large():
    with pytest.raises(TooLargeError) as refusal:
        body_of(record(bytes(LIMIT - AROUND + 1)))
    assert (refusal.value.detail.limit_bytes, refusal.value.detail.size_bytes) == (LIMIT, LIMIT + 1)


def test_command_id_and_producer_count():
    around = AROUND + len(pack("command-1")) + len(pack(["p", 7]))
    kept = {"command_id": "command-1", "producer": "p", "sequence": 7}
    assert len(body_of(record(bytes(LIMIT - around), **kept))) == LIMIT
    with pytest.raises(TooLargeError):
        body_of(record(bytes(LIMIT - around + 1), **kept))


def test_one_event_too_large_refuses_the_whole_request():
    request = record(1)
    request.events.append(NewEvent("x", msgspec.Raw(pack(bytes(LIMIT)))))
    with pytest.raises(TooLargeError):
        decide(new_state(STORE), request, 5)


def clamped(data: object, **more) -> list:
    body = body_of(record(data, oversize="clamp", **more))
    assert len(body) <= LIMIT
    return read(body)


def check_cut(before: str | bytes, after: str | bytes) -> int:
    """`after` is the beginning of `before` and a marker that says how many bytes went; gives its bytes before that."""
    was = before.encode() if isinstance(before, str) else before
    now = after.encode() if isinstance(after, str) else after
    found = MARKER.search(now.decode("utf-8", "replace"))
    assert found is not None
    kept = len(now) - len(found[0].encode())
    assert now[:kept] == was[:kept]
    assert kept + int(found[1]) == len(was)
    assert len(now) < len(was)
    assert kept >= LEAST
    return kept


def test_a_binary_over_the_bound_is_cut_to_fill_it():
    binary = bytes(range(256)) * 12_000
    body = body_of(record(binary, oversize="clamp"))
    assert len(body) == LIMIT
    check_cut(binary, read(body)[2])


def test_a_text_of_ascii_is_cut_to_fill_the_bound():
    body = body_of(record({"stream": "stdout", "text": "x" * 3_000_000}, oversize="clamp"))
    assert LIMIT - 8 < len(body) <= LIMIT
    after = read(body)[2]
    assert after["stream"] == "stdout"
    check_cut("x" * 3_000_000, after["text"])


@pytest.mark.parametrize("character", ["é", "漢", "🙂", "e\u0301"])
@pytest.mark.parametrize("shift", range(4))
def test_a_text_is_cut_between_characters(character, shift):
    text = "x" * shift + character * (3_000_000 // len(character.encode()))
    check_cut(text, clamped(text)[2])


def test_the_longest_are_cut_to_one_length_and_the_others_are_left():
    data = {
        "a": "a" * 1_500_000,
        "b": b"b" * 1_400_000,
        "c": "c" * 100_000,
        "d": ["d" * 5000, 7, None, {"e": "é" * 1000}],
    }
    after = clamped(data)[2]
    assert check_cut(data["a"], after["a"]) == check_cut(data["b"], after["b"])
    assert (after["c"], after["d"]) == (data["c"], data["d"])
    assert list(after) == list(data)


def test_what_is_not_cut_keeps_its_meaning_to_the_bit():
    data = {"f": 0.1, "n": -5, "big": 2**64 - 1, "t": True, "nil": None, "m": {}, "l": [], "long": "x" * LIMIT}
    after = clamped(data)[2]
    check_cut(data["long"], after.pop("long"))
    del data["long"]
    assert after == data


def test_many_strings_are_cut_to_the_least_length_and_none_below():
    data = ["x" * 6000 for _ in range(480)]
    after = clamped(data)[2]
    kept = {check_cut(one, other) for one, other in zip(data, after, strict=True)}
    assert len(kept) == 1


def test_a_string_just_over_the_least_length_is_not_made_longer_by_its_marker():
    data = ["y" * (LEAST + 10), "x" * 3_000_000]
    after = clamped(data)[2]
    assert after[0] == data[0]
    check_cut(data[1], after[1])


def test_where_all_at_the_least_length_is_still_too_much_relay_clamped_stands_in_its_place():
    data = ["x" * 6000 for _ in range(600)]
    size = len(body_size(data))
    assert clamped(data) == [5, "relay.clamped", {"kind": "x", "bytes": size}]


def body_size(data: object) -> bytes:
    return pack([5, "x", data])


NO_ROOM = {
    "numbers": list(range(2**20)),
    "short strings": ["x" * 100] * 30_000,
    "strings of 4 KiB": ["x" * LEAST] * 600,
    "a long key": {"k" * 3_000_000: 1},
    "small maps": [{}] * 3_000_000,
}


@pytest.mark.parametrize("data", NO_ROOM.values(), ids=NO_ROOM.keys())
def test_what_has_nothing_to_cut_becomes_relay_clamped(data):
    assert clamped(data) == [5, "relay.clamped", {"kind": "x", "bytes": len(body_size(data))}]


def test_a_clamped_event_and_relay_clamped_keep_command_and_producer():
    kept = {"producer": "p", "sequence": 7, "command_id": "command-1"}
    assert clamped("x" * 3_000_000, **kept)[3:] == ["command-1", ["p", 7]]
    body = body_of(record(NO_ROOM["numbers"], oversize="clamp", **kept))
    assert read(body)[1:2] + read(body)[3:] == ["relay.clamped", "command-1", ["p", 7]]
    state = new_state(STORE)
    fold(state, Cursor(1, STORE), decode_body(body))
    assert state.producers == {"p": ProducerMark(7, Cursor(1, STORE))}


def test_events_that_fit_are_left_as_their_bytes_beside_one_that_is_clamped():
    odd = msgspec.Raw(b"\x82\xd9\x01f\xca\x3f\xc0\x00\x00\xa1n\xcd\x00\x01")
    request = Record(1, "r", [NewEvent("x", odd), NewEvent("x", msgspec.Raw(pack("x" * 3_000_000)))], oversize="clamp")
    first, second = decide(new_state(STORE), request, 5).bodies
    assert first == b"\x93\x05\xa1x" + bytes(odd)
    check_cut("x" * 3_000_000, read(second)[2])


TEXTS = st.builds(
    lambda character, count: character * count,
    st.sampled_from(["x", "é", "漢", "🙂"]),
    st.integers(0, 9000),
)
DATA = st.recursive(
    st.one_of(st.integers(-5, 300), st.none(), TEXTS, TEXTS.map(str.encode)),
    lambda below: st.one_of(st.lists(below, max_size=4), st.dictionaries(st.sampled_from("abcd"), below, max_size=4)),
    max_leaves=8,
)


def check_clamped(before: object, after: object, lengths: list[int], whole: list[int]) -> None:
    """Same shape; every string and binary whole or cut."""
    assert type(before) is type(after)
    if isinstance(before, list):
        assert len(before) == len(after)
        for one, other in zip(before, after, strict=True):
            check_clamped(one, other, lengths, whole)
    elif isinstance(before, dict):
        assert list(before) == list(after)
        for key in before:
            check_clamped(before[key], after[key], lengths, whole)
    elif before != after:
        lengths.append(check_cut(before, after))
    elif isinstance(before, str | bytes):
        whole.append(len(before.encode() if isinstance(before, str) else before))


@given(DATA, st.integers(0, 40_000))
@BRISK
def test_clamping_any_data_to_any_room_keeps_its_shape_and_cuts_only_the_longest(data, room):
    encoded = pack(data)
    after = clamp(encoded, room)
    if after is None:
        assert len(encoded) > room
        return
    assert len(after) <= room
    lengths: list[int] = []
    whole: list[int] = []
    check_clamped(data, read(after), lengths, whole)
    if lengths:
        # A marker has at most 21 bytes here, and a character 3 more than the length that fell inside it.
        assert max(lengths) - min(lengths) <= 3
        assert max(whole, default=0) <= max(lengths) + 21
    if len(encoded) <= room:
        assert after == encoded
