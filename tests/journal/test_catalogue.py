import itertools
import threading

from hypothesis import given
from hypothesis import strategies as st
from support import oracle

from relayd.journal.catalogue import Catalogue, Segment, View
from relayd.journal.groups import INDEX_EVERY_BYTES, GroupIndex
from relayd.journal.names import SegmentKind, SegmentName
from relayd.journal.writer import Written

ACTIVE, ROTATED, SEALED, LOST = SegmentKind


def segments_of(*spans: tuple[SegmentKind, int, int]) -> list[Segment]:
    return [Segment(*span) for span in spans]


MIXED = View(
    tuple(segments_of((SEALED, 5, 9), (LOST, 10, 12), (ROTATED, 13, 20), (SEALED, 31, 40))), Segment(ACTIVE, 41, 43)
)


@given(st.integers(0, 60))
def test_find_gives_the_file_that_holds_an_ordinal_and_after_the_next_one(ordinal):
    holding = [each for each in MIXED.segments() if each.first <= ordinal <= each.last]
    behind = [each for each in MIXED.segments() if each.last > ordinal]
    assert MIXED.find(ordinal) == (holding[0] if holding else None)
    assert MIXED.after(ordinal) == (behind[0] if behind else None)


def test_an_active_segment_without_records_holds_nothing():
    view = Catalogue([], Segment(ACTIVE, 1, 0)).view()
    assert view.find(1) is None
    assert view.after(0) is None


def test_files_given_in_any_order_stand_in_the_order_of_their_ordinals():
    files = segments_of((SEALED, 11, 20), (LOST, 21, 22), (ROTATED, 1, 10))
    assert [each.first for each in Catalogue(files).view().settled] == [1, 11, 21]


def test_names_are_those_of_the_layout():
    assert [each.name for each in MIXED.segments()] == [
        "00000000000000000005-00000000000000000009.log.zst",
        "00000000000000000010-00000000000000000012.lost",
        "00000000000000000013-00000000000000000020.log",
        "00000000000000000031-00000000000000000040.log.zst",
        "active.log",
    ]


def test_a_view_never_changes_and_a_new_one_has_what_happened():
    catalogue = Catalogue([], Segment(ACTIVE, 1, 0, 48, oracle.SEGMENT))
    before = catalogue.view()
    catalogue.append_group(Written(1, 48, 200), 1, 3)
    appended = catalogue.view()
    name = SegmentName(ROTATED, 1, 3)
    catalogue.rotated(name, b"fresh segment id")
    rotated = catalogue.view()
    catalogue.append_group(Written(4, 48, 150), 4, 4)
    catalogue.sealed(name, 77)
    sealed = catalogue.view()
    catalogue.dropped(["00000000000000000001-00000000000000000003.log.zst"])

    def told(view: View) -> list[tuple]:
        return [(each.kind, each.first, each.last, each.size, each.segment) for each in view.segments()]

    assert told(before) == [(ACTIVE, 1, 0, 48, oracle.SEGMENT)]
    assert told(appended) == [(ACTIVE, 1, 3, 200, oracle.SEGMENT)]
    assert told(rotated) == [(ROTATED, 1, 3, 200, oracle.SEGMENT), (ACTIVE, 4, 3, 48, b"fresh segment id")]
    assert told(sealed) == [(SEALED, 1, 3, 77, None), (ACTIVE, 4, 4, 150, b"fresh segment id")]
    assert told(catalogue.view()) == [(ACTIVE, 4, 4, 150, b"fresh segment id")]
    assert catalogue.find(4) == catalogue.view().active
    assert catalogue.find(3) is None


def test_sealing_a_file_that_was_dropped_changes_nothing():
    catalogue = Catalogue(segments_of((ROTATED, 1, 3), (ROTATED, 4, 6)))
    catalogue.dropped([catalogue.view().settled[0].name])
    catalogue.sealed(SegmentName(ROTATED, 1, 3), 10)
    assert [each[:3] for each in catalogue.view().settled] == [(ROTATED, 4, 6)]


def test_an_active_segment_begins_with_its_first_group_where_that_jumps():
    catalogue = Catalogue([], Segment(ACTIVE, 11, 10, 48))
    catalogue.append_group(Written(21, 48, 100), 21, 22)
    assert catalogue.view().active[1:3] == (21, 22)


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 2 * INDEX_EVERY_BYTES)), max_size=60))
def test_an_index_leads_to_within_its_distance_of_any_group_and_bounds_it(groups):
    index, offset, ordinal, stood = GroupIndex(), 48, 1, []
    for count, size in groups:
        index.add(ordinal, offset, offset + size)
        stood.append((ordinal, ordinal + count - 1, offset, offset + size))
        ordinal, offset = ordinal + count, offset + size
    assert index.end == offset
    for first, last, begins, ends in stood:
        place = index.place(last)
        assert (place.first, place.offset) in [(each[0], each[2]) for each in stood]
        assert place.first <= first
        assert begins - place.offset < INDEX_EVERY_BYTES
        assert ends <= index.bound(last) <= offset
    assert index.place(0) is None


def test_an_index_of_many_small_groups_stays_small():
    index = GroupIndex()
    for at in range(10_000):
        index.add(at + 1, 48 + 100 * at, 148 + 100 * at)
    assert len(index) <= 10_000 * 100 // INDEX_EVERY_BYTES + 1


def test_readers_in_threads_see_whole_views_while_the_owner_changes_them():
    """No view has an ordinal twice, or a hole, however it falls between rotation, sealing and collection."""
    catalogue = Catalogue([], Segment(ACTIVE, 1, 0, 48))
    wrong: list[View] = []
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            view = catalogue.view()
            spans = [(each.first, each.last) for each in view.segments()]
            wrong.extend(view for (_, end), (begin, _) in itertools.pairwise(spans) if begin != end + 1)

    readers = [threading.Thread(target=look) for _ in range(3)]
    for each in readers:
        each.start()
    for first in range(1, 1201, 3):
        catalogue.append_group(Written(first, 48, 100), first, first + 2)
        catalogue.rotated(SegmentName(ROTATED, first, first + 2))
        catalogue.sealed(SegmentName(ROTATED, first, first + 2), 50)
        if first > 100:
            catalogue.dropped([catalogue.view().settled[0].name])
    done.set()
    for each in readers:
        each.join()
    assert wrong == []
