import contextlib
import json
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from support import oracle, sealed_oracle
from support.sealed_oracle import frame, index_frame, index_of, records_of, sealed_of

from relayd.journal.frames import FRAME_PLAIN_BYTES_MAX, FrameError, compress_frame, expand_frame
from relayd.journal.names import SegmentKind, SegmentName
from relayd.journal.sealed import (
    LaterSealedFormatError,
    SealedError,
    SealedIndex,
    encode_index,
    read_frame,
    read_index,
    verify_sealed,
)

VECTOR = bytes.fromhex(json.loads((Path(__file__).parents[1] / "vectors/files.json").read_text())["sealed_hex"])
BODIES = [
    [b"\x94\x01\xa6output\x81\xa4text\xa5ready\xa5cmd-1", b"\x93\x02\xa6status\xc0"],
    [b"\x93\x03\xa4exit\x81\xa4code\x00"],
    [b"\x93\x04\xa6output\x81\xa4text\xb4" + b"building building bu", b"\x92\x05\xa4tick", b"\x92\x06\xa4tick"],
]
FLAT = [body for block in BODIES for body in block]
RANGES = [(1, 2), (3, 3), (4, 6)]
NAME = SegmentName(SegmentKind.SEALED, 1, 6)


class Held:
    """A File of bytes in memory."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.largest = 0

    def size(self) -> int:
        """How many."""
        return len(self.data)

    def read(self, size: int, offset: int) -> bytes:
        """Some; `largest` is the most ever asked for."""
        self.largest = max(self.largest, size)
        return self.data[offset : offset + size]


def served(data: bytes) -> list[bytes | SealedError]:
    """What a reader gets for each of the frames, or for the index, of `data`."""
    file = Held(data)
    try:
        index = read_index(file, NAME, oracle.STORE)
    except SealedError as error:
        return [error]
    outcomes: list[bytes | SealedError] = []
    for number in range(len(index.frames)):
        try:
            outcomes.append(read_frame(file, index, number))
        except SealedError as error:
            outcomes.append(error)
    return outcomes


def test_the_vector_reads_as_what_is_known_of_it():
    index = read_index(Held(VECTOR), SegmentName(SegmentKind.SEALED, 1, 4), bytes(range(16)))
    assert index.frames == ((1, 0, 110, 97), (3, 110, 144, 131))
    assert (index.format, index.first, index.last, index.count) == (1, 1, 4, 4)
    assert (index.store, index.segment) == (bytes(range(16)), bytes(range(16, 32)))
    assert read_frame(Held(VECTOR), index, 0) == zstandard.ZstdDecompressor().decompress(VECTOR[:110])
    assert read_frame(Held(VECTOR), index, 1) == zstandard.ZstdDecompressor().decompress(VECTOR[110:254])
    assert encode_index(index) == VECTOR[254:]
    assert verify_sealed(Held(VECTOR), SegmentName(SegmentKind.SEALED, 1, 4), bytes(range(16))) == []


def test_a_file_made_by_the_oracle_is_whole():
    told: list[int] = []
    data = sealed_of(BODIES)
    assert verify_sealed(Held(data), NAME, oracle.STORE, told.append) == []
    assert sum(told) == len(data)
    assert served(data) == [b"".join(block) for block in records_of(BODIES)]


@given(st.lists(st.lists(st.binary(min_size=1, max_size=80), min_size=1, max_size=4), min_size=1, max_size=4))
def test_whatever_the_bodies_are_each_frame_reads_back(bodies):
    data = sealed_of(bodies, first=7)
    index = read_index(Held(data))
    assert [read_frame(Held(data), index, n) for n in range(len(bodies))] == [
        b"".join(b) for b in records_of(bodies, 7)
    ]
    assert verify_sealed(Held(data)) == []


def test_every_bit_flip_is_noticed_and_loses_only_its_own_frame():
    """Zero silent: verify finds each flip, and a reader gets right bytes or the range of the damaged frame."""
    data = sealed_of(BODIES)
    right = [b"".join(block) for block in records_of(BODIES)]
    ends = [entry[1] + entry[2] for entry in sealed_oracle.read_sealed(data)[0]["frames"]]
    silent, harmless = 0, 0
    for bit in range(len(data) * 8):
        bad = bytearray(data)
        bad[bit // 8] ^= 1 << bit % 8
        found = verify_sealed(Held(bytes(bad)), NAME, oracle.STORE)
        silent += not found
        struck = next((n for n, end in enumerate(ends) if bit // 8 < end), None)
        outcomes = served(bytes(bad))
        if struck is None:
            assert len(outcomes) == 1
            assert isinstance(outcomes[0], SealedError)
            assert outcomes[0].first is None
            continue
        assert [(error.first, error.last) for error in found] == [RANGES[struck]]
        for number, outcome in enumerate(outcomes):
            if isinstance(outcome, SealedError):
                assert number == struck
                assert (outcome.first, outcome.last) == RANGES[struck]
            else:
                assert outcome == right[number]
                harmless += number == struck
    assert silent == 0
    assert harmless < len(data) * 8 // 50


def test_every_bit_flip_of_a_frame_with_sequences_and_huffman_tables_is_noticed():
    """Larger frames have encodings with slack, where a flip changes nothing: verify finds those too."""
    texts = [f'{{"module": {n * 7919 % 1000}, "state": "compiled", "ms": {n * n % 977}}}'.encode() for n in range(24)]
    bodies = [[b"\x93\x01\xa6output" + bytes([0xD9, len(text)]) + text for text in texts]]
    data = sealed_of(bodies)
    right = b"".join(records_of(bodies)[0])
    size = read_index(Held(data)).frames[0].size
    unnoticed = 0
    for bit in range(size * 8):
        bad = bytearray(data)
        bad[bit // 8] ^= 1 << bit % 8
        held = Held(bytes(bad))
        unnoticed += not verify_sealed(held)
        with contextlib.suppress(SealedError):
            assert read_frame(held, read_index(held), 0) == right
    assert unnoticed == 0


def test_every_truncation_is_unreadable_as_a_whole():
    data = sealed_of(BODIES)
    for size in range(len(data)):
        outcomes = served(data[:size])
        assert len(outcomes) == 1
        assert isinstance(outcomes[0], SealedError)
        assert verify_sealed(Held(data[:size]))


OTHER = sealed_of([[b"\x92\x01\xa5other"]])


@pytest.mark.parametrize(
    "data",
    [
        sealed_of(BODIES) + b"\0",
        sealed_of(BODIES) + bytes(4096),
        sealed_of(BODIES) + frame(b"more"),
        sealed_of(BODIES) + sealed_of(BODIES),
        frame(b"before") + sealed_of(BODIES),
        OTHER,
        sealed_of(BODIES, first=2),
        sealed_of(BODIES, store=bytes(16)),
        bytes(5000),
        b"",
        b"RLYINDX1",
        oracle.segment_of(BODIES),
    ],
    ids=[
        "byte",
        "zeros",
        "frame",
        "copy",
        "before",
        "range",
        "shifted",
        "store",
        "zeroed",
        "empty",
        "magic",
        "rotated",
    ],
)
def test_appended_or_replaced_bytes_are_unreadable_as_a_whole(data):
    outcomes = served(data)
    assert len(outcomes) == 1
    assert isinstance(outcomes[0], SealedError)
    assert outcomes[0].first is None
    assert verify_sealed(Held(data), NAME, oracle.STORE)


def test_a_later_format_is_told_apart():
    with pytest.raises(LaterSealedFormatError, match="newer"):
        read_index(Held(sealed_of(BODIES, format=2)))


def test_a_field_that_a_later_version_adds_is_passed_over():
    assert verify_sealed(Held(sealed_of(BODIES, added=[1]))) == []


F1, F2, F3 = sealed_oracle.read_sealed(sealed_of(BODIES))[0]["frames"]


@pytest.mark.parametrize(
    "said",
    [
        {"frames": []},
        {"frames": [F1, F2]},
        {"frames": [F1, F3, F2]},
        {"frames": [[0, *F1[1:]], F2, F3]},
        {"frames": [[2, *F1[1:]], F2, F3]},
        {"frames": [F1, [1, *F2[1:]], F3]},
        {"frames": [F1, F2, [7, *F3[1:]]]},
        {"frames": [F1, [3, F2[1], 0, F2[3]], F3]},
        {"frames": [F1, [3, F2[1], 2**40, F2[3]], F3]},
        {"frames": [F1, [3, F2[1], F2[2], 0], F3]},
        {"frames": [F1, [3, F2[1], F2[2], 2**40], F3]},
        {"frames": [F1, [3, F2[1] + 1, F2[2], F2[3]], F3]},
        {"frames": [F1, [3, -1, F2[2], F2[3]], F3]},
        {"frames": [F1, "two", F3]},
        {"count": 5},
        {"first": 0},
        {"last": 7},
        {"last": 2**64 - 1, "count": 2**64 - 1},
        {"format": 0},
        {"format": "1"},
        {"store": b"short"},
        {"stream": None},
    ],
    ids=str,
)
def test_an_index_that_contradicts_itself_or_the_file_is_refused(said):
    held = Held(sealed_of(BODIES, **said))
    with pytest.raises(SealedError):
        read_index(held)
    assert held.largest <= 4096


def test_an_index_larger_than_the_first_read_is_read_whole():
    bodies = [[b"\x92\x01\xa4tick"] for _ in range(600)]
    index = read_index(Held(sealed_of(bodies)))
    assert len(index.frames) == 600
    assert [index.frame_of(ordinal) for ordinal in (1, 2, 600)] == [0, 1, 599]
    assert [index.last_of(n) for n in (0, 599)] == [1, 600]


def test_a_size_of_the_index_beyond_its_bound_is_not_read():
    data = sealed_of(BODIES)
    held = Held(data[:-12] + (2**32 - 1).to_bytes(4, "little") + data[-8:])
    with pytest.raises(SealedError):
        read_index(held)
    assert held.largest <= 4096


def test_an_index_beyond_its_bound_is_not_read_however_large_the_file_is():
    class Huge(Held):
        def size(self) -> int:
            return 2**32

        def read(self, size: int, offset: int) -> bytes:
            self.largest = max(self.largest, size)
            assert offset + size == 2**32
            return bytes(size - 12) + (2**30).to_bytes(4, "little") + b"RLYINDX1"

    held = Huge(b"")
    with pytest.raises(SealedError):
        read_index(held)
    assert held.largest <= 4096


def test_a_frame_of_other_ordinals_is_not_served_for_those_of_the_index():
    held = Held(rewritten([R[0], [R[2][0]], R[2]]))
    with pytest.raises(SealedError) as raised:
        read_frame(held, read_index(held), 1)
    assert (raised.value.first, raised.value.last) == (3, 3)


def test_the_unused_bit_of_a_frames_header_is_damage_too():
    """Zstd passes over it; a reader that did so would serve from a file that verify calls damaged."""
    stored = bytearray(frame(PLAIN))
    stored[4] |= 0x10
    assert zstandard.ZstdDecompressor().decompress(bytes(stored)) == PLAIN
    with pytest.raises(FrameError):
        expand_frame(bytes(stored), len(PLAIN))


PLAIN = b"".join(records_of(BODIES)[2])


def streamed(plain: bytes) -> bytes:
    """A frame that does not state its size."""
    return frame(plain, stated=False)


@pytest.mark.parametrize(
    ("stored", "promised"),
    [
        *((frame(PLAIN)[:cut], len(PLAIN)) for cut in range(len(frame(PLAIN)))),
        *((streamed(PLAIN)[:cut], len(PLAIN)) for cut in range(len(streamed(PLAIN)))),
    ],
    ids=lambda value: str(len(value)) if isinstance(value, bytes) else "",
)
def test_a_cut_frame_is_never_handed_out_short(stored, promised):
    with pytest.raises(FrameError):
        expand_frame(stored, promised)


@pytest.mark.parametrize(
    ("stored", "promised"),
    [
        (frame(PLAIN) + b"x", len(PLAIN)),
        (frame(PLAIN) + frame(PLAIN), len(PLAIN)),
        (frame(PLAIN) + frame(PLAIN), 2 * len(PLAIN)),
        (frame(PLAIN) + b"\x5e\x2a\x4d\x18\0\0\0\0", len(PLAIN)),
        (b"\x5e\x2a\x4d\x18\0\0\0\0" + frame(PLAIN), len(PLAIN)),
        (streamed(PLAIN) + b"x", len(PLAIN)),
        (streamed(PLAIN) + frame(PLAIN), 2 * len(PLAIN)),
        (frame(PLAIN), len(PLAIN) - 1),
        (frame(PLAIN), len(PLAIN) + 1),
        (streamed(PLAIN), len(PLAIN) - 1),
        (streamed(PLAIN), len(PLAIN) + 1),
        (frame(PLAIN, checksum=False), len(PLAIN)),
        (frame(bytes(64 * 2**20)), 1000),
        (frame(bytes(64 * 2**20)), 64 * 2**20),
        (streamed(bytes(64 * 2**20)), 1000),
        (frame(b""), 0),
        (b"", 1),
        (PLAIN, len(PLAIN)),
    ],
    ids=[
        "byte",
        "same",
        "same2",
        "skippable",
        "leading",
        "sbyte",
        "sframe",
        "less",
        "more",
        "sless",
        "smore",
        "nosum",
        "bomb",
        "big",
        "sbomb",
        "empty",
        "none",
        "plain",
    ],
)
def test_what_is_not_just_the_one_frame_promised_is_refused(stored, promised):
    with pytest.raises(FrameError):
        expand_frame(stored, promised)


def test_a_frame_that_does_not_state_its_size_is_read_all_the_same():
    assert expand_frame(streamed(PLAIN), len(PLAIN)) == PLAIN


def test_the_largest_frame_there_can_be_reads_back():
    plain = bytes(range(256)) * (FRAME_PLAIN_BYTES_MAX // 256) + bytes(FRAME_PLAIN_BYTES_MAX % 256)
    assert expand_frame(compress_frame(plain), len(plain)) == plain


def rewritten(blocks: list[list[bytes]], **said: object) -> bytes:
    """A sealed file of these records, right or not, with digests made to fit."""
    frames = [frame(b"".join(block)) for block in blocks]
    return b"".join(frames) + index_frame(index_of(blocks, frames, 1) | said)


FORGED = bytearray(oracle.record(2, FLAT[1]))
FORGED[-1] ^= 1
R = records_of(BODIES)


@pytest.mark.parametrize(
    ("data", "ranges"),
    [
        (rewritten([[R[0][0], bytes(FORGED)], R[1], R[2]]), [(1, 2)]),
        (rewritten([R[0], R[1], [R[2][0], R[2][2], R[2][1]]]), [(4, 6)]),
        (rewritten([R[0], [R[2][0]], R[2]]), [(3, 3)]),
        (rewritten([R[0], [b"\0" * 40], R[2]]), [(3, 3)]),
        (rewritten([R[0], [b"\0" * 20], R[2]]), [(3, 3)]),
        (rewritten(R, stream=bytes(32)), [(None, None)]),
        (rewritten([R[0], R[1], R[2][:2]], last=6, count=6), [(4, 6)]),
    ],
    ids=["digest", "order", "ordinal", "zeros", "short", "stream", "fewer"],
)
def test_verify_finds_what_checksums_do_not(data, ranges):
    assert [(error.first, error.last) for error in verify_sealed(Held(data), NAME)] == ranges


def test_verify_reads_on_behind_damage():
    data = bytearray(sealed_of(BODIES))
    data[F1[1] + 10] ^= 1
    data[F3[1] + 10] ^= 1
    found = verify_sealed(Held(bytes(data)))
    assert [(error.first, error.last, error.offset) for error in found] == [(1, 2, F1[1]), (4, 6, F3[1])]


def test_a_frame_compressed_at_another_level_is_no_damage():
    blocks = records_of([[b"\x93\x01\xa6output\xd9\x80" + b"level " * 20 for _ in range(40)]])
    for level in (1, 5, 12, 19):
        stored = [frame(b"".join(blocks[0]), level=level)]
        assert verify_sealed(Held(stored[0] + index_frame(index_of(blocks, stored, 1)))) == []


def test_the_index_is_the_map_of_the_format_in_its_order():
    index = read_index(Held(sealed_of(BODIES)))
    assert list(msgspec.to_builtins(index)) == [
        "format",
        "store",
        "segment",
        "first",
        "last",
        "count",
        "frames",
        "stream",
    ]
    assert isinstance(index, SealedIndex)


@pytest.mark.skipif(shutil.which("zstd") is None, reason="needs the zstd program")
def test_zstd_gives_the_records(tmp_path):
    (tmp_path / "sealed.zst").write_bytes(sealed_of(BODIES))
    done = subprocess.run(["zstd", "-dc", tmp_path / "sealed.zst"], capture_output=True, check=True)
    assert done.stdout == b"".join(b"".join(block) for block in records_of(BODIES))
