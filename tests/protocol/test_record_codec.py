"""Records: the exact bytes of the vectors, and every bit of them counts."""

import hashlib
import json
import struct
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.strict_msgpack import read

from relayd.protocol.cursor import Cursor
from relayd.protocol.event import (
    RecordError,
    decode_body,
    digest_of,
    encode_body,
    encode_records,
    iter_records,
    record_offsets,
    verify_records,
)

BRISK = settings(max_examples=100, derandomize=True, deadline=None)
VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "records.json").read_text())["records"]
MEBIBYTES_2 = 2 * 1024 * 1024
# The ordinal of the vector whose integer is longer than it has to be, and whose data has a form of its own in JSON.
ODD = 5


def by_hand(ordinal: int, body: bytes) -> bytes:
    digest = hashlib.blake2b(struct.pack("<Q", ordinal) + body, digest_size=16, person=b"relayd.event.v1").digest()
    return struct.pack("<IQ", len(body), ordinal) + digest + body


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: str(vector["ordinal"]))
def test_a_record_is_the_vectors_bytes(vector):
    body = bytes.fromhex(vector["body_hex"])
    records, digest = encode_records(vector["ordinal"], [body])
    assert records.hex() == vector["record_hex"]
    assert digest.hex() == digest_of(vector["ordinal"], body).hex() == vector["digest_hex"]


@pytest.mark.parametrize(
    "vector", [v for v in VECTORS if v["ordinal"] != ODD], ids=lambda vector: str(vector["ordinal"])
)
def test_a_body_is_the_vectors_bytes(vector):
    event = vector["event"]
    data = msgspec.Raw(msgspec.msgpack.encode(event["data"]))
    producer = tuple(event["producer"]) if "producer" in event else None
    body = encode_body(event["recorded_at_ms"], event["kind"], data, event.get("command_id"), producer)
    assert body.hex() == vector["body_hex"]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: str(vector["ordinal"]))
def test_a_vectors_record_is_read_as_its_event(vector):
    (record,) = verify_records(bytes.fromhex(vector["record_hex"]), vector["ordinal"] - 1)
    event = vector["event"]
    assert record.cursor == Cursor(vector["ordinal"], bytes.fromhex(vector["digest_hex"]))
    assert bytes(record.body).hex() == vector["body_hex"]
    body = decode_body(record.body)
    assert (body.recorded_at_ms, body.kind) == (event["recorded_at_ms"], event["kind"])
    assert body.command_id == event.get("command_id")
    assert body.producer == (tuple(event["producer"]) if "producer" in event else None)
    assert read(bytes(body.data)) == (b"\x00\xff" if vector["ordinal"] == ODD else event["data"])


def test_the_odd_vectors_integer_stays_as_it_came():
    (odd,) = [vector for vector in VECTORS if vector["ordinal"] == ODD]
    record = bytes.fromhex(odd["record_hex"])
    (found,) = verify_records(record, 4)
    assert encode_records(5, [bytes(found.body)])[0] == record
    assert bytes(found.body) == b"\x93\xcd\x00\x2a\xa1x\xc4\x02\x00\xff"


BODIES = [
    (("x",), b"\x92\x05\xa1x"),
    (("x", b"\xc0"), b"\x92\x05\xa1x"),
    (("x", b"\x01"), b"\x93\x05\xa1x\x01"),
    (("x", b"\xc0", "command-1"), b"\x94\x05\xa1x\xc0\xa9command-1"),
    (("x", b"\xc0", None, ("p", 7)), b"\x95\x05\xa1x\xc0\xc0\x92\xa1p\x07"),
    (("x", b"\x80", "command-1", ("p", 2**63)), b"\x95\x05\xa1x\x80\xa9command-1\x92\xa1p\xcf\x80" + bytes(7)),
]


@pytest.mark.parametrize(("parts", "body"), BODIES)
def test_trailing_nils_of_a_body_are_dropped_and_no_others(parts, body):
    kind, *more = parts
    data = [msgspec.Raw(more[0])] if more else []
    assert encode_body(5, kind, *data, *more[1:]) == body
    found = decode_body(body)
    assert (found.recorded_at_ms, found.kind) == (5, kind)
    assert bytes(found.data) == (more[0] if more else b"\xc0")


def test_the_data_of_a_body_is_kept_as_the_bytes_it_came_as():
    odd = b"\x82\xd9\x01f\xca\x3f\xc0\x00\x00\xa1n\xcf" + bytes(7) + b"\x01"
    body = encode_body(5, "x", msgspec.Raw(odd))
    assert body == b"\x93\x05\xa1x" + odd
    assert bytes(decode_body(body).data) == odd


