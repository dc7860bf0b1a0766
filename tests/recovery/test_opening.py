"""Opening a relay as crashes, power cuts and time leave it: what it makes of the files, and that appends go on."""

import itertools
import tracemalloc

import pytest
from support import oracle, sealed_oracle
from support.faults import Faults
from support.relays import (
    OTHER_SEGMENT,
    OTHER_STORE,
    RelayDisk,
    acknowledged,
    append,
    close,
    cursor,
    ends,
    event,
    events,
    name,
    pack,
    sealed,
    seen,
    segment,
    snapshot,
    state,
)

from relayd.journal.pages import PageReader, make_page_cache
from relayd.protocol.cursor import GENESIS, Cursor, Span

COUNTS = (1, 2, 1)
WHOLE = segment(*COUNTS)
HEADER, FIRST, SECOND, LAST = (each.end for each in ends(*COUNTS))


@pytest.fixture
def disk(tmp_path):
    return RelayDisk(tmp_path)


def goes_on(disk: RelayDisk, last: int, **changes: object):
    """Opens, proves the state, appends one event, opens again and proves that too; the first opening's result."""
    opened = disk.open()
    assert seen(opened) == state(last, **changes)
    assert opened.writer.last_ordinal == last
    append(opened, event(last + 1))
    close(opened)
    again = disk.look()
    assert again.state.frontier == Cursor(*cursor(last + 1))
    assert [one for one in disk.tree() if one.endswith(".log.new")] == []
    return opened


def page_of(opened, after: int, through: int) -> bytes | Span:
    reader = PageReader(opened.journal, make_page_cache(), opened.store)
    return reader.read(opened.catalogue.view(), after, through, 1 << 20)


def records(first: int, last: int) -> bytes:
    return b"".join(oracle.record(ordinal, event(ordinal)) for ordinal in range(first, last + 1))


def test_the_whole_journal_alone_is_enough(disk):
    opened = goes_on(disk.active(WHOLE, LAST), 4)
    assert opened.report.source == "nothing"
    assert opened.report.folded_events == 4
    assert opened.base == GENESIS
    assert (opened.store, opened.name) == (oracle.STORE, "demo")


def test_a_snapshot_is_folded_forward(disk):
    opened = goes_on(disk.active(WHOLE, LAST).put(snapshot=snapshot(2, base=1)), 4)
    assert (opened.report.source, opened.report.folded_events) == ("snapshot", 2)
    assert opened.base == Cursor(*cursor(1))


def test_a_snapshot_at_the_frontier_folds_nothing(disk):
    disk.active(WHOLE, LAST).put(snapshot=snapshot(4), snapshot_previous=snapshot(3, base=2))
    before = disk.tree()
    opened = disk.look()
    assert (opened.report.folded_events, opened.report.snapshot_written) == (0, False)
    assert opened.generations == (GENESIS, Cursor(*cursor(2)))
    assert disk.tree() == before


def test_a_missing_generation_is_written(disk):
    opened = disk.active(WHOLE, LAST).put(snapshot=snapshot(4)).look()
    assert opened.report.snapshot_written
    assert opened.generations == (GENESIS, GENESIS)
    assert [each["frontier"] for each in disk.snapshots()] == [cursor(4), cursor(4)]


def test_what_was_folded_gets_into_a_snapshot_and_the_older_one_stays(disk):
    opened = disk.active(WHOLE, LAST).put(snapshot=snapshot(2)).look()
    assert (opened.unsnapshotted_events, opened.unsnapshotted_bytes) == (0, 0)
    assert [each["frontier"] for each in disk.snapshots()] == [cursor(4), cursor(2)]
    assert disk.snapshots()[0]["state"] == state(4)


def test_a_damaged_newest_snapshot_is_passed_over_and_kept(disk):
    bad = snapshot(3)[:-1]
    opened = disk.active(WHOLE, LAST).put(snapshot=bad, snapshot_previous=snapshot(2)).look()
    assert opened.report.source == "snapshot.previous"
    assert disk.quarantine() == {"snapshot": bad}
    assert [each["frontier"] for each in disk.snapshots()] == [cursor(4), cursor(2)]


def test_both_generations_damaged_or_gone_the_journal_rebuilds_the_state(disk):
    bad, worse = snapshot(3)[:50], b"junk"
    disk.active(WHOLE, LAST).put(snapshot=bad, snapshot_previous=worse)
    goes_on(disk, 4)
    assert disk.quarantine() == {"snapshot": bad, "snapshot.previous": worse}


