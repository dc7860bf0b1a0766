import contextlib
import errno
import itertools
import threading
from pathlib import Path

import pytest
from support import oracle, sealed_oracle
from support.bench import batch
from support.faults import Fail, each_fault, named
from support.layout import ACTIVE, LOST, ROTATED, SEALED, Layout, proven, walk

from relayd.journal.active import make_active
from relayd.journal.catalogue import Catalogue, Segment
from relayd.journal.names import segment_name
from relayd.journal.pages import PageReader, Replan, make_page_cache
from relayd.journal.real_storage import open_state_directory
from relayd.journal.sealer import seal_rotated
from relayd.journal.writer import Writer
from relayd.protocol.cursor import Span
from relayd.protocol.errors import StorageFailedError
from relayd.protocol.limits import MIB


@pytest.fixture
def layout(tmp_path):
    made = Layout(tmp_path / "journal")
    yield made
    made.opened.close()


@pytest.fixture
def mixed(layout):
    """Ordinals 1 to 7 sealed, 8 to 9 given up, 10 to 15 rotated, 16 to 18 active."""
    layout.add(SEALED, [[b"a1", b"a2"], [b"a3"], [b"a4", b"a5", b"a6"], [b"a7"]])
    layout.add(LOST, [[b"", b""]])
    layout.add(ROTATED, [[b"c1"], [b"c2", b"c3"], [b"c4", b"c5", b"c6"]])
    layout.add(ACTIVE, [[b"d1"], [b"d2", b"d3"]])
    return layout


def test_a_reader_whose_file_was_rotated_reads_on_in_it(layout):
    segment = layout.add(ACTIVE, [[b"one"], [b"two"]])
    view = layout.view
    (layout.path / segment.name).rename(layout.path / segment_name(ROTATED, 1, 2))
    assert layout.reader.read(view, 0, 2, MIB) == oracle.record(1, b"one") + oracle.record(2, b"two")
    (layout.path / "active.log").write_bytes(oracle.segment_of([[b"three"]], 3, b"fresh segment id"))
    assert layout.reader.read(view, 1, 2, MIB) == oracle.record(2, b"two")


def test_a_reader_whose_file_was_rotated_with_more_in_it_reads_what_it_was_to_read(layout):
    layout.add(ACTIVE, [[b"one"]])
    view = layout.view
    layout.add(ACTIVE, [[b"two"]])
    (layout.path / segment_name(ROTATED, 1, 2)).write_bytes(oracle.segment_of([[b"one"], [b"two"]], 1, bytes([1]) * 16))
    assert layout.reader.read(view, 0, 1, MIB) == oracle.record(1, b"one")


@pytest.mark.parametrize("kind", [ROTATED, ACTIVE])
def test_a_reader_whose_file_was_sealed_reads_on_in_that(layout, kind):
    segment = layout.add(kind, [[b"one"], [b"two"]])
    view = layout.view
    (layout.path / segment.name).unlink()
    (layout.path / segment_name(SEALED, 1, 2)).write_bytes(sealed_oracle.sealed_of([[b"one", b"two"]]))
    assert layout.reader.read(view, 0, 2, MIB) == oracle.record(1, b"one") + oracle.record(2, b"two")


@pytest.mark.parametrize("kind", [ROTATED, SEALED, ACTIVE])
def test_a_file_that_is_gone_is_planned_again_and_never_called_unreadable(layout, kind):
    segment = layout.add(kind, [[b"one"], [b"two"]])
    (layout.path / segment.name).unlink()
    with pytest.raises(Replan) as raised:
        layout.read(0)
    assert (raised.value.segment, raised.value.span) == (segment, Span(1, 2))


def test_a_fresh_active_segment_in_its_place_is_planned_again(layout):
    layout.add(ACTIVE, [[b"one"], [b"two"]])
    (layout.path / "active.log").write_bytes(oracle.segment_of([[b"other"]], 3, b"fresh segment id"))
    with pytest.raises(Replan):
        layout.read(0)


def test_a_file_that_goes_behind_a_page_in_hand_ends_the_page(layout):
    layout.add(SEALED, [[b"one"]])
    gone = layout.add(ROTATED, [[b"two"]])
    (layout.path / gone.name).unlink()
    assert layout.read(0) == [1]
    with pytest.raises(Replan):
        layout.read(1)


@pytest.mark.parametrize("kind", [ROTATED, SEALED, ACTIVE])
def test_a_read_error_is_storage_failed_for_that_reader_and_the_next_read_is_served(layout, kind):
    layout.add(kind, [[b"one"], [b"two"]])
    met = 0
    for faults in each_fault(lambda n: Fail(n, errno.EIO), named("open read", "read", "size")):
        layout.reader = PageReader(faults.wrap(layout.opened), make_page_cache(), oracle.STORE)
        try:
            # What was in hand before the error is a page too.
            assert layout.read(0) in ([1, 2], [1])
        except StorageFailedError:
            assert faults.met
        met += faults.met
        faults.plan = None
        assert layout.read(0) == [1, 2]
    assert met >= {SEALED: 5, ACTIVE: 2, ROTATED: 5}[kind]


