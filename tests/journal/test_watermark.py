import json
import struct
import zlib
from pathlib import Path

import pytest
from support.oracle import SEGMENT, watermark

from relayd.journal.watermark import Watermark, decode_watermark, encode_watermark

VECTOR = bytes.fromhex(json.loads(Path(__file__, "../../vectors/files.json").resolve().read_text())["watermark_hex"])


def test_the_vector_is_read_and_written_byte_for_byte():
    assert decode_watermark(VECTOR) == Watermark(SEGMENT, 468)
    assert encode_watermark(Watermark(SEGMENT, 468)) == VECTOR


@pytest.mark.parametrize("offset", [0, 48, 2**32, 2**64 - 1])
def test_every_offset_goes_round(offset):
    made = encode_watermark(Watermark(SEGMENT, offset))
    assert made == watermark(SEGMENT, offset)
    assert decode_watermark(memoryview(made)) == Watermark(SEGMENT, offset)


def test_every_flipped_bit_counts_as_none():
    for bit in range(len(VECTOR) * 8):
        damaged = bytearray(VECTOR)
        damaged[bit // 8] ^= 1 << bit % 8
        assert decode_watermark(damaged) is None, bit


def test_every_other_length_counts_as_none():
    for length in range(len(VECTOR)):
        assert decode_watermark(VECTOR[:length]) is None, length
    assert decode_watermark(VECTOR + b"\0") is None
    assert decode_watermark(bytes(40)) is None


def test_another_magic_with_a_right_crc_counts_as_none():
    checked = b"RLYMARK2" + VECTOR[8:32]
    assert decode_watermark(checked + struct.pack("<II", zlib.crc32(checked), 0)) is None