def test_every_truncation_and_bit_of_the_snapshot_ends_in_the_same_state(disk):
    content = snapshot(3)
    disk.active(WHOLE, LAST)
    whole = disk.tree()
    damaged = [content[:size] for size in range(0, len(content), 17)]
    damaged += [
        content[: at // 8] + bytes([content[at // 8] ^ 1 << at % 8]) + content[at // 8 + 1 :]
        for at in range(0, 400, 13)
    ]
    for bad in damaged:
        disk.restore(whole)
        opened = disk.put(snapshot=bad, snapshot_previous=snapshot(2)).look()
        assert seen(opened) == state(4)
        assert opened.report.source == "snapshot.previous"
        assert disk.tree()["journal/active.log"] == WHOLE


def test_an_older_snapshot_put_back_is_folded_forward(disk):
    goes_on(disk.active(WHOLE, LAST).put(snapshot=snapshot(1), snapshot_previous=snapshot(3)), 4)


def test_a_snapshot_of_another_relay_is_passed_over(disk):
    disk.active(WHOLE, LAST).put(snapshot=snapshot(3, store=OTHER_STORE), snapshot_previous=snapshot(2))
    assert goes_on(disk, 4).report.source == "snapshot.previous"


def test_a_snapshot_in_conflict_is_passed_over_where_the_other_fits(disk):
    forked = snapshot(3, frontier=[3, b"f" * 16], producers={})
    disk.active(WHOLE, LAST).put(snapshot=forked, snapshot_previous=snapshot(2))
    assert goes_on(disk, 4).report.source == "snapshot.previous"
    assert disk.quarantine() == {"snapshot": forked}


def test_base_rises_to_what_the_policy_and_the_acknowledgements_say(disk):
    disk.active(WHOLE, LAST).put(acknowledged=acknowledged(3), snapshot=snapshot(4, retention="acknowledged"))
    opened = disk.look()
    assert opened.base == Cursor(*cursor(3))
    assert opened.acknowledgements.consumers == {"c": Cursor(*cursor(3))}
    assert disk.snapshots()[0]["base"] == cursor(3)


@pytest.mark.parametrize(
    "content",
    [b"", b"junk", acknowledged(3)[:-1], acknowledged(3, store=OTHER_STORE), acknowledged(3, c=[3, b"x" * 16])],
    ids=["empty", "junk", "cut", "another store", "another digest"],
)
def test_acknowledged_that_cannot_be_believed_acknowledges_nothing(disk, content):
    disk.active(WHOLE, LAST).put(acknowledged=content, snapshot=snapshot(4, retention="acknowledged"))
    opened = disk.look()
    assert (opened.acknowledgements.acknowledged, opened.acknowledgements.consumers) == (GENESIS, {})
    assert opened.base == GENESIS
    assert disk.quarantine() == {"acknowledged": content}


def test_every_bit_and_truncation_of_acknowledged_acknowledges_nothing(disk):
    content = acknowledged(3)
    disk.active(WHOLE, LAST).put(snapshot=snapshot(4), snapshot_previous=snapshot(4))
    whole = disk.tree()
    flips = (
        content[: at // 8] + bytes([content[at // 8] ^ 1 << at % 8]) + content[at // 8 + 1 :]
        for at in range(0, 1000, 9)
    )
    for bad in itertools.chain(flips, (content[:size] for size in range(0, len(content), 9))):
        disk.restore(whole)
        assert disk.put(acknowledged=bad).look().acknowledgements.consumers == {}


def test_stale_acknowledgements_are_believed(disk):
    assert disk.active(WHOLE, LAST).put(acknowledged=acknowledged(1)).look().acknowledgements.acknowledged.ordinal == 1


def test_torn_bytes_are_set_aside_and_appends_go_on(disk):
    torn = oracle.group(LAST, 5, [event(5, 30)])[:-1]
    opened = goes_on(disk.active(WHOLE + torn, LAST), 4)
    assert opened.report.torn_bytes == len(torn)
    assert disk.quarantine() == {f"active.log.{5:020}.torn": torn}
    assert disk.bodies() == {ordinal: event(ordinal) for ordinal in range(1, 6)}


def test_every_shortening_of_an_unanswered_last_group_opens_and_goes_on(disk):
    for size in {*range(SECOND, LAST, 9), SECOND + 1, SECOND + 63, SECOND + 64, LAST - 1}:
        for mark in (None, SECOND):
            disk.restore({})
            disk.active(WHOLE[:size], mark)
            opened = goes_on(disk, 3)
            assert opened.report.torn_bytes == len(WHOLE[SECOND:size].rstrip(b"\0"))


def test_every_shortening_of_an_answered_last_group_refuses(disk):
    for size in range(SECOND, LAST):
        disk.active(WHOLE[:size], LAST)
        refused = disk.refused("journal_corrupt")
        assert (refused.detail.offset, refused.detail.file) == (SECOND, str(disk.journal / "active.log"))


def test_every_bit_of_the_last_group_refuses_or_is_torn(disk):
    """With the watermark all are corrupt; without, none opens to anything but the group before."""
    for at, bit in itertools.product(range(SECOND, LAST), range(0, 8, 3)):
        damaged = bytearray(WHOLE)
        damaged[at] ^= 1 << bit
        disk.active(bytes(damaged), LAST).refused("journal_corrupt")
        (disk.path / "watermark").unlink()
        disk.refused("journal_undecided")


def test_every_bit_before_the_watermark_refuses_with_its_offset(disk):
    for at in range(0, SECOND * 8, 5):
        damaged = bytearray(WHOLE)
        damaged[at // 8] ^= 1 << at % 8
        refused = disk.active(bytes(damaged), LAST).refused("journal_corrupt")
        assert refused.detail.offset == max(end for end in (0, HEADER, FIRST, SECOND) if end <= at // 8)


@pytest.mark.parametrize("zeros", [1, 511, 4096, 1 << 22])
def test_zeros_behind_the_end_are_free_space_and_go(disk, zeros):
    disk.active(WHOLE + bytes(zeros), LAST)
    opened = disk.look()
    assert (disk.journal / "active.log").read_bytes() == WHOLE
    assert opened.report.quarantined == ()
    goes_on(disk, 4)


@pytest.mark.parametrize("content", [None, b"", b"R", bytes(600), segment()[:47], segment()])
def test_an_active_log_with_nothing_in_it_goes_on_behind_the_other_files(disk, content):
    disk.put_segments({name(1, 4): segment(4, segment=OTHER_SEGMENT)})
    disk.put(watermark=oracle.watermark(OTHER_SEGMENT, len(segment(4))))
    if content is not None:
        disk.active(content)
    opened = goes_on(disk, 4)
    assert opened.rotated == [(opened.rotated[0].kind, 1, 4)]
    assert oracle.read_segment((disk.journal / "active.log").read_bytes())[1] == {5: event(5)}


def test_a_fresh_active_log_has_a_fresh_segment_id(disk):
    disk.put_segments({name(1, 4): segment(4)})
    opened = disk.look()
    assert opened.catalogue.view().active.segment not in (oracle.SEGMENT, None)
    assert oracle.read_segment((disk.journal / "active.log").read_bytes())[0] == opened.catalogue.view().active.segment


def test_the_watermark_tells_what_is_synced_after_an_opening(disk):
    disk.active(WHOLE).put(watermark=b"longer than it should be, and not one at all")
    disk.look()
    assert (disk.path / "watermark").read_bytes() == oracle.watermark(oracle.SEGMENT, LAST)


@pytest.mark.parametrize("mark", [0, 48, SECOND, LAST])
def test_a_stale_watermark_only_costs_a_rewrite(disk, mark):
    opened = disk.active(WHOLE, mark).look()
    assert opened.report.rewritten_bytes == LAST - mark
    assert disk.tree()["journal/active.log"] == WHOLE


def test_unfinished_files_are_removed_and_unknown_ones_are_not(disk):
    disk.active(WHOLE, LAST).put(snapshot_new=b"1", acknowledged_new=b"2", notes=b"mine")
    disk.put_segments({"active.log.new": b"3", name(1, 9) + ".zst.new": b"4", "active.log~": b"5", "1-2.log": b"6"})
    (disk.path / "quarantine").mkdir()
    (disk.path / "quarantine" / "x.new").write_bytes(b"7")
    (disk.journal / "some.new").mkdir()
    goes_on(disk, 4)
    left = disk.tree()
    assert not {"snapshot.new", "acknowledged.new", "journal/active.log.new", "quarantine/x.new"} & left.keys()
    assert {"notes", "journal/active.log~", "journal/1-2.log", "journal/some.new"} <= left.keys()


def test_the_idle_hint_stays_until_the_first_write(disk):
    opened = disk.active(WHOLE, LAST).put(idle=b"").open()
    assert (disk.path / "idle").exists()
    append(opened, event(5))
    assert not (disk.path / "idle").exists()
    close(opened)


def test_rotated_files_are_read_and_to_be_sealed(disk):
    disk.put_segments({name(1, 4): segment(1, 3, segment=OTHER_SEGMENT)}).active(segment(2, first=5))
    opened = disk.open()
    assert seen(opened) == state(6)
    assert [(one.first, one.last) for one in opened.rotated] == [(1, 4)]
    assert page_of(opened, 0, 6) == records(1, 6)
    close(opened)


def test_sealed_files_are_read_where_nothing_else_tells_the_state(disk):
    disk.put_segments({name(1, 7, ".log.zst"): sealed(1, 7)}).active(segment(2, first=8, segment=OTHER_SEGMENT))
    opened = disk.open()
    assert seen(opened) == state(9)
    assert opened.rotated == []
    assert page_of(opened, 0, 9) == records(1, 9)
    close(opened)


def test_sealed_files_are_folded_from_the_snapshot_on(disk):
    disk.put_segments({name(1, 7, ".log.zst"): sealed(1, 7)}).active(segment(2, first=8, segment=OTHER_SEGMENT))
    opened = goes_on(disk.put(snapshot=snapshot(5)), 9)
    assert opened.report.folded_events == 4


def test_damage_in_a_sealed_file_that_the_snapshot_is_past_opens(disk):
    content = sealed(1, 7)
    disk.put_segments({name(1, 7, ".log.zst"): content}).active(segment(2, first=8, segment=OTHER_SEGMENT))
    disk.put(snapshot=snapshot(7), snapshot_previous=snapshot(7))
    whole = disk.tree()
    for at in range(0, len(content), 11):
        disk.restore(whole)
        (disk.journal / name(1, 7, ".log.zst")).write_bytes(content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :])
        assert seen(disk.look()) == state(9)


def test_a_start_costs_the_same_however_long_the_history_is(disk):
    """Names alone: with a hundred times the sealed files, not one call on a file more."""
    counted = []
    for files in (2, 200):
        disk.restore({})
        for number in range(files):
            disk.put_segments({name(3 * number + 1, 3 * number + 3, ".log.zst"): b"never read"})
        last = 3 * files
        disk.active(segment(1, first=last + 1)).put(snapshot=snapshot(last + 1), snapshot_previous=snapshot(last + 1))
        opened = disk.look()
        assert len(opened.catalogue.view().settled) == files
        counted.append(calls_of(disk))
    assert counted[0] == counted[1]


def calls_of(disk: RelayDisk) -> list[str]:
    faults = Faults()
    close(disk.open(faults))
    return faults.names()


def test_leftovers_of_a_collection_are_not_read(disk):
    disk.put_segments({name(1, 2): b"damaged", name(3, 4, ".log.zst"): b"damaged", name(5, 6): segment(2, first=5)})
    disk.active(segment(1, first=7, segment=OTHER_SEGMENT)).put(snapshot=snapshot(6, base=4))
    opened = goes_on(disk, 7)
    assert [(one.first, one.last) for one in opened.catalogue.view().settled] == [(1, 2), (3, 4), (5, 6)]
    assert [one.first for one in opened.rotated] == [5]


def test_everything_collected_but_the_newest_file_goes_on(disk):
    disk.put_segments({name(5, 7, ".log.zst"): sealed(5, 7)}).active(segment(first=8, segment=OTHER_SEGMENT))
    goes_on(disk.put(snapshot=snapshot(7, base=7)), 7)


def test_a_rotated_file_beside_its_sealed_copy_is_let_go_where_both_hold_the_same(disk):
    disk.put_segments({name(1, 4): segment(1, 3), name(1, 4, ".log.zst"): sealed(1, 4)})
    disk.active(segment(1, first=5, segment=OTHER_SEGMENT))
    opened = disk.open()
    assert seen(opened) == state(5)
    assert opened.rotated == []
    assert page_of(opened, 0, 5) == records(1, 5)
    close(opened)
    assert not (disk.journal / name(1, 4)).exists()
    assert disk.quarantine() == {}


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"junk",
        sealed(1, 4)[:-1],
        sealed(1, 4, segment=OTHER_SEGMENT),
        sealed(1, 4, store=OTHER_STORE),
        sealed(1, 3),
    ],
    ids=["empty", "junk", "cut", "segment", "store", "range"],
)
def test_a_different_sealed_copy_is_set_aside_and_sealed_again(disk, bad):
    copy = name(1, 4, ".log.zst")
    disk.put_segments({name(1, 4): segment(1, 3), copy: bad}).active(segment(1, first=5, segment=OTHER_SEGMENT))
    opened = goes_on(disk, 5)
    assert [one.first for one in opened.rotated] == [1]
    assert disk.quarantine() == {copy: bad}


def test_a_stale_active_log_is_set_aside_whole(disk):
    stale = segment(1, 2)
    disk.put_segments({name(1, 7, ".log.zst"): sealed(1, 7)}).active(stale).put(snapshot=snapshot(7))
    goes_on(disk, 7)
    assert disk.quarantine() == {"active.log.stale": stale}
    assert oracle.read_segment((disk.journal / "active.log").read_bytes())[1] == {8: event(8)}


def test_a_stale_active_log_beside_files_that_are_all_below_base(disk):
    stale = segment(1, 2)
    disk.put_segments({name(1, 7, ".log.zst"): sealed(1, 7)}).active(stale).put(snapshot=snapshot(7, base=7))
    goes_on(disk, 7)
    assert disk.quarantine() == {"active.log.stale": stale}


def test_a_lost_span_that_the_state_is_past_is_accepted(disk):
    disk.put_segments(
        {name(1, 2, ".log.zst"): sealed(1, 2), name(3, 5, ".lost"): b"", name(6, 7, ".log.zst"): sealed(6, 7)}
    )
    disk.active(segment(2, first=8, segment=OTHER_SEGMENT)).put(snapshot=snapshot(8))
    opened = disk.open()
    assert seen(opened) == state(9)
    assert page_of(opened, 2, 9) == Span(3, 5)
    close(opened)


def lost_group(offset: int, first: int, last: int, segment_id: bytes) -> bytes:
    body = pack([9000, "relay.lost", {"first": first, "last": last, "reason": "salvage"}])
    return oracle.group(offset, last + 1, [body], segment_id)


def test_a_hole_that_the_next_event_names_is_accepted_and_forgets_producers(disk):
    active = oracle.segment_header(oracle.STORE, OTHER_SEGMENT)
    disk.put_segments({name(1, 4): segment(4)}).active(active + lost_group(48, 5, 8, OTHER_SEGMENT))
    opened = disk.open()
    assert opened.state.frontier.ordinal == 9
    assert opened.state.producers == {}
    assert page_of(opened, 4, 9) == Span(5, 8)
    close(opened)
    assert disk.look().state.frontier.ordinal == 9


@pytest.mark.parametrize("frontier", [4, 9])
def test_a_hole_named_in_a_sealed_file_is_accepted(disk, frontier):
    bodies = [[pack([9000, "relay.lost", {"first": 5, "last": 8, "reason": "x"}])], events(10, 12)]
    lost = oracle.record(9, bodies[0][0])[12:28]
    disk.put_segments({name(1, 4): segment(4), name(9, 12, ".log.zst"): sealed_oracle.sealed_of(bodies, 9)})
    disk.put(snapshot=snapshot(4) if frontier == 4 else snapshot(9, frontier=[9, lost], producers={}))
    assert disk.look().state.frontier.ordinal == 12


def test_a_later_start_finds_what_the_first_left(disk):
    """Opening again and again changes nothing more."""
    disk.active(WHOLE + b"torn").put(snapshot=b"bad", acknowledged=b"bad")
    first = disk.look()
    disk.look()
    settled = disk.tree()
    assert seen(disk.look()) == seen(first)
    assert disk.tree() == settled


def test_the_tail_holds_the_newest_groups(disk):
    opened = disk.active(WHOLE, LAST).look()
    assert (opened.tail.first_ordinal, opened.tail.last_ordinal) == (1, 4)
    assert opened.tail.page(1, 4, 1 << 20) == records(2, 4)


def test_bounded_retention_knows_the_sizes_of_files(disk):
    content = sealed(1, 4)
    disk.put_segments({name(1, 4, ".log.zst"): content}).active(segment(1, first=5, segment=OTHER_SEGMENT))
    opened = disk.put(snapshot=snapshot(5, retention={"bytes": 1})).look()
    assert opened.catalogue.view().settled[0].size == len(content)


def test_memory_is_one_segment_at_a_time(disk):
    big = pack([5, "output", {"text": "x" * 1_000_000}])
    first = 2
    disk.put_segments({name(1, 1): segment(1)})
    for number in range(5):
        content = oracle.segment_of([[big]] * 2, first, bytes([number]) * 16)
        disk.put_segments({name(first, first + 1): content})
        first += 2
    disk.active(oracle.segment_of([], first))
    tracemalloc.start()
    try:
        opened = disk.look()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert opened.state.frontier.ordinal == 11
    assert peak < 2 * len(content)
