import contextlib
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import oracle, sealed_oracle
from support.counting import Counting
from support.layout import ACTIVE, LOST, ROTATED, SEALED, Layout, flip, walk

from relayd.journal.pages import PageReader, Replan, make_page_cache
from relayd.protocol.cursor import Span
from relayd.protocol.limits import KIB, MIB


@pytest.fixture
def layout(tmp_path):
    made = Layout(tmp_path / "journal")
    yield made
    made.opened.close()


@pytest.fixture
def mixed(layout):
    """Ordinals 1 to 7 sealed, 8 to 9 given up, 10 to 15 rotated, 16 to 18 active."""
    layout.add(SEALED, [[b"a1", b"a2"], [b"a3"], [b"a4", b"a5", b"a6"], [b"a7"]])
    layout.add(LOST, [[b"", b""]])
    layout.add(ROTATED, [[b"c1"], [b"c2", b"c3"], [b"c4", b"c5", b"c6"]])
    layout.add(ACTIVE, [[b"d1"], [b"d2", b"d3"]])
    return layout


BLOCKS = st.lists(st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=4), min_size=1, max_size=4)
FILES = st.lists(st.tuples(st.sampled_from([SEALED, ROTATED, LOST]), BLOCKS, st.booleans()), max_size=4)


@settings(deadline=None)
@given(FILES, BLOCKS, st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(1, 400)), max_size=6))
def test_a_page_is_the_whole_records_behind_a_cursor_within_both_bounds(tmp_path_factory, files, active, asked):
    """Against a model that has every record in a dictionary, over any row of files."""
    layout = Layout(tmp_path_factory.mktemp("layout"))
    for kind, blocks, indexed in files:
        layout.add(kind, blocks, indexed=indexed)
    layout.add(ACTIVE, active)
    with contextlib.closing(layout.opened):
        for anywhere, beyond, max_bytes in asked:
            after, through = min(anywhere, layout.last - 1), min(beyond, layout.last)
            got = layout.read(after, through, max_bytes)
            if through <= after:
                assert got == []
            elif isinstance(got, Span):
                lost = next(each for each in layout.segments if each.first <= after + 1 <= each.last)
                assert (lost.kind, got) == (LOST, Span(after + 1, lost.last))
            else:
                assert got == list(range(after + 1, got[-1] + 1))
                assert got[-1] <= through
                assert sum(28 + len(layout.bodies[each]) for each in got) <= max_bytes or len(got) == 1
        assert walk(layout, 64) == walk(layout, MIB) == sorted(layout.bodies)


def test_a_page_goes_on_over_files_and_ends_before_what_cannot_be_read(mixed):
    assert mixed.read(0) == [1, 2, 3, 4, 5, 6, 7]
    assert mixed.read(7) == Span(8, 9)
    assert mixed.read(8) == Span(9, 9)
    assert mixed.read(9) == list(range(10, 19))
    assert mixed.read(3, 5) == [4, 5]
    assert mixed.read(18, 18) == []


def test_a_hole_between_files_is_a_span_that_cannot_be_read(mixed):
    mixed.segments.pop(1)
    assert mixed.read(7) == Span(8, 9)
    assert mixed.read(0) == [1, 2, 3, 4, 5, 6, 7]


def test_a_view_older_than_what_is_asked_for_is_planned_again(mixed):
    with pytest.raises(Replan):
        mixed.read(18, 25)
    assert mixed.read(17, 25) == [18]


@pytest.mark.parametrize("ordinal", range(20))
def test_a_digest_is_that_of_the_record_where_a_file_holds_it(mixed, ordinal):
    body = mixed.bodies.get(ordinal)
    expected = None if body is None else oracle.record(ordinal, body)[12:28]
    assert mixed.reader.digest_at(mixed.view, ordinal) == expected


def test_the_digest_of_a_damaged_record_is_not_known(mixed):
    mixed.damage(mixed.segments[0], flip(10))
    assert mixed.reader.digest_at(mixed.view, 1) is None
    assert mixed.reader.digest_at(mixed.view, 3) == oracle.record(3, b"a3")[12:28]


