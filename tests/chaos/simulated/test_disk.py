"""The simulated disk is a disk: as the real one while nothing fails, and as harsh as POSIX lets one be when it does."""

import random
from collections import Counter

import pytest
from chaos.simulated.disk import Disk
from chaos.simulated.plans import DiskFaults
from chaos.simulated.surviving import PAGE, SECTOR, WAYS, apply, pages, sectors, torn
from support.faults import Fail, named

from relayd.journal.real_storage import open_state_directory

NAMES = ("a", "b", "c", "d")


@pytest.fixture
def disk():
    return Disk(random.Random(1))


def write(directory, name, content, offset=0, *, sync=False, mode="create"):
    file = directory.open(name, mode)
    file.write((content,), offset)
    if sync:
        file.sync()
    file.close()


def told(act):
    """What a call gives, or the kind and number of the error that it raises."""
    try:
        found = act()
    except (OSError, ValueError) as error:
        return type(error), getattr(error, "errno", None)
    return None if found is None or isinstance(found, tuple) else found


class Both:
    """The real disk and the simulated one, each call made on both and told the same."""

    def __init__(self, place, chance):
        self.chance = chance
        self.pairs = [(open_state_directory(str(place)), Disk(chance).state())]
        self.files = []

    def call(self, act):
        pair = self.chance.choice(self.pairs)
        first, second = (told(lambda one=one: act(one)) for one in pair)
        assert first == second

    def open(self, name, _target):
        mode, opened = self.chance.choice(("create", "create", "update", "read")), []
        self.call(lambda one: opened.append(one.open(name, mode)))
        if opened and mode != "read":
            self.files.append(opened)

    def write(self, _name, _target):
        data, offset = self.chance.randbytes(self.chance.randrange(700)), self.chance.randrange(900)
        for file in self.chance.choice(self.files or [()]):
            file.write((data[:5], data[5:]), offset)

    def truncate(self, _name, _target):
        size = self.chance.randrange(900)
        for file in self.chance.choice(self.files or [()]):
            file.truncate(size)

    def directory(self, name, _target):
        opened = []
        self.call(lambda one: opened.append(one.directory(name)))
        if opened:
            self.pairs.append(tuple(opened))

    def make_directory(self, name, _target):
        self.call(lambda one: one.make_directory(name))

    def replace(self, name, target):
        self.call(lambda one: one.replace(name, target))

    def unlink(self, name, _target):
        self.call(lambda one: one.unlink(name))

    def remove_tree(self, name, _target):
        self.call(lambda one: one.remove_tree(name))

    def look(self, name, _target):
        self.call(lambda one: one.entries())
        self.call(lambda one: one.still_there())
        self.call(lambda one: one.stat(name) is None)
        for first, second in self.files:
            assert (first.size(), first.read(1000, 0)) == (second.size(), second.read(1000, 0))

    def close(self):
        for one in (one for pair in (*self.files, *self.pairs) for one in pair):
            one.close()
            one.close()


STEPS = (
    Both.open, Both.open, Both.write, Both.write, Both.truncate, Both.directory, Both.make_directory, Both.replace,
    Both.unlink, Both.remove_tree, Both.look,
)  # fmt: skip


@pytest.mark.parametrize("seed", range(12))
def test_while_nothing_fails_it_does_what_the_real_one_does(tmp_path, seed):
    chance = random.Random(seed)
    both = Both(tmp_path, chance)
    for _ in range(250):
        chance.choice(STEPS)(both, chance.choice(NAMES), chance.choice(NAMES))
    for name in ("", ".", "..", "x/y"):
        both.call(lambda one, name=name: one.open(name, "read"))
    assert len(both.pairs) > 1
    both.close()


def test_a_second_lock_is_refused_until_the_first_is_given_back(disk):
    first, second = disk.state(), disk.state()
    assert first.lock()
    assert first.lock()
    assert not second.lock()
    first.close()
    assert second.lock()
    assert disk.crash().state().lock(), "a dead process holds nothing"


def test_what_was_synced_survives_every_cut_and_what_was_not_does_not_survive_all(disk):
    state = disk.state()
    write(state, "file", b"synced", sync=True)
    state.sync()
    write(state, "file", b" and more", 6, mode="update")
    left = [disk.cut(random.Random(seed)).tree()["file"] for seed in range(200)]
    assert all(content.startswith(b"synced") for content in left)
    assert {b"synced", b"synced and more"} < set(left)
    assert disk.cut(random.Random(0), "nothing").tree() == {"file": b"synced"}
    assert disk.crash().tree() == {"file": b"synced and more"}, "a process that dies loses nothing of the page cache"


def test_a_synced_file_whose_name_was_not_synced_may_be_gone_with_its_bytes(disk):
    state = disk.state()
    write(state, "file", b"content", sync=True)
    left = Counter(bool(disk.cut(random.Random(seed)).tree()) for seed in range(50))
    assert left[True]
    assert left[False]
    state.sync()
    assert disk.cut(random.Random(0), "nothing").tree() == {"file": b"content"}


