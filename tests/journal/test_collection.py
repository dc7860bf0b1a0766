import errno

import pytest
from support.faults import Fail, Faults

from relayd.journal.catalogue import Segment, View
from relayd.journal.collection import collectable, evictable, unlink_segments
from relayd.journal.names import SegmentKind
from relayd.journal.real_storage import open_state_directory

ACTIVE, ROTATED, SEALED, LOST = SegmentKind
FILES = (Segment(SEALED, 1, 10, 100), Segment(LOST, 11, 12), Segment(ROTATED, 13, 20, 200), Segment(SEALED, 21, 30, 50))
FULL = View(FILES, Segment(ACTIVE, 31, 35, 80))
EMPTY = View(FILES, Segment(ACTIVE, 31, 30, 48))


@pytest.mark.parametrize(
    ("view", "base", "whole"),
    [
        (FULL, 0, 0),
        (FULL, 9, 0),
        (FULL, 10, 1),
        (FULL, 11, 1),
        (FULL, 12, 2),
        (FULL, 29, 3),
        (FULL, 30, 4),
        (FULL, 2**64 - 2, 4),
        (EMPTY, 30, 3),
        (View(FILES, None), 30, 3),
        (View(FILES[:2], Segment(ACTIVE, 13, 12)), 12, 0),
        (View(FILES[:1], Segment(ACTIVE, 11, 10)), 10, 0),
        (View((), Segment(ACTIVE, 1, 0)), 5, 0),
        (View((), None), 5, 0),
    ],
)
def test_whole_files_at_or_below_base_may_go_oldest_first_but_never_the_newest_with_a_record(view, base, whole):
    assert collectable(view, base) == [each.name for each in view.settled[:whole]]


@pytest.mark.parametrize(
    ("view", "bytes_max", "through"),
    [
        (FULL, 430, None),
        (FULL, 429, 10),
        (FULL, 330, 10),
        (FULL, 329, 20),
        (FULL, 130, 20),
        (FULL, 129, 30),
        (FULL, 1, 30),
        (EMPTY, 1, 20),
        (View(FILES, None), 1, 20),
        (View((), Segment(ACTIVE, 1, 9, 500)), 1, None),
        (View((), None), 1, None),
    ],
)
def test_bounded_retention_drops_the_oldest_whole_files_until_the_rest_fits(view, bytes_max, through):
    assert evictable(view, bytes_max) == through


@pytest.fixture
def journal(tmp_path):
    for each in FILES:
        (tmp_path / each.name).touch()
    opened = open_state_directory(str(tmp_path))
    yield opened
    opened.close()


def test_files_are_unlinked_in_order_and_then_the_directory_is_synced(journal, tmp_path):
    faults = Faults()
    names = [each.name for each in FILES[:3]]
    unlink_segments(faults.wrap(journal), names)
    assert faults.names() == [*(f"unlink {name}" for name in names), f"sync {tmp_path.name}/"]
    assert [each.name for each in tmp_path.iterdir()] == [FILES[3].name]


def test_a_file_that_is_gone_already_is_passed_over(journal, tmp_path):
    (tmp_path / FILES[0].name).unlink()
    unlink_segments(journal, [each.name for each in FILES])
    assert list(tmp_path.iterdir()) == []


def test_an_error_leaves_the_newer_files(journal, tmp_path):
    faults = Faults(Fail(2, errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        unlink_segments(faults.wrap(journal), [each.name for each in FILES])
    assert sorted(each.name for each in tmp_path.iterdir()) == [each.name for each in FILES[1:]]