# What a page costs


@pytest.fixture
def counted(tmp_path):
    """4 MiB sealed in 16 frames, 4 MiB rotated in 256 groups, both of records of 1 KiB that do not compress."""
    layout = Layout(tmp_path / "journal")
    block = [[os.urandom(996) for _ in range(256)] for _ in range(16)]
    layout.add(SEALED, block)
    layout.add(ROTATED, [each[at : at + 16] for each in block for at in range(0, 256, 16)], indexed=True)
    layout.add(ROTATED, [each[at : at + 16] for each in block for at in range(0, 256, 16)])
    layout.add(ACTIVE, [[b"x"]])
    counting = Counting(layout.opened)
    layout.reader = PageReader(counting, layout.cache, oracle.STORE)
    layout.counting = counting
    yield layout
    layout.opened.close()


@pytest.mark.parametrize("ordinal", [1, 2000, 4096])
def test_one_record_of_a_sealed_segment_costs_its_index_and_one_frame(counted, ordinal):
    assert counted.read(ordinal - 1, ordinal) == [ordinal]
    assert counted.counting.bytes_read < 4 * KIB + 256 * KIB + 1 * KIB
    assert counted.counting.opened == [counted.segments[0].name]


def test_what_is_kept_costs_no_call(counted):
    counted.read(0, 200, 100 * KIB)
    counted.counting.reset()
    assert counted.read(50, 200, 100 * KIB)
    assert counted.read(0, 256, 10 * KIB)
    assert (counted.counting.bytes_read, counted.counting.opened) == (0, [])


def test_a_page_of_a_sealed_segment_ends_with_a_frame_and_reads_none_for_nothing(counted):
    got = counted.read(0, None, 1 * MIB)
    assert len(got) == 1024
    assert counted.counting.bytes_read < 4 * KIB + 1 * MIB + 4 * KIB
    counted.counting.reset()
    got = counted.read(1024, None, 1 * MIB - 1)
    assert got[-1] == 1024 + 768
    assert counted.counting.bytes_read < 768 * KIB + 4 * KIB


@pytest.mark.parametrize("ordinal", [4097, 6000, 8192])
def test_one_record_of_an_indexed_file_costs_the_stretch_it_stands_in(counted, ordinal):
    assert counted.read(ordinal - 1, ordinal) == [ordinal]
    assert counted.counting.bytes_read <= 64 * KIB + 2 * 17 * KIB
    counted.counting.reset()
    got = counted.read(ordinal - 1, 8192, 64 * KIB)
    assert got[0] == ordinal
    assert counted.counting.bytes_read <= 2 * 64 * KIB + 2 * 17 * KIB


def test_a_file_without_an_index_is_walked_once(counted):
    assert counted.read(8192, 8193) == [8193]
    counted.counting.reset()
    assert counted.read(10_000, 10_001) == [10_001]
    assert counted.counting.bytes_read <= 64 * KIB + 3 * 17 * KIB


def test_what_is_kept_stays_bounded_however_much_is_read(tmp_path):
    layout = Layout(tmp_path / "journal")
    with contextlib.closing(layout.opened):
        for _ in range(12):
            layout.add(SEALED, [[bytes(1000)] * 60 for _ in range(3)])
        layout.cache = make_page_cache(frames_bytes=300_000, indexes_bytes=6_000)
        layout.reader = PageReader(layout.opened, layout.cache, oracle.STORE)
        assert walk(layout, 50_000) == sorted(layout.bodies)
        assert 0 < layout.cache.frames.held_bytes <= 300_000
        assert 0 < layout.cache.indexes.held_bytes <= 6_000


def test_frames_are_kept_per_reader_so_that_a_relay_made_again_never_shows_the_old_ones(layout):
    old = layout.add(SEALED, [[b"old"]])
    assert layout.read(0) == [1]
    (layout.path / old.name).write_bytes(sealed_oracle.sealed_of([[b"new"]]))
    again = PageReader(layout.opened, layout.cache, oracle.STORE)
    assert again.read(layout.view, 0, 1, MIB) == oracle.record(1, b"new")