def test_of_names_changed_since_the_last_sync_a_first_part_survives(disk):
    state = disk.state()
    for name in ("one", "two"):
        write(state, name, name.encode(), sync=True)
    state.sync()
    state.replace("one", "three")
    state.unlink("two")
    state.make_directory("four")
    left = {tuple(disk.cut(random.Random(seed)).tree()) for seed in range(100)}
    assert left == {("one", "two"), ("three", "two"), ("three",), ("four/", "three")}


def test_an_overwritten_or_cut_file_is_the_old_or_the_new_piece_by_piece(disk):
    state = disk.state()
    write(state, "file", b"o" * 4 * SECTOR, sync=True)
    state.sync()
    file = state.open("file", "update")
    file.write((b"n" * 3 * SECTOR,), 0)
    left = {disk.cut(random.Random(seed)).tree()["file"] for seed in range(300)}
    pieces = {tuple(content[at : at + SECTOR] for at in range(0, len(content), SECTOR)) for content in left}
    assert {len(each) for each in pieces} == {4}
    assert {piece for each in pieces for piece in each} == {b"o" * SECTOR, b"n" * SECTOR}
    assert len(pieces) == 8, "any subset of what was written, in any order"
    file.sync()
    file.truncate(100)
    assert {len(disk.cut(random.Random(seed)).tree()["file"]) for seed in range(50)} == {100, 4 * SECTOR}


@pytest.mark.parametrize(("way", "piece"), [(sectors, SECTOR), (pages, PAGE)])
def test_what_a_piece_never_got_is_zeros(way, piece):
    changes = [(100, b"x" * 3 * piece)]
    left = {way(b"s" * 100, changes, random.Random(seed)) for seed in range(300)}
    whole = apply(b"s" * 100, changes)
    for content in left:
        assert content[:100] == b"s" * 100
        for start in range(0, len(content), piece):
            got = content[max(start, 100) : start + piece]
            assert got in (whole[max(start, 100) : start + piece][: len(got)], bytes(len(got)))
    assert len(left) > 8


def test_a_tear_makes_a_file_longer_to_any_byte_and_elsewhere_ends_at_a_sector():
    grown = {len(torn(b"s" * 10, [(10, b"x" * 40)], random.Random(seed))) for seed in range(500)}
    assert grown == set(range(10, 51))
    over = {torn(b"s" * 2000, [(0, b"x" * 2000)], random.Random(seed)).count(b"x") for seed in range(500)}
    assert over - {2000} == {0, 512, 1024, 1536}


def test_every_way_in_which_a_cut_leaves_a_file_and_names_does_occur(disk):
    state = disk.state()
    state.sync()
    for name in ("a", "b", "c"):
        write(state, name, b"x" * 2000)
    survived = Counter()
    for seed in range(100):
        survived += disk.cut(random.Random(seed)).survived
    assert set(survived) == {*WAYS, "no names", "some names", "all names"}


def test_after_a_sync_that_failed_the_bytes_show_and_no_later_sync_writes_them(disk):
    faults = DiskFaults(Fail(1), named("sync file"))
    state = faults.wrap(disk.state())
    file = state.open("file", "create")
    file.write((b"lost",), 0)
    disk.chance = random.Random(0)
    with pytest.raises(OSError, match="Input/output error"):
        file.sync()
    state.sync()
    file.write((b" found",), 4)
    file.sync()
    assert disk.crash().tree()["file"] == b"lost found", "the page cache shows it"
    after = disk.cut(random.Random(0)).tree()["file"]
    assert after == b"\0\0\0\0 found", "clean pages are not written again"
    assert disk.crash(forgets_lost=True).tree()["file"] == after, "the kernel may drop clean pages at any time"
    assert disk.synced_again == ["file"]
    file.write((b"lost",), 0)
    file.sync()
    assert disk.cut(random.Random(0)).tree()["file"] == b"lost found"


def test_a_sync_that_lies_makes_nothing_durable(disk):
    state = disk.state()
    state.sync()
    disk.lies = {"file"}.__contains__
    write(state, "file", b"content", sync=True)
    state.sync()
    assert disk.cut(random.Random(0), "nothing").tree() == {"file": b""}
    disk.lies = {"simulated/"}.__contains__
    state.unlink("file")
    state.sync()
    assert disk.cut(random.Random(0), "nothing").tree() == {"file": b""}


def test_a_file_that_lost_its_name_is_read_and_written_on_and_is_not_still_there(disk):
    state = disk.state()
    state.make_directory("inner")
    inner = state.directory("inner")
    file = inner.open("file", "create")
    state.remove_tree("inner")
    file.write((b"x",), 0)
    assert file.read(5, 0) == b"x"
    assert not inner.still_there()
    state.make_directory("inner")
    assert not inner.still_there(), "another directory stands there"
    assert state.still_there()


def test_handles_are_counted_and_a_closed_one_does_nothing_more(disk):
    state = disk.state()
    file = state.open("file", "create")
    assert disk.open_handles == 2
    file.close()
    file.close()
    assert disk.open_handles == 1
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.read(1, 0)
