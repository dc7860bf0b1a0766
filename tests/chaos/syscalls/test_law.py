"""Law 1 in the log of the real daemon: an answer leaves when its events' sync has returned, never before."""

from collections.abc import Iterator
from typing import NamedTuple

import pytest
from chaos.syscalls.forgetting import syncs_of
from chaos.syscalls.law import check_order, ordinals_in
from chaos.syscalls.machine import Machine
from chaos.syscalls.strace_log import Call


def test_every_answer_and_page_leaves_after_the_sync_of_its_events(everything):
    checked = check_order(everything)
    assert checked.early == []
    assert checked.answers > 40


@pytest.mark.parametrize("name", ["repeating", "rotating"])
def test_answered_again_after_a_restart_only_behind_a_sync_of_its_own(name, restarted):
    checked = check_order(restarted(name))
    assert checked.early == []
    assert checked.answers > 2


# The checker itself, held against logs that were changed by hand


class Group(NamedTuple):
    """One group of a recording: the calls that wrote and synced it, and its ordinals."""

    write: Call
    sync: Call
    last_send: Call
    ordinals: list[int]


def groups_of(recording) -> Iterator[Group]:
    """The groups of a recording, the last first."""
    machine = Machine(recording.place)
    writes = []
    for step in machine.run(recording.calls):
        if step.what == "change" and step.call.name == "pwritev2":
            ordinals = [*ordinals_in(b"".join(step.call.strings()))]
            writes += [(step.call, ordinals)] if ordinals else []
    for each in reversed([sync for sync in syncs_of(recording) if sync.kind == "a group"]):
        sync = each.call
        before = [write for write in writes if write[0].began < sync.began]
        sends = [call for call in recording.calls if call.name.startswith("send") and call.began > sync.began]
        if before and sends:
            yield Group(before[-1][0], sync, sends[-1], before[-1][1])


def told_at_once(recording) -> Group:
    """A group that was answered before the next one was synced, which would have covered it too."""
    return next(group for group in groups_of(recording) if set(group.ordinals) <= without(recording, group.sync))


def without(recording, sync) -> set[int]:
    """The ordinals that were told early, had this sync not been made."""
    return early_ordinals(changed(recording, sync))


def changed(recording, call, *instead):
    calls = [one for each in recording.calls for one in (instead if each is call else (each,))]
    return recording._replace(calls=sorted(calls, key=lambda one: one.began))


def early_ordinals(recording):
    return {one.ordinal for one in check_order(recording).early}


def test_missing_syncs_are_told_with_the_ordinals_they_should_have_covered(everything):
    groups = list(groups_of(everything))
    told = [group for group in groups if set(group.ordinals) <= without(everything, group.sync)]
    assert len(told) > len(groups) / 4, "most are answered before the next group is synced"


def test_a_failed_sync_covers_nothing(everything):
    group = told_at_once(everything)
    failed = group.sync._replace(result="-1 EIO (Input/output error)")
    assert set(group.ordinals) <= early_ordinals(changed(everything, group.sync, failed))


def test_a_sync_of_another_descriptor_covers_nothing(everything):
    group = told_at_once(everything)
    other = group.sync._replace(arguments=f"1{group.sync.arguments}")
    assert set(group.ordinals) <= early_ordinals(changed(everything, group.sync, other))


def test_a_sync_behind_the_answer_is_too_late(everything):
    group = told_at_once(everything)
    late = group.sync._replace(began=group.last_send.began, returned=group.last_send.began)
    assert set(group.ordinals) <= early_ordinals(changed(everything, group.sync, late))


def test_a_sync_that_began_before_the_write_had_returned_covers_nothing(everything):
    group = told_at_once(everything)
    slow = group.write._replace(returned=group.sync.began)
    assert set(group.ordinals) <= early_ordinals(changed(everything, group.write, slow))
