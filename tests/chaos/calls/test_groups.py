"""Torn and short writes of a group (faults.md, "Disk errors"); long.py does both at every byte."""

import pytest
from chaos.calls.groups import GROUP_BYTES, NOT_CUT_BACK, short, torn
from chaos.calls.tries import each

SOME = (0, 1, 31, 63, 64, 65, 92, GROUP_BYTES - 1)


def test_torn_write_and_killed_is_cut_to_the_group_before(zygote):
    """The bytes are kept in quarantine/, and what is sent again stands where they stood."""
    for taken, found in zip(SOME, each(lambda taken: torn(zygote, taken), SOME), strict=True):
        assert found.size == 0, f"after {taken} bytes the group is not cut"
        assert (found.torn_bytes > 0) is (taken > 0)
        assert len(found.quarantine) == (taken > 0)
        assert all(len(kept) == found.torn_bytes <= taken for kept in found.quarantine)


def test_a_whole_group_that_was_killed_before_it_was_synced_is_kept(zygote):
    """Not answered: there or not; it is whole, so it is there, and what is sent again is a duplicate."""
    found = torn(zygote, GROUP_BYTES)
    assert (found.size, found.torn_bytes, found.quarantine) == (GROUP_BYTES, 0, [])


@pytest.mark.parametrize("also", [(), (NOT_CUT_BACK,)], ids=["cut back", "the cut fails too"])
def test_short_write_and_the_process_lives_is_storage_full_and_never_another_group_after_half_a_group(zygote, also):
    some = SOME if not also else (1, 63, 64, GROUP_BYTES - 1)
    for taken, found in zip(some, each(lambda taken: short(zygote, taken, *also), some), strict=True):
        assert found.answer["code"] == "storage_full", f"after {taken} bytes: {found.answer}"
        assert found.size == 0, f"half a group of {taken} bytes stays"
        # Without the cut, it is a torn group for the opening.
        assert len(found.quarantine) == len(also)
