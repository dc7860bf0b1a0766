import pytest
from support import oracle, sealed_oracle
from support.layout import ACTIVE, ROTATED, SEALED, Layout, flip, walk

from relayd.protocol.cursor import Span
from relayd.protocol.limits import MIB


@pytest.fixture
def layout(tmp_path):
    made = Layout(tmp_path / "journal")
    yield made
    made.opened.close()


def test_every_bit_of_a_sealed_segment_loses_the_frames_range_or_the_files(layout):
    """Right bytes or the lost range; whatever else is in the file is still served."""
    spans = [Span(1, 2), Span(3, 3), Span(4, 6)]
    segment = layout.add(SEALED, [[b"one", b"two"], [b"three three three three"], [b"four", b"five", b"six"]])
    layout.add(ACTIVE, [[b"seven"]])
    data = (layout.path / segment.name).read_bytes()
    ends = [entry[1] + entry[2] for entry in sealed_oracle.read_sealed(data)[0]["frames"]]
    harmless = 0
    for bit in range(len(data) * 8):
        layout.damage(segment, lambda _, bit=bit: flip(bit // 8, bit % 8)(data))
        struck = next((span for span, end in zip(spans, ends, strict=True) if bit // 8 < end), Span(1, 6))
        got = layout.read(struck.first - 1)
        if isinstance(got, Span):
            assert got == struck
            assert walk(layout, MIB) == [each for each in range(1, 8) if not struck.first <= each <= struck.last]
        else:
            harmless += 1
            assert walk(layout, MIB) == list(range(1, 8))
    assert harmless < len(data) * 8 // 50


@pytest.mark.parametrize("size", range(0, 300, 11))
def test_a_sealed_segment_cut_anywhere_is_unreadable_and_what_follows_is_served(layout, size):
    segment = layout.add(SEALED, [[b"one", b"two"], [b"three"]])
    layout.add(ACTIVE, [[b"four"]])
    layout.damage(segment, lambda data: data[: min(size, len(data) - 1)])
    assert layout.read(0) == Span(1, 3)
    assert layout.read(1) == Span(2, 3)
    assert layout.read(3) == [4]


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data + b"\0",
        lambda data: data + data,
        lambda _: sealed_oracle.sealed_of([[b"one", b"two", b"three"]], store=bytes(16)),
        lambda _: sealed_oracle.sealed_of([[b"one", b"two", b"three"]], first=2),
        lambda _: sealed_oracle.sealed_of([[b"one"]]),
        lambda _: b"",
    ],
    ids=["byte", "twice", "store", "shifted", "fewer", "empty"],
)
def test_other_bytes_in_a_sealed_segments_place_are_unreadable(layout, change):
    segment = layout.add(SEALED, [[b"one", b"two"], [b"three"]])
    layout.add(ACTIVE, [[b"four"]])
    layout.damage(segment, change)
    assert layout.read(0) == Span(1, 3)
    assert layout.read(3) == [4]


@pytest.mark.parametrize("kind", [ROTATED, ACTIVE])
@pytest.mark.parametrize("indexed", [False, True])
def test_every_bit_of_a_file_of_groups_loses_at_most_the_group_it_is_in(layout, kind, indexed):
    """A flip in the segment's header, which a page does not need where the id is known, loses nothing or the file."""
    blocks = [[b"one", b"two"], [b"three"], [b"four", b"five", b"six"]]
    segment = layout.add(kind, blocks, indexed=indexed)
    data = (layout.path / segment.name).read_bytes()
    spans = [Span(1, 2), Span(3, 3), Span(4, 6)]
    ends = [48 + sum(64 + sum(28 + len(body) for body in block) for block in blocks[: at + 1]) for at in range(3)]
    for bit in range(len(data) * 8):
        layout.damage(segment, lambda _, bit=bit: flip(bit // 8, bit % 8)(data))
        if bit // 8 < 48:
            got = layout.read(0)
            assert got == (Span(1, 6) if segment.segment is None and bit // 8 < 48 else [1, 2, 3, 4, 5, 6])
            continue
        struck = next(span for span, end in zip(spans, ends, strict=True) if bit // 8 < end)
        assert layout.read(struck.first - 1) == struck
        assert walk(layout, MIB) == [each for each in range(1, 7) if not struck.first <= each <= struck.last]


@pytest.mark.parametrize("size", range(0, 480, 7))
@pytest.mark.parametrize("indexed", [False, True])
def test_a_rotated_file_cut_anywhere_is_served_up_to_the_cut(layout, size, indexed):
    segment = layout.add(ROTATED, [[b"one", b"two"], [b"three"], [b"four", b"five", b"six"]], indexed=indexed)
    layout.add(ACTIVE, [[b"seven"]])
    layout.damage(segment, lambda data: data[: min(size, len(data) - 1)])
    left = oracle.read_segment((layout.path / segment.name).read_bytes())[1]
    whole = size >= 48
    assert walk(layout, MIB) == [*(sorted(left) if whole else []), 7]


def test_a_group_copied_over_another_is_damage(layout):
    segment = layout.add(ROTATED, [[b"one"], [b"two"], [b"six"]])
    size = 64 + 28 + 3
    layout.damage(segment, lambda data: data[: 48 + size] + data[48 : 48 + size] + data[48 + 2 * size :])
    assert layout.read(0, 2) == [1]
    assert layout.read(1) == Span(2, 2)
    assert layout.read(2) == [3]


@pytest.mark.parametrize(
    "other",
    [
        oracle.group(48 + 95, 2, [b"two"], b"another segment!"),
        oracle.group(48 + 95, 3, [b"two"], bytes([1]) * 16),
        oracle.group(48 + 95, 1, [b"two"], bytes([1]) * 16),
        oracle.group(48 + 94, 2, [b"two"], bytes([1]) * 16),
        oracle.group(48 + 95, 2, [], bytes([1]) * 16) + bytes(31),
    ],
    ids=["segment", "later", "earlier", "offset", "empty"],
)
def test_a_group_of_another_file_or_ordinal_written_over_one_is_damage(layout, other):
    segment = layout.add(ROTATED, [[b"one"], [b"two"], [b"six"]])
    layout.damage(segment, lambda data: data[: 48 + 95] + other + data[48 + 2 * 95 :])
    assert layout.read(0, 2) == [1]
    assert layout.read(1) == Span(2, 2)
    assert layout.read(2) == [3]


def test_a_group_of_earlier_ordinals_behind_damage_is_not_shown_again(layout):
    segment = layout.add(ROTATED, [[b"one"], [b"two"], [b"six"]])
    again = oracle.group(48 + 2 * 95, 1, [b"one"], bytes([1]) * 16)
    layout.damage(segment, lambda data: flip(48 + 95)(data[: 48 + 2 * 95] + again))
    assert layout.read(1) == Span(2, 3)
    assert layout.read(2) == Span(3, 3)


@pytest.mark.parametrize("where", [5, 64 + 31 + 5], ids=["header", "payload"])
def test_a_planted_group_inside_a_payload_is_not_served_as_one_behind_damage(layout, where):
    """A client that copies a group of this very segment into its data makes no group: its own offset is wrong."""
    planted = oracle.group(48, 1, [b"one"], bytes([1]) * 16) + oracle.group(48, 4, [b"xx"], bytes([1]) * 16)
    segment = layout.add(ROTATED, [[b"one"], [planted], [b"three"]])
    layout.damage(segment, flip(48 + 95 + where))
    assert layout.read(1) == Span(2, 2)
    assert layout.read(2) == [3]
