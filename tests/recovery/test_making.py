"""A relay is there whole or not there, wherever making or removing it was cut off."""

import contextlib
import errno

import pytest
from support import oracle
from support.faults import Fail, Faults, Kill, Killed, changing, each_fault
from support.relays import CREATED, RelayDisk, close, seen, state

from relayd.journal.real_storage import open_state_directory
from relayd.recovery.making import clear_leftovers, delete_removed, make_relay, remove_relay

REMOVED = f".demo.{oracle.STORE.hex()}.deleted"


@pytest.fixture
def disk(tmp_path):
    disk = RelayDisk(tmp_path)
    disk.journal.rmdir()
    disk.path.rmdir()
    return disk


@pytest.fixture
def relays(disk):
    directory = open_state_directory(str(disk.root / "relays"))
    yield directory
    directory.close()


def make(relays, disk):
    make_relay(
        relays,
        "demo",
        store=oracle.STORE,
        retention="checkpointed",
        max_active=1,
        now_ms=1000,
        new_id=lambda: oracle.SEGMENT,
    )


def names(disk) -> list[str]:
    return sorted(path.name for path in (disk.root / "relays").iterdir())


def test_a_made_relay_is_the_bytes_the_layout_says_and_opens(relays, disk):
    make(relays, disk)
    assert disk.tree() == {"journal": b"", "journal/active.log": oracle.segment_of([[CREATED]])}
    assert seen(disk.look()) == state(1)


def test_everything_is_synced_before_the_name_and_the_name_before_the_answer(disk, relays):
    faults = Faults()
    make(faults.wrap(relays), disk)
    syncs = [call for call in faults.names() if call.startswith(("sync", "replace"))]
    assert syncs == ["sync active.log", "sync journal/", "sync .demo.new/", "replace .demo.new demo", "sync relays/"]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_kill_at_every_call_of_making(relays, disk, after):
    for faults in each_fault(lambda n: Kill(n, after=after), changing):
        try:
            make(faults.wrap(relays), disk)
        except Killed:
            assert faults.met
        clear_leftovers(relays)
        if names(disk):
            assert names(disk) == ["demo"]
            assert seen(disk.look()) == state(1)
            relays.remove_tree("demo")
        make(relays, disk)
        relays.remove_tree("demo")


def test_an_error_at_every_call_of_making_leaves_the_name_free_or_the_relay_whole(relays, disk):
    for faults in each_fault(lambda n: Fail(n, errno.ENOSPC), changing):
        with contextlib.suppress(OSError):
            make(faults.wrap(relays), disk)
        if names(disk):
            assert names(disk) == ["demo"]
            assert seen(disk.look()) == state(1)
            relays.remove_tree("demo")


def test_a_taken_name_is_left_alone(relays, disk):
    make(relays, disk)
    before = disk.tree()
    with pytest.raises(FileExistsError):
        make(relays, disk)
    assert disk.tree() == before


def test_a_name_that_no_relay_can_have(relays):
    for bad in ("", ".x", "A", "a/b", "x" * 65):
        with pytest.raises(ValueError, match="no relay's name"):
            make_relay(
                relays,
                bad,
                store=oracle.STORE,
                retention="checkpointed",
                max_active=1,
                now_ms=1,
                new_id=lambda: b"x" * 16,
            )


def test_a_removed_relay_is_out_of_sight_then_gone(relays, disk):
    make(relays, disk)
    remove_relay(relays, "demo", oracle.STORE)
    assert names(disk) == [REMOVED]
    delete_removed(relays, "demo", oracle.STORE)
    assert names(disk) == []


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_kill_at_every_call_of_removing(relays, disk, after):
    for faults in each_fault(lambda n: Kill(n, after=after), changing):
        make(relays, disk)
        wrapped = faults.wrap(relays)
        try:
            remove_relay(wrapped, "demo", oracle.STORE)
            delete_removed(wrapped, "demo", oracle.STORE)
        except Killed:
            assert faults.met
        clear_leftovers(relays)
        if names(disk):
            assert names(disk) == ["demo"]
            assert seen(disk.look()) == state(1)
            relays.remove_tree("demo")


def test_a_name_is_gone_for_good_before_the_answer_and_the_bytes_before_the_end(relays, disk):
    make(relays, disk)
    faults = Faults()
    remove_relay(faults.wrap(relays), "demo", oracle.STORE)
    delete_removed(faults.wrap(relays), "demo", oracle.STORE)
    done = [call for call in faults.names() if not call.startswith("stat")]
    assert done == [f"replace demo {REMOVED}", "sync relays/", f"remove_tree {REMOVED}", "sync relays/"]


def test_removing_twice_with_a_leftover_in_the_way(relays, disk):
    for _ in range(2):
        make(relays, disk)
        remove_relay(relays, "demo", oracle.STORE)
    assert names(disk) == [REMOVED]
    with pytest.raises(FileNotFoundError):
        remove_relay(relays, "demo", b"x" * 16)


def test_only_leftovers_are_cleared_and_the_names_that_stay_are_synced(relays, disk):
    make(relays, disk)
    stay = [".hidden", ".demo.new.txt", ".x.deleted", ".UPPER.new", f".{'0' * 32}.deleted", "a.new"]
    for folder in stay:
        relays.make_directory(folder)
    (disk.root / "relays" / ".file.new").write_bytes(b"no directory")
    go = [".demo.new", ".other.new", REMOVED]
    for folder in go:
        relays.make_directory(folder)
        (disk.root / "relays" / folder / "inside").write_bytes(b"x")
    faults = Faults()
    assert sorted(clear_leftovers(faults.wrap(relays))) == sorted(go)
    assert names(disk) == sorted([*stay, "demo", ".file.new"])
    assert faults.names()[-1] == "sync relays/"


def test_a_made_relay_that_was_never_synced_by_name_is_synced_by_the_next_start(relays, disk):
    """A kill between rename and sync: what is answered from the relay afterwards must not go with its name."""
    faults = Faults(Kill(1), lambda call: str(call) == "sync relays/")
    with pytest.raises(Killed):
        make(faults.wrap(relays), disk)
    start = Faults()
    clear_leftovers(start.wrap(relays))
    assert "sync relays/" in start.names()
    close(disk.open())
