import contextlib
import errno
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import oracle, sealed_oracle
from support.faults import Fail, Faults, Kill, Killed, Short, changing, each_fault, named

from relayd.journal.frames import FRAME_PLAIN_BYTES
from relayd.journal.groups import GroupDamageError
from relayd.journal.names import SegmentKind, SegmentName
from relayd.journal.real_storage import open_state_directory
from relayd.journal.sealer import install_sealed, prepare_sealed, seal_rotated, write_sealed
from relayd.journal.storage import ShortWriteError
from relayd.protocol.event import RecordError
from relayd.protocol.limits import EVENT_BODY_BYTES_MAX, MIB

GROUPS = [[b"one", b"two"], [b"three"], [b"four", b"five", b"six"]]
NAME = SegmentName(SegmentKind.ROTATED, 1, 6)
SEALED = sealed_oracle.sealed_name(1, 6)
NEW = SEALED + ".new"
BODIES = dict(enumerate([body for group in GROUPS for body in group], 1))
ROTATED = oracle.segment_of(GROUPS)


class Journal:
    """A journal's directory that holds one rotated segment, made afresh by each call of `make`."""

    def __init__(self, root):
        self.root, self.made, self.opened, self.aside = root, 0, [], []

    def make(self, rotated: bytes = ROTATED, name: SegmentName = NAME):
        """A directory with `rotated` in it, opened."""
        self.made += 1
        self.path = self.root / str(self.made)
        self.path.mkdir()
        (self.path / name.text).write_bytes(rotated)
        self.opened.append(open_state_directory(str(self.path)))
        self.aside.clear()
        return self.opened[-1]

    def set_aside(self, name: str) -> None:
        """Takes a file away, as quarantine would."""
        self.aside.append(name)
        (self.path / name).unlink()

    def names(self) -> list[str]:
        """What is in the directory."""
        return sorted(each.name for each in self.path.iterdir())

    def sealed(self) -> dict[int, bytes]:
        """The bodies in the sealed segment, proven."""
        return sealed_oracle.read_sealed((self.path / SEALED).read_bytes())[1]

    def close(self) -> None:
        """Gives all descriptors back."""
        for each in self.opened:
            each.close()


@pytest.fixture
def journal(tmp_path):
    made = Journal(tmp_path)
    yield made
    made.close()


def seal(journal: Journal, faults: Faults | None = None, *, opened=None) -> int:
    opened = opened or journal.make()
    wrapped = opened if faults is None else faults.wrap(opened)
    return seal_rotated(wrapped, NAME, oracle.STORE, journal.set_aside)


def test_the_sealed_file_holds_the_records_and_the_rotated_one_is_gone(journal):
    size = seal(journal)
    assert journal.names() == [SEALED]
    index, bodies = sealed_oracle.read_sealed((journal.path / SEALED).read_bytes())
    assert bodies == BODIES
    assert (index["store"], index["segment"]) == (oracle.STORE, oracle.SEGMENT)
    assert size == (journal.path / SEALED).stat().st_size
    assert journal.aside == []


def test_every_step_is_on_disk_before_the_next_depends_on_it(journal):
    """Synced and read back before it has its name; its name on disk before the rotated file goes."""
    faults = Faults()
    seal(journal, faults)
    log = [call for call in faults.names() if call.split()[0] not in ("size", "stat")]
    at = {call: number for number, call in enumerate(log)}
    assert log.count(f"sync {NEW}") == 1
    last_write = max(number for number, call in enumerate(log) if call == f"write {NEW}")
    read_back = [number for number, call in enumerate(log) if call == f"read {NEW}"]
    assert last_write < at[f"sync {NEW}"] < min(read_back)
    assert max(read_back) < at[f"replace {NEW} {SEALED}"] < at[f"sync {journal.path.name}/"]
    assert log[-1] == f"unlink {NAME.text}"
    assert at[f"sync {journal.path.name}/"] < len(log) - 1


@pytest.mark.parametrize("after", [False, True])
def test_killed_at_any_call_every_record_stands_and_sealing_again_finishes(journal, after):
    calls = 0
    for faults in each_fault(lambda n: Kill(n, after=after), counted=changing):
        opened = journal.make()
        with contextlib.suppress(Killed):
            seal(journal, faults, opened=opened)
        calls += 1
        if NAME.text in journal.names():
            assert (journal.path / NAME.text).read_bytes() == ROTATED
            seal_rotated(opened, NAME, oracle.STORE, journal.set_aside)
        assert journal.names() == [SEALED]
        assert journal.sealed() == BODIES
        assert journal.aside == []
    assert calls >= 7


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_an_error_at_any_call_costs_nothing_and_sealing_again_finishes(journal, code):
    for faults in each_fault(lambda n: Fail(n, code)):
        opened = journal.make()
        try:
            seal(journal, faults, opened=opened)
        except OSError:
            assert faults.met
        if NAME.text in journal.names():
            assert (journal.path / NAME.text).read_bytes() == ROTATED
            seal_rotated(opened, NAME, oracle.STORE, journal.set_aside)
        assert journal.names() == [SEALED]
        assert journal.sealed() == BODIES


