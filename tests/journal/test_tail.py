import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import oracle

from relayd.journal.tail import Tail


def groups_of(sizes: list[list[int]], first: int = 1) -> list[tuple[int, int, bytes]]:
    """Groups with records of bodies of these sizes: first ordinal, count, payload."""
    made = []
    for group in sizes:
        records = [oracle.record(first + at, bytes([first % 251]) * size) for at, size in enumerate(group)]
        made.append((first, len(group), b"".join(records)))
        first += len(group)
    return made


def ordinals(page: bytes) -> list[int]:
    found, at = [], 0
    while at < len(page):
        length, ordinal = struct.unpack_from("<IQ", page, at)
        found.append(ordinal)
        at += 28 + length
    assert at == len(page), "whole records"
    return found


def filled(groups: list[tuple[int, int, bytes]], bytes_max: int = 2**20) -> Tail:
    tail = Tail(bytes_max)
    for group in groups:
        tail.append(*group)
    return tail


SIZES = st.lists(st.lists(st.integers(1, 60), min_size=1, max_size=5), min_size=1, max_size=12)


@given(SIZES, st.integers(1, 2000), st.integers(0, 70), st.integers(0, 70), st.integers(1, 1200))
def test_a_page_is_the_whole_records_behind_a_cursor_within_both_bounds(sizes, bytes_max, after, through, max_bytes):
    """Against a model that keeps all records in a list."""
    groups = groups_of(sizes)
    tail = filled(groups, bytes_max)
    kept: list[tuple[int, int, bytes]] = []
    for group in reversed(groups):
        if sum(len(each[2]) for each in kept) + len(group[2]) > bytes_max:
            break
        kept.insert(0, group)
    stream = b"".join(each[2] for each in kept)
    here = ordinals(stream)
    page = tail.page(after, through, max_bytes)
    assert tail.held_bytes == len(stream) <= bytes_max
    assert (tail.first_ordinal, tail.last_ordinal) == ((here[0], here[-1]) if here else (None, None))
    if after + 1 not in here or through <= after:
        assert page is None
        return
    got = ordinals(page)
    assert got == list(range(after + 1, got[-1] + 1))
    assert got[-1] <= through
    assert len(page) <= max_bytes or len(got) == 1
    assert page in stream


@given(SIZES, st.integers(1, 400))
def test_reading_on_from_each_page_gives_every_record(sizes, max_bytes):
    groups = groups_of(sizes)
    tail, after, got = filled(groups), 0, b""
    last = tail.last_ordinal
    while after < last:
        page = tail.page(after, last, max_bytes)
        got += page
        after = ordinals(page)[-1]
    assert got == b"".join(each[2] for each in groups)


@given(SIZES)
def test_a_page_takes_as_many_whole_groups_as_fit(sizes):
    groups = groups_of(sizes)
    tail = filled(groups)
    stream = b"".join(each[2] for each in groups)
    for end in range(1, len(groups) + 1):
        fits = len(b"".join(each[2] for each in groups[:end]))
        assert tail.page(0, tail.last_ordinal, fits) == stream[:fits]
        last = groups[end - 1][0] + groups[end - 1][1] - 1
        assert tail.page(0, last, len(stream)) == stream[:fits]


def test_appending_and_following_never_look_into_a_group():
    """The hot path costs no work per record: a group is taken and given as it came, whatever is in it."""
    tail = Tail()
    payload = b"no records at all"
    tail.append(1, 1000, payload)
    assert tail.page(0, 1000, 2**20) is payload
    tail.append(1001, 5, payload)
    assert tail.page(1000, 1005, 2**20) is payload
    assert tail.page(0, 1005, 2**20) == payload * 2


def test_readers_that_ask_the_same_get_the_same_bytes():
    tail = filled(groups_of([[10], [10, 10], [10]]))
    page = tail.page(1, 4, 1000)
    assert tail.page(1, 4, 1000) is page
    assert tail.page(1, 4, 999) is not page
    tail.append(*groups_of([[5]], first=5)[0])
    assert ordinals(tail.page(1, 5, 1000)) == [2, 3, 4, 5]


def test_a_hole_empties_what_lies_before_it():
    tail = filled(groups_of([[10], [10]]))
    tail.append(*groups_of([[7]], first=9)[0])
    assert (tail.first_ordinal, tail.last_ordinal, tail.held_bytes) == (9, 9, 35)
    assert tail.page(1, 9, 1000) is None
    assert ordinals(tail.page(8, 9, 1000)) == [9]


def test_a_group_larger_than_the_bound_is_not_kept():
    tail = filled(groups_of([[10], [500]]), 200)
    assert (tail.first_ordinal, tail.held_bytes) == (None, 0)
    assert tail.page(0, 2, 100) is None
    tail.append(*groups_of([[20]], first=3)[0])
    assert ordinals(tail.page(2, 3, 100)) == [3]


def test_it_stays_bounded_over_very_many_groups():
    tail = Tail(3500)
    for first in range(1, 10_001):
        tail.append(first, 1, oracle.record(first, b"12345678"))
        assert tail.held_bytes <= 3500
    assert (tail.first_ordinal, tail.last_ordinal) == (9904, 10_000)
    assert ordinals(tail.page(9950, 9960, 10**6)) == list(range(9951, 9961))
    assert max(map(len, (tail._firsts, tail._payloads, tail._ends))) < 3000


@pytest.mark.parametrize("ordinal", range(8))
def test_digests_are_those_of_the_records(ordinal):
    tail = filled(groups_of([[10], [10, 20, 5], [10]], first=2))
    expected = None
    for first, count, payload in groups_of([[10], [10, 20, 5], [10]], first=2):
        if first <= ordinal < first + count:
            at = ordinals(payload).index(ordinal)
            start = sum(28 + size for size in {2: [10], 3: [10, 20, 5], 6: [10]}[first][:at])
            expected = payload[start + 12 : start + 28]
    assert tail.digest_of(ordinal) == expected


def test_cleared_it_is_as_new():
    tail = filled(groups_of([[10], [10]]))
    tail.page(0, 2, 100)
    tail.clear()
    assert (tail.first_ordinal, tail.last_ordinal, tail.held_bytes) == (None, None, 0)
    assert tail.page(0, 2, 100) is None
