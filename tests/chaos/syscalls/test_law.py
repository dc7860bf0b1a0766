"""Law 1 in the log of the real daemon: an answer leaves when its events' sync has returned, never before."""

import pytest
from chaos.syscalls.forgetting import syncs_of
from chaos.syscalls.law import check_order, ordinals_in
from chaos.syscalls.machine import Machine


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


class Group:
    """One group of a recording, with the calls that wrote and synced it, and its ordinals."""

    def __init__(self, recording) -> None:
        sync = [sync for sync in syncs_of(recording) if sync.kind == "a group"][-2]
        machine = Machine(recording.place)
        for step in machine.run(recording.calls):
            if step.what == "change" and step.call.name == "pwritev2":
                ordinals = [*ordinals_in(b"".join(step.call.strings()))]
                if ordinals and step.call.began < sync.call.began:
                    self.write, self.ordinals = step.call, ordinals
        self.sync = sync.call
        sends = [call for call in recording.calls if call.name.startswith("send") and call.began > sync.call.began]
        self.last_send = sends[-1]


def changed(recording, call, *instead):
    calls = [one for each in recording.calls for one in (instead if each is call else (each,))]
    return recording._replace(calls=sorted(calls, key=lambda one: one.began))


def early_ordinals(recording):
    return {one.ordinal for one in check_order(recording).early}


def test_a_missing_sync_is_told_with_the_ordinals_it_should_have_covered(everything):
    group = Group(everything)
    assert set(group.ordinals) <= early_ordinals(changed(everything, group.sync))


def test_a_failed_sync_covers_nothing(everything):
    group = Group(everything)
    failed = group.sync._replace(result="-1 EIO (Input/output error)")
    assert set(group.ordinals) <= early_ordinals(changed(everything, group.sync, failed))


def test_a_sync_of_another_descriptor_covers_nothing(everything):
    group = Group(everything)
    other = group.sync._replace(arguments=f"1{group.sync.arguments}")
    assert set(group.ordinals) <= early_ordinals(changed(everything, group.sync, other))


def test_a_sync_behind_the_answer_is_too_late(everything):
    group = Group(everything)
    late = group.sync._replace(began=group.last_send.began, returned=group.last_send.began)
    assert set(group.ordinals) <= early_ordinals(changed(everything, group.sync, late))


def test_a_sync_that_began_before_the_write_had_returned_covers_nothing(everything):
    group = Group(everything)
    slow = group.write._replace(returned=group.sync.began)
    assert set(group.ordinals) <= early_ordinals(changed(everything, group.write, slow))