NO_BODIES = {
    "nothing": b"",
    "a map": b"\x80",
    "an empty array": b"\x90",
    "no kind": b"\x91\x05",
    "a kind that is no string": b"\x92\x05\x05",
    "a time that is no integer": b"\x92\xa15\xa1x",
    "a sixth member": b"\x96\x05\xa1x\xc0\xc0\xc0\x01",
    "a producer without a sequence": b"\x95\x05\xa1x\xc0\xc0\x91\xa1p",
    "a command id that is no string": b"\x94\x05\xa1x\xc0\x01",
    "bytes after it": b"\x92\x05\xa1x\xc0",
    "cut short": b"\x93\x05\xa1x",
}


@pytest.mark.parametrize("body", NO_BODIES.values(), ids=NO_BODIES.keys())
def test_bytes_that_are_no_body_are_refused(body):
    with pytest.raises(msgspec.DecodeError):
        decode_body(body)


@given(st.integers(1, 2**64 - 10), st.lists(st.binary(min_size=1, max_size=40), max_size=6))
@BRISK
def test_records_are_the_concatenation_of_each_ones_bytes(first, bodies):
    records, digest = encode_records(first, bodies)
    parts = [by_hand(ordinal, body) for ordinal, body in enumerate(bodies, first)]
    assert records == b"".join(parts)
    assert digest == (parts[-1][12:28] if parts else b"")
    assert [(at.ordinal, bytes(at.body)) for at in verify_records(records, first - 1)] == list(enumerate(bodies, first))
    assert record_offsets(records) == [sum(map(len, parts[:at])) for at in range(len(parts))]


THREE = [b"\x92\x05\xa1x", b"\x93\x05\xa1x\xa5hello", b"\x92\x06\xa1y"]
PAGE = b"".join(by_hand(7 + at, body) for at, body in enumerate(THREE))
STARTS = [0, 28 + len(THREE[0]), 56 + len(THREE[0]) + len(THREE[1])]


@pytest.mark.parametrize("byte", range(len(PAGE)))
def test_every_flipped_bit_of_a_page_is_noticed_at_its_record(byte):
    for bit in range(8):
        flipped = bytearray(PAGE)
        flipped[byte] ^= 1 << bit
        with pytest.raises(RecordError) as found:
            verify_records(flipped, 6)
        assert found.value.offset == max(start for start in STARTS if start <= byte)


@pytest.mark.parametrize("length", [at for at in range(1, len(PAGE)) if at not in STARTS])
def test_a_page_cut_anywhere_inside_a_record_is_noticed(length):
    with pytest.raises(RecordError) as found:
        verify_records(PAGE[:length], 6)
    assert found.value.offset == max(start for start in STARTS if start < length)


def test_a_page_cut_between_records_is_shorter():
    assert [len(verify_records(PAGE[:start], 6)) for start in STARTS] == [0, 1, 2]


PARTS = [PAGE[a:b] for a, b in zip(STARTS, [*STARTS[1:], len(PAGE)], strict=True)]
OUT_OF_ORDER = {
    "a hole before the first": (6 - 1, [0, 1, 2], 0),
    "the first is known already": (7, [0, 1, 2], 0),
    "a hole inside": (6, [0, 2], STARTS[1]),
    "one twice": (6, [0, 0, 1], STARTS[1]),
    "two changed places": (6, [1, 0, 2], 0),
    "the last two changed places": (6, [0, 2, 1], STARTS[1]),
}


@pytest.mark.parametrize(("after", "order", "offset"), OUT_OF_ORDER.values(), ids=OUT_OF_ORDER.keys())
def test_ordinals_go_upward_from_the_cursor_without_a_hole(after, order, offset):
    with pytest.raises(RecordError) as found:
        verify_records(b"".join(PARTS[at] for at in order), after)
    assert found.value.offset == offset


@pytest.mark.parametrize("length", [0, MEBIBYTES_2 + 1, 2**31, 2**32 - 1])
def test_a_record_that_says_an_impossible_length_is_refused_from_its_header(length):
    header = struct.pack("<IQ16s", length, 1, bytes(16))
    with pytest.raises(RecordError) as found:
        list(iter_records(PAGE + header, 0))
    assert found.value.offset == len(PAGE)


def test_a_body_of_1_byte_and_one_of_2_mib_are_possible():
    for body in (b"x", bytes(MEBIBYTES_2)):
        (record,) = verify_records(by_hand(1, body), 0)
        assert record.body == body


def test_records_are_cut_from_any_offset_and_as_views():
    found = list(iter_records(PAGE, STARTS[1]))
    assert [record.ordinal for record in found] == [8, 9]
    assert all(isinstance(record.body, memoryview) for record in found)
