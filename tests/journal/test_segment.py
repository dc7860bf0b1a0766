import json
import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import oracle
from support.oracle import SEGMENT, STORE, segment_of

from relayd.journal.segment import (
    GroupHeader,
    SegmentHeader,
    decode_group_header,
    decode_segment_header,
    encode_group_header,
    encode_segment_header,
    find_group_headers,
    is_later_group,
    is_later_segment,
    walk_groups,
)

CASES = json.loads(Path(__file__, "../../vectors/opening.json").resolve().read_text())["cases"]
THREE = segment_of([[b"\x90"], [b"\x91\x00", b"\x90"], [b"\x92\x00\x00"]])
STARTS = [group.offset for group in walk_groups(THREE, SEGMENT)]


def spans(data, segment=SEGMENT, **how):
    return [(group.first, group.last) for group in walk_groups(data, segment, **how)]


def sealed_header(fields: bytes) -> bytes:
    """A group header with these 56 bytes and a right CRC over them."""
    return fields + struct.pack("<II", zlib.crc32(fields), 0)


def test_the_vectors_are_walked_up_to_where_each_says_its_whole_groups_end():
    assert len(CASES) == 22
    for case in CASES:
        data = bytes.fromhex(case["active_hex"])
        last = 0
        for group in walk_groups(data, SEGMENT, expected_first=1):
            last = group.last
        good = decode_segment_header(data) is not None
        assert (last if good else 0) == case["last"], case["name"]


def test_the_vectors_headers_are_written_byte_for_byte():
    data = bytes.fromhex(CASES[0]["active_hex"])
    assert encode_segment_header(SegmentHeader(STORE, SEGMENT)) == data[:48]
    assert decode_segment_header(data) == SegmentHeader(STORE, SEGMENT)
    groups = list(walk_groups(data, SEGMENT))
    assert [(group.offset, group.first, group.count) for group in groups] == [
        (48, 1, 1),
        (152, 2, 2),
        (369, 4, 1),
        (468, 5, 6),
    ]
    for group in groups:
        half = len(group.payload) // 2
        parts = [group.payload[:half], b"", bytes(group.payload[half:])]
        made = encode_group_header(SEGMENT, group.offset, group.first, group.count, parts)
        assert made == data[group.offset : group.offset + 64]
        assert group.end == group.offset + 64 + len(group.payload)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=4), max_size=5),
    st.integers(1, 2**64 - 99),
)
def test_what_is_encoded_is_walked_again_and_equals_the_oracles_bytes(groups, first):
    made = bytearray(encode_segment_header(SegmentHeader(STORE, SEGMENT)))
    ordinal = first
    for bodies in groups:
        payload = [oracle.record(ordinal + at, body) for at, body in enumerate(bodies)]
        made += encode_group_header(SEGMENT, len(made), ordinal, len(bodies), payload)
        made += b"".join(payload)
        ordinal += len(bodies)
    assert made == segment_of(groups, first)
    walked = list(walk_groups(made, SEGMENT, expected_first=first))
    assert [group.count for group in walked] == [len(bodies) for bodies in groups]
    assert (walked[-1].end if walked else 48) == len(made)