def test_where_there_is_no_room_nothing_unfinished_stays(journal):
    for number in range(1, 4):
        with pytest.raises(OSError, match="No space"):
            seal(journal, Faults(Fail(number, errno.ENOSPC), named("write", f"sync {NEW}")))
        assert journal.names() == [NAME.text]
    faults = Faults(Short(1, 20), named("write"))
    with pytest.raises(ShortWriteError):
        seal(journal, faults)
    assert journal.names() == [NAME.text]


def test_an_unfinished_file_of_an_earlier_try_is_written_anew(journal):
    opened = journal.make()
    (journal.path / NEW).write_bytes(b"half a frame, and longer than all that will be written" * 100)
    seal(journal, opened=opened)
    assert journal.sealed() == BODIES


def test_a_write_that_the_disk_changes_is_found_before_it_gets_its_name(journal):
    """Read back and compared: what does not hold the records never becomes the sealed segment."""
    opened = journal.make()

    class Lying:
        def __getattr__(self, name):
            return getattr(opened, name)

        def open(self, name, mode):
            file = opened.open(name, mode)
            if mode == "create":
                write = file.write
                file.write = lambda buffers, offset: write([_changed(b"".join(buffers))], offset)
            return file

    def _changed(data: bytes) -> bytes:
        return data[:10] + bytes([data[10] ^ 1]) + data[11:]

    with pytest.raises(ValueError, match=r"frame|index"):
        prepare_sealed(Lying(), NAME, oracle.STORE)
    assert journal.names() == [NAME.text]


def test_a_sealed_copy_that_stands_is_compared_and_only_the_rotated_file_goes(journal):
    opened = journal.make()
    standing = sealed_oracle.sealed_of([[body] for body in BODIES.values()])
    (journal.path / SEALED).write_bytes(standing)
    faults = Faults()
    seal(journal, faults, opened=opened)
    assert journal.names() == [SEALED]
    assert (journal.path / SEALED).read_bytes() == standing
    assert not [call for call in faults.log if call.name in ("write", "replace", "open create")]


@pytest.mark.parametrize(
    "standing",
    [
        b"",
        b"junk",
        sealed_oracle.sealed_of(GROUPS)[:-1],
        sealed_oracle.sealed_of(GROUPS) + b"\0",
        sealed_oracle.sealed_of([[b"one", b"two"], [b"THREE"], [b"four", b"five", b"six"]]),
        sealed_oracle.sealed_of(GROUPS, store=bytes(16)),
        sealed_oracle.sealed_of(GROUPS, first=2),
        sealed_oracle.sealed_of(GROUPS[:2]),
    ],
    ids=["empty", "junk", "cut", "longer", "different", "store", "shifted", "fewer"],
)
def test_a_different_file_in_its_place_is_set_aside_and_sealed_again(journal, standing):
    opened = journal.make()
    (journal.path / SEALED).write_bytes(standing)
    prepared = prepare_sealed(opened, NAME, oracle.STORE)
    assert prepared.in_the_way
    assert (journal.path / SEALED).read_bytes() == standing
    install_sealed(opened, prepared, journal.set_aside)
    assert journal.aside == [SEALED]
    assert journal.names() == [SEALED]
    assert journal.sealed() == BODIES


