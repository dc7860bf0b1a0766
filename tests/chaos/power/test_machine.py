"""The machine shows what is taken of it: what a power cut does to plain files, before relayd's own are looked at."""

import os

import pytest
from chaos.power.machine import LOG_FLUSHED, NOTHING_FLUSHED, a_machine, a_place, write_out
from chaos.power.thin import ThinMachine

PAGE = 4096
FLAGS = pytest.mark.parametrize("flag", [LOG_FLUSHED, NOTHING_FLUSHED])


def pages(file) -> str:
    """One letter a page, a dot for zeros."""
    data = file.read_bytes()
    return "".join(chr(data[at]) if data[at] else "." for at in range(0, len(data), PAGE))


def write(file, *letters: str, sync: bool = False) -> None:
    """Appends pages."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        for letter in letters:
            os.write(descriptor, letter.encode() * PAGE)
        if sync:
            os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


@FLAGS
def test_what_was_synced_is_there_after_a_cut_and_what_was_not_is_gone(flag):
    with a_machine() as machine:
        write(machine.root / "file", "a", sync=True)
        write(machine.root / "file", "b")
        machine.cut(flag)
        machine.restart()
        assert pages(machine.root / "file") == "a"


def test_a_name_whose_directory_was_not_synced_is_gone_after_a_cut_with_nothing_flushed():
    with a_machine() as machine:
        write(machine.root / "file", "a", sync=True)
        (machine.root / "file").rename(machine.root / "renamed")
        machine.cut(NOTHING_FLUSHED)
        machine.restart()
        assert [file.name for file in machine.root.iterdir() if file.is_file()] == ["file"]


def test_write_reordering_a_later_page_reaches_the_disk_and_an_earlier_one_does_not():
    with a_machine() as machine:
        file = machine.root / "file"
        write(file, "a", sync=True)
        write(file, "b", "c")
        write_out(file, 2 * PAGE, PAGE)
        machine.cut(LOG_FLUSHED)
        machine.restart()
        assert pages(file) == "a.c"


def test_zero_tails_a_size_reaches_the_disk_and_the_data_does_not():
    with a_machine(options="data=writeback,nodelalloc") as machine:
        file = machine.root / "file"
        write(file, "a", sync=True)
        write(file, "b", "c")
        machine.cut(LOG_FLUSHED)
        machine.restart()
        assert pages(file) == "a.."


def test_a_failed_sync_succeeds_the_second_time_though_the_bytes_are_in_the_page_cache_only():
    with a_place() as place:
        machine = ThinMachine(place)
        machine.make()
        file = machine.root / "file"
        write(file, "a", sync=True)
        machine.fill()
        with pytest.raises(OSError, match="No space left on device"):
            write(file, "b", sync=True)
        machine.free()
        descriptor = os.open(file, os.O_RDWR)
        os.fdatasync(descriptor)
        os.close(descriptor)
        assert pages(file) == "ab"
        machine.cut(LOG_FLUSHED)
        machine.restart()
        assert pages(file) == "a."


def test_what_a_killed_run_left_mounted_is_cleared_by_the_next():
    with a_machine() as machine:
        theirs = machine.image.parent
        # The name of one whose maker is gone: no process has this number and was started then.
        left = theirs.rename(theirs.with_name("relayd-power-1-0-left"))
        assert os.path.ismount(left / "root")
        with a_place():
            assert not left.exists()