def test_a_link_in_a_files_place_is_an_error_and_not_followed(layout, tmp_path):
    segment = layout.add(SEALED, [[b"one"]])
    (layout.path / segment.name).rename(tmp_path / "elsewhere")
    (layout.path / segment.name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageFailedError):
        layout.read(0)


def test_no_descriptor_is_left_open_whatever_happens(mixed):
    before = len(list(Path("/proc/self/fd").iterdir()))
    for faults in each_fault(lambda n: Fail(n, errno.EIO), named("read", "size", "stat")):
        mixed.reader = PageReader(faults.wrap(mixed.opened), make_page_cache(), oracle.STORE)
        with contextlib.suppress(StorageFailedError):
            walk(mixed, 60)
    mixed.damage(mixed.segments[0], lambda data: data[:-1])
    mixed.damage(mixed.segments[2], lambda data: data[:50])
    walk(mixed, MIB)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


class Following:
    """Readers in threads that begin at ordinal 1 and end with `total`; `outcomes` is what became of each."""

    def __init__(self, reader: PageReader, catalogue: Catalogue, total: int) -> None:
        self.reader, self.catalogue, self.total = reader, catalogue, total
        self.bodies, self.outcomes, self.durable, self.moved = {}, [], 0, threading.Condition()

    def start(self, *page_bytes: int) -> list[threading.Thread]:
        """Starts one for each size of pages."""
        threads = [threading.Thread(target=self._run, args=(size,), daemon=True) for size in page_bytes]
        for each in threads:
            each.start()
        return threads

    def _run(self, max_bytes: int) -> None:
        after = 0
        try:
            while after < self.total:
                after = self._read(after, max_bytes)
            self.outcomes.append(after)
        except BaseException as error:  # noqa: BLE001 - handed to the test's own thread
            self.outcomes.append(error)

    def _read(self, after: int, max_bytes: int) -> int:
        with self.moved:
            self.moved.wait_for(lambda: self.durable > after)
            through, view = self.durable, self.catalogue.view()
        try:
            page = self.reader.read(view, after, through, max_bytes)
        except Replan:
            return after
        assert not isinstance(page, Span)
        got = proven(page, self.bodies)
        assert got == list(range(after + 1, got[-1] + 1))
        return got[-1]


@pytest.fixture
def growing(tmp_path):
    """A writer without records that rotates at 3,000 bytes, its catalogue, and its journal."""
    relay = open_state_directory(str(tmp_path))
    relay.make_directory("journal")
    store = relay.directory("journal")
    ids = (at.to_bytes(16, "big") for at in itertools.count(1))
    active = make_active(store, oracle.STORE, oracle.SEGMENT)
    places = {"active": active, "segment": oracle.SEGMENT, "first": 1, "next_ordinal": 1, "end": 48}
    writer = Writer(relay, store, oracle.STORE, **places, new_id=lambda: next(ids), segment_bytes=3000)
    yield writer, Catalogue([], Segment(ACTIVE, 1, 0, 48, oracle.SEGMENT)), store
    for each in (writer, store, relay):
        each.close()


def test_readers_in_threads_get_every_record_while_the_owner_appends_rotates_and_seals(growing):
    """Real files; each reader starts at once, follows to the end, and sees each ordinal once with its own bytes."""
    writer, catalogue, store = growing
    reader = PageReader(store, make_page_cache(frames_bytes=20_000, indexes_bytes=4_000), oracle.STORE)
    following = Following(reader, catalogue, total=600)
    threads = following.start(1, 200, 1000, 100_000)
    for first in range(1, 601, 3):
        bodies = [f"body of {at}".encode() * (at % 7 + 1) for at in range(first, first + 3)]
        following.bodies.update(enumerate(bodies, first))
        written = writer.commit(batch(first, *bodies))
        rotated = writer.rotate() if writer.needs_rotation else None
        with following.moved:
            catalogue.append_group(written, first, first + 2)
            if rotated is not None:
                catalogue.rotated(rotated.name, writer.synced_end.segment)
            following.durable = first + 2
            following.moved.notify_all()
        waiting = [each.span for each in catalogue.view().settled if each.kind is ROTATED]
        if len(waiting) > 2:
            catalogue.sealed(waiting[0], seal_rotated(store, waiting[0], oracle.STORE, lambda _: None))
    for each in threads:
        each.join(30)
    assert following.outcomes == [600] * 4
    assert {each.kind for each in catalogue.view().segments()} == {SEALED, ROTATED, ACTIVE}