def test_every_flipped_bit_of_a_standing_copy_sets_it_aside(journal):
    standing = sealed_oracle.sealed_of([[b"one", b"two"]])
    name = SegmentName(SegmentKind.ROTATED, 1, 2)
    opened = journal.make(oracle.segment_of([[b"one", b"two"]]), name)
    target = journal.path / sealed_oracle.sealed_name(1, 2)
    for bit in range(0, len(standing) * 8, 3):
        bad = bytearray(standing)
        bad[bit // 8] ^= 1 << bit % 8
        target.write_bytes(bad)
        assert prepare_sealed(opened, name, oracle.STORE).in_the_way


def test_every_flipped_bit_of_the_rotated_file_stops_sealing_and_leaves_it(journal):
    opened = journal.make()
    found = 0
    for bit in range(0, len(ROTATED) * 8, 5):
        bad = bytearray(ROTATED)
        bad[bit // 8] ^= 1 << bit % 8
        (journal.path / NAME.text).write_bytes(bad)
        with pytest.raises(GroupDamageError):
            prepare_sealed(opened, NAME, oracle.STORE)
        found += 1
        assert journal.names() == [NAME.text]
    assert found == len(range(0, len(ROTATED) * 8, 5))


@pytest.mark.parametrize(
    "rotated",
    [
        *(ROTATED[:size] for size in range(0, len(ROTATED), 7)),
        ROTATED + bytes(64),
        ROTATED + oracle.group(len(ROTATED), 7, [b"seven"]),
        oracle.segment_of(GROUPS, segment=bytes(16))[:48] + ROTATED[48:],
        oracle.segment_header(store=bytes(16)) + ROTATED[48:],
        oracle.segment_of(GROUPS, first=2),
    ],
    ids=lambda data: str(len(data)),
)
def test_a_rotated_file_that_does_not_hold_just_its_records_is_not_sealed(journal, rotated):
    opened = journal.make(rotated)
    with pytest.raises((GroupDamageError, RecordError)):
        prepare_sealed(opened, NAME, oracle.STORE)
    assert journal.names() == [NAME.text]


def test_a_rotated_file_collected_meanwhile_leaves_nothing_behind(journal):
    opened = journal.make()
    prepared = prepare_sealed(opened, NAME, oracle.STORE)
    (journal.path / NAME.text).unlink()
    assert install_sealed(opened, prepared, journal.set_aside) is False
    assert journal.names() == []


def test_frames_are_about_256_kib_of_whole_records_and_large_records_have_their_own(tmp_path):
    sizes = [1000] * 600 + [400_000, 30, EVENT_BODY_BYTES_MAX, 7]
    bodies = [bytes([at % 256]) * size for at, size in enumerate(sizes)]
    records = [oracle.record(at, body) for at, body in enumerate(bodies, 1)]
    opened = open_state_directory(str(tmp_path))
    write_sealed(opened, 1, len(sizes), oracle.STORE, oracle.SEGMENT, records)
    opened.close()
    index, read = sealed_oracle.read_sealed((tmp_path / sealed_oracle.sealed_name(1, len(sizes))).read_bytes())
    assert list(read.values()) == bodies
    counts = [after[0] - each[0] for each, after in zip(index["frames"], index["frames"][1:], strict=False)]
    assert all(each[3] <= FRAME_PLAIN_BYTES or count == 1 for each, count in zip(index["frames"], counts, strict=False))
    whole = FRAME_PLAIN_BYTES // 1028
    assert counts[:2] == [whole, whole]
    assert [each[3] for each in index["frames"][-4:]] == [400_028, 58, EVENT_BODY_BYTES_MAX + 28, 35]


PIECES = st.lists(st.integers(1, 40), max_size=30)


@given(st.lists(st.binary(min_size=1, max_size=50), min_size=1, max_size=20), PIECES)
def test_records_may_come_in_pieces_cut_anywhere(tmp_path_factory, bodies, cuts):
    stream = b"".join(oracle.record(at, body) for at, body in enumerate(bodies, 5))
    pieces, at = [], 0
    for cut in cuts:
        pieces.append(memoryview(stream)[at : at + cut])
        at += cut
    pieces.append(stream[at:])
    path = tmp_path_factory.mktemp("pieces")
    opened = open_state_directory(str(path))
    write_sealed(opened, 5, 4 + len(bodies), oracle.STORE, oracle.SEGMENT, pieces)
    opened.close()
    name = sealed_oracle.sealed_name(5, 4 + len(bodies))
    assert [each.name for each in path.iterdir()] == [name]
    assert sealed_oracle.read_sealed((path / name).read_bytes())[1] == dict(enumerate(bodies, 5))


def test_a_written_segment_has_its_name_on_disk_before_it_is_counted_on(tmp_path):
    opened, faults = open_state_directory(str(tmp_path)), Faults()
    size = write_sealed(faults.wrap(opened), 1, 1, oracle.STORE, oracle.SEGMENT, [oracle.record(1, b"one")])
    opened.close()
    name = sealed_oracle.sealed_name(1, 1)
    assert faults.names()[-2:] == [f"replace {name}.new {name}", f"sync {tmp_path.name}/"]
    assert size == (tmp_path / name).stat().st_size


R = [oracle.record(at, b"body") for at in range(1, 5)]


@pytest.mark.parametrize(
    "records",
    [
        [],
        [R[0]],
        [R[0], R[2]],
        [R[1], R[0]],
        [R[0], R[0], R[1]],
        [R[0], R[1], R[2]],
        [R[0], R[1][:-1]],
        [R[0], R[1], b"\0"],
        [R[0], bytes(40)],
        [R[0], (EVENT_BODY_BYTES_MAX + 1).to_bytes(4, "little") + R[1][4:]],
    ],
    ids=["none", "fewer", "hole", "order", "twice", "more", "cut", "trailing", "zeros", "large"],
)
def test_a_stream_that_is_not_the_records_named_is_refused(tmp_path, records):
    opened = open_state_directory(str(tmp_path))
    with pytest.raises(RecordError):
        write_sealed(opened, 1, 2, oracle.STORE, oracle.SEGMENT, records)
    opened.close()
    assert list(tmp_path.iterdir()) == []


def test_sealing_holds_a_frame_and_a_record_in_memory_whatever_the_groups_size(journal):
    """A segment of two groups of 6 MiB each is sealed in less memory than one of them."""
    groups = [[bytes([at % 7, at % 11]) * 500 for at in range(6 * MIB // 1028)] for _ in range(2)]
    count = sum(map(len, groups))
    name = SegmentName(SegmentKind.ROTATED, 1, count)
    opened = journal.make(oracle.segment_of(groups), name)
    del groups
    tracemalloc.start()
    try:
        seal_rotated(opened, name, oracle.STORE, journal.set_aside)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 * MIB