def test_every_flipped_bit_ends_the_walk_before_its_group():
    for bit in range(48 * 8, len(THREE) * 8):
        damaged = bytearray(THREE)
        damaged[bit // 8] ^= 1 << bit % 8
        before = sum(start <= bit // 8 for start in STARTS) - 1
        assert len(spans(damaged)) == before, bit


def test_every_flipped_bit_of_the_segment_header_is_noticed():
    for bit in range(48 * 8):
        damaged = bytearray(THREE)
        damaged[bit // 8] ^= 1 << bit % 8
        assert decode_segment_header(damaged) is None, bit


def test_every_truncation_ends_the_walk_before_the_group_it_cuts():
    ends = [*STARTS[1:], len(THREE)]
    for length in range(len(THREE)):
        assert len(spans(THREE[:length])) == sum(end <= length for end in ends), length
        assert (decode_segment_header(THREE[:length]) is None) is (length < 48)


def test_a_group_of_another_segment_or_at_another_offset_is_not_whole():
    other = bytes(16)
    assert spans(oracle.segment_header() + oracle.group(48, 1, [b"x"], other)) == []
    assert spans(oracle.segment_header() + oracle.group(49, 1, [b"x"])) == []
    assert spans(bytes(48) + bytes(64) + oracle.group(112, 1, [b"x"]), start=112) == [(1, 1)]


def test_ordinals_follow_the_group_before_and_the_expected_first():
    jump = oracle.segment_header() + oracle.group(48, 5, [b"x"])
    assert spans(jump) == [(5, 5)]
    assert spans(jump, expected_first=5) == [(5, 5)]
    assert spans(jump, expected_first=4) == []
    assert spans(jump + oracle.group(len(jump), 6, [b"y"])) == [(5, 5), (6, 6)]
    for wrong in (4, 5, 7):
        assert spans(jump + oracle.group(len(jump), wrong, [b"y"])) == [(5, 5)]


def group_with(payload: bytes, first: int, count: int) -> bytes:
    fields = b"RLYG" + struct.pack("<I", 1) + SEGMENT
    fields += struct.pack("<QQIIII", 48, first, count, len(payload), zlib.crc32(payload), 0)
    return oracle.segment_header() + sealed_header(fields) + payload


ONE, TWO = oracle.record(1, b"a"), oracle.record(2, b"b")


@pytest.mark.parametrize(
    ("payload", "first", "count"),
    [
        (b"", 1, 0),
        (ONE, 1, 0),
        (ONE, 1, 2),
        (ONE + TWO, 1, 1),
        (ONE + TWO, 1, 2**32 - 1),
        (ONE + b"\0", 1, 1),
        (ONE[:-1], 1, 1),
        (ONE + ONE, 1, 2),
        (ONE + oracle.record(3, b"c"), 1, 2),
        (TWO + ONE, 2, 2),
        (ONE, 0, 1),
        (oracle.record(0, b"x"), 0, 1),
        (oracle.record(2**64 - 1, b"x"), 2**64 - 1, 1),
        (struct.pack("<IQ", 0, 1) + bytes(16), 1, 1),
        (struct.pack("<IQ", 2**32 - 1, 1) + bytes(17), 1, 1),
        (struct.pack("<IQ", 2**21 + 1, 1) + bytes(16) + bytes(2**21 + 1), 1, 1),
    ],
)
def test_a_group_that_does_not_hold_exactly_its_records_is_not_whole(payload, first, count):
    data = group_with(payload, first, count)
    assert decode_group_header(data, 48) is not None
    assert spans(data) == []


def test_a_body_of_two_mebibytes_is_whole():
    assert spans(group_with(oracle.record(1, bytes(2**21)), 1, 1)) == [(1, 1)]


def test_a_header_is_read_only_where_64_bytes_are():
    header = THREE[48:112]
    assert decode_group_header(header) == GroupHeader(SEGMENT, 48, 1, 1, 29, zlib.crc32(THREE[112:141]))
    assert decode_group_header(header).end == 141
    for at, data in [(-1, header), (1, header), (64, header), (0, header[:63]), (0, b"")]:
        assert decode_group_header(data, at) is None


def test_another_magic_with_a_right_crc_is_no_header():
    assert decode_group_header(sealed_header(b"RLYH" + THREE[52:104])) is None
    segment = b"RLYSEG00" + STORE + SEGMENT
    assert decode_segment_header(segment + struct.pack("<II", zlib.crc32(segment), 0)) is None


def test_a_later_format_is_told_from_damage():
    later = b"RLYG" + struct.pack("<I", 2) + THREE[56:104]
    assert decode_group_header(sealed_header(later)) is None
    assert is_later_group(sealed_header(later), 0)
    assert not is_later_group(later + bytes(8), 0)
    assert not is_later_group(THREE, 48)
    segment = b"RLYSEG02" + STORE + SEGMENT
    assert is_later_segment(segment + struct.pack("<II", zlib.crc32(segment), 0))
    assert not is_later_segment(segment + bytes(8))
    assert not is_later_segment(THREE)
    assert not is_later_segment(b"RLYSEG02")


def test_headers_are_found_by_magic_wherever_their_own_offset_is_right():
    planted = THREE[48:141]
    data = segment_of([[b"RLYG" * 5, planted], [b"b"]])
    data += oracle.group(len(data), 4, [b"c"], bytes(16))
    first, second, third = (group[0] for group in ((48,), (48 + 64 + 28 + 20 + 28 + 93,), (len(data) - 93,)))
    assert [header.offset for header in find_group_headers(data, 0, SEGMENT)] == [first, second]
    assert [header.offset for header in find_group_headers(data, first + 1, SEGMENT)] == [second]
    assert [header.offset for header in find_group_headers(memoryview(data), 0, None)] == [first, second, third]
    assert list(find_group_headers(data[: second + 63], first + 1, SEGMENT)) == []
    assert list(find_group_headers(b"", 5, None)) == []


def test_a_header_whose_payload_is_gone_is_still_found():
    damaged = bytearray(THREE)
    damaged[STARTS[2] + 70] ^= 1
    assert [header.first for header in find_group_headers(damaged, 49, SEGMENT)] == [2, 4]
