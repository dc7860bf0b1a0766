"""Frames made to hurt are refused, cheaply, and nothing but InvalidRequestError comes out."""

import struct
import tracemalloc

import pytest

from relayd.protocol.errors import InternalError, InvalidRequestError
from relayd.protocol.parse import BadRequestError, parse_request, parse_response
from relayd.protocol.value import decode_value

MOST = b"\xff\xff\xff\xff"

CLAIMS = {
    "array32": b"\xdd" + MOST,
    "map32": b"\xdf" + MOST,
    "str32": b"\xdb" + MOST,
    "bin32": b"\xc6" + MOST,
    "ext32": b"\xc9" + MOST + b"\x05",
    "array16": b"\xdc\xff\xff",
    "map16": b"\xde\xff\xff",
    "array32 with a member": b"\xdd" + MOST + b"\xc0",
    "map32 with a member": b"\xdf" + MOST + b"\xa1a\xc0",
    "str32 with a character": b"\xdb" + MOST + b"x",
    "array32 in array32 in array32": b"\xdd" + MOST + b"\xdd" + MOST + b"\xdd" + MOST,
    "a key that is a str32": b"\x81\xdb" + MOST,
}

PLACES = {
    "alone": b"",
    "the value of an unknown field": b"\x83\xa2id\x07\xa2op\xa6record\xa1x",
    "events": b"\x84\xa2id\x07\xa2op\xa6record\xa5relay\xa1a\xa6events",
    "an event": b"\x84\xa2id\x07\xa2op\xa6record\xa5relay\xa1a\xa6events\x91",
    "an event's data": b"\x84\xa2id\x07\xa2op\xa6record\xa5relay\xa1a\xa6events\x91\x92\xa1x",
    "an operation": b"\x82\xa2id\x07\xa2op",
    "a response's records": b"\x83\xa2id\x07\xa2re\xa4page\xa7records",
}


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS.keys())
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES.keys())
def test_a_claim_of_more_than_there_is_costs_no_memory(place, claim):
    frame = place + claim
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRequestError):
            decode_value(frame)
        with pytest.raises(BadRequestError) as refusal:
            parse_request(frame)
        with pytest.raises(InternalError):
            parse_response(frame)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert refusal.value.request == (7 if place else 0)
    assert peak < 64 * 1024


def test_an_array_that_ends_too_soon_costs_no_more_than_the_members_it_has():
    frame = b"\xdd" + MOST + b"\x80" * 10_000
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRequestError):
            decode_value(frame)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 * 1024 * 1024


@pytest.mark.parametrize("begin", [b"\x91", b"\x81\xa1k", b"\xdc\x00\x01"])
def test_an_unknown_field_nested_100000_deep_is_refused_under_the_id_before_it(begin):
    frame = b"\x83\xa2id\x07\xa2op\xa6relays\xa1x" + begin * 100_000 + b"\xc0"
    with pytest.raises(BadRequestError) as refusal:
        parse_request(frame)
    assert refusal.value.request == 7


@pytest.mark.parametrize("begin", [b"\x91", b"\x81\xa1k"])
def test_a_response_nested_100000_deep_is_an_internal_error_of_the_daemon(begin):
    with pytest.raises(InternalError):
        parse_response(b"\x83\xa2id\x07\xa2re\xa4done\xa1x" + begin * 100_000 + b"\xc0")


def test_a_refusal_says_again_little_of_what_was_sent():
    long = "x" * 100_000
    sized = b"\xdb" + struct.pack(">I", len(long)) + long.encode()
    begin = b"\x82\xa2id\x07\xa2op"
    frames = [
        begin + sized,
        b"\x83" + begin[1:] + b"\xa6relays" + sized + b"\x01",
        b"\x83" + begin[1:] + b"\xa4open\xa5relay" + sized,
        b"\x84" + begin[1:] + b"\xa6record\xa5relay\xa1a\xa8oversize" + sized,
        b"\x84" + begin[1:] + b"\xa6record\xa5relay\xa1a\xa8producer" + sized,
        b"\x84" + begin[1:] + b"\xa6attach\xa5relay\xa1a\xa5after" + sized,
        b"\x84" + begin[1:] + b"\xa6relays" + sized + b"\x01" + sized + b"\x02",
    ]
    for frame in frames:
        with pytest.raises(BadRequestError) as refusal:
            parse_request(frame)
        error = refusal.value.error
        assert refusal.value.request == 7
        assert len(error.message) + len(error.detail.field) + len(error.detail.expected) < 1500
