"""Frames: a stream of bytes, in whatever pieces it comes, is cut into the same frames."""

import struct

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relayd.protocol.errors import InvalidRequestError, TooLargeError
from relayd.protocol.frame import FrameBuffer, encode_frame
from relayd.protocol.messages import NewEvent, Record, Relays

BRISK = settings(max_examples=80, derandomize=True, deadline=None)
LIMIT = 8 * 1024 * 1024


def framed(content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + content


def fed(pieces):
    frames = FrameBuffer()
    found = [frame for piece in pieces for frame in frames.feed(piece)]
    return found, len(frames)


CONTENTS = [b"\x80", b"x", b"a" * 255, b"b" * 256, b"\x00\x00\x00\x01", b"c" * 70_000]


def test_a_stream_fed_whole_is_cut_into_its_frames():
    assert fed([b"".join(map(framed, CONTENTS))]) == (CONTENTS, 0)


def test_a_stream_fed_byte_by_byte_is_cut_into_its_frames():
    stream = b"".join(map(framed, CONTENTS))
    assert fed([stream[at : at + 1] for at in range(len(stream))]) == (CONTENTS, 0)


@given(st.data())
@BRISK
def test_a_stream_fed_in_any_pieces_is_cut_into_its_frames(data):
    contents = data.draw(st.lists(st.binary(min_size=1, max_size=40), max_size=8))
    stream = b"".join(map(framed, contents))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    wrap = data.draw(st.sampled_from([bytes, bytearray, memoryview]))
    assert fed(map(wrap, pieces)) == (contents, 0)


@given(st.lists(st.binary(min_size=1, max_size=9), max_size=4), st.binary(min_size=1, max_size=30), st.data())
@BRISK
def test_what_is_left_of_a_frame_that_is_not_complete_is_kept(contents, last, data):
    cut = data.draw(st.integers(0, len(last) + 3))
    stream = b"".join(map(framed, contents)) + framed(last)[:cut]
    assert fed([stream]) == (contents, cut)


def test_a_frame_of_exactly_the_limit_is_taken():
    content = bytes(LIMIT)
    found, left = fed([framed(content) + b"\x00"])
    assert (len(found), found[0] == content, left) == (1, True, 1)


def test_length_0_is_invalid_request():
    with pytest.raises(InvalidRequestError) as refusal:
        fed([bytes(4)])
    assert refusal.value.detail.field == "length"


OVER = {
    "8 MiB + 1": struct.pack(">I", LIMIT + 1),
    "2**31": struct.pack(">I", 2**31),
    "2**32 - 1": struct.pack(">I", 2**32 - 1),
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "HTTP POST": b"POST /relays HTTP/1.1\r\n\r\n",
    "TLS": bytes.fromhex("16030100f1010000ed0303"),
    "a length in little-endian": struct.pack("<I", 12) + b"\x82\xa2op\xa5leave",
}


@pytest.mark.parametrize("begin", OVER.values(), ids=OVER.keys())
def test_a_length_over_the_limit_is_too_large_from_four_bytes_alone(begin):
    frames = FrameBuffer()
    assert list(frames.feed(begin[:3])) == []
    with pytest.raises(TooLargeError) as refusal:
        list(frames.feed(begin[3:4]))
    said = int.from_bytes(begin[:4], "big")
    assert (refusal.value.detail.limit_bytes, refusal.value.detail.size_bytes) == (LIMIT, said)


@pytest.mark.parametrize("length", [0, LIMIT + 1])
def test_frames_before_a_bad_length_are_yielded_and_none_after_it(length):
    frames = FrameBuffer()
    feeding = frames.feed(framed(b"good") + struct.pack(">I", length) + framed(b"never"))
    assert next(feeding) == b"good"
    with pytest.raises((InvalidRequestError, TooLargeError)):
        next(feeding)
    with pytest.raises((InvalidRequestError, TooLargeError)):
        list(frames.feed(framed(b"never")))


def test_a_message_is_framed_with_its_length_in_big_endian():
    assert bytes(encode_frame(Relays(7))) == b"\x00\x00\x00\x0f\x82\xa2op\xa6relays\xa2id\x07"


def test_a_message_that_no_frame_carries_is_too_large_before_it_is_sent():
    record = Record(1, "r", [NewEvent("x", msgspec.Raw(msgspec.msgpack.encode(bytes(LIMIT))))])
    with pytest.raises(TooLargeError) as refusal:
        encode_frame(record)
    assert refusal.value.detail.limit_bytes == LIMIT < refusal.value.detail.size_bytes
