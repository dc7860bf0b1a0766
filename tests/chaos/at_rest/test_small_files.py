"""Damage to snapshot, snapshot.previous, acknowledged and watermark: what each is worth, and no other file touched."""

import itertools

import pytest
from chaos.at_rest.damage import bits, cuts, without
from chaos.at_rest.judge import Refused
from chaos.at_rest.shapes import ACTIVE, LASTS, SHAPES, alone, collected, layered, snapshotted
from support import oracle
from support.relays import OTHER_SEGMENT, acknowledged, cursor, digest, ends, snapshot

HEADER, FIRST, SECOND, LAST = (each.end for each in ends(1, 2, 1))
GENERATIONS = ("snapshot", "snapshot.previous")
WITH_SNAPSHOTS = ("snapshotted", "layered", "collected", "rotating", "sealing")


def served(relay, files):
    """What the relay shows, after proving that opening makes of it what the judge says and touches no other file."""
    assert relay.put(files).differences() == []
    return relay.outcome


def shown(opened):
    """What damage to a snapshot must not change."""
    return opened.last, opened.records, opened.unreadable, opened.frontier, opened.producers


# Snapshots


@pytest.mark.parametrize("shape", ["layered", "collected"])
@pytest.mark.parametrize("path", GENERATIONS)
def test_every_bit_and_truncation_of_one_snapshot_leads_to_the_same_state(relay, shape, path):
    """`snapshot` damaged: the previous generation; `snapshot.previous` damaged: it is not even needed."""
    files = SHAPES[shape]()
    whole = shown(relay.put(files).open())
    other = "snapshot.previous" if path == "snapshot" else "snapshot"
    for _, damaged in itertools.chain(bits(files, path, 23), cuts(files, path, 11)):
        opened = served(relay, damaged)
        assert (opened.source, shown(opened)) == (other, whole)
        assert opened.quarantined == (path,)


@pytest.mark.parametrize("shape", WITH_SNAPSHOTS)
@pytest.mark.parametrize("path", GENERATIONS)
def test_absence_of_one_snapshot_leads_to_the_same_state(relay, shape, path):
    files = SHAPES[shape]()
    whole = shown(relay.put(files).open())
    assert shown(served(relay, without(files, path))) == whole


@pytest.mark.parametrize("shape", [shape for shape in WITH_SNAPSHOTS if shape != "collected"])
def test_both_snapshots_gone_or_damaged_the_state_is_rebuilt_from_the_journal(relay, shape):
    files = SHAPES[shape]()
    whole = shown(relay.put(files).open())
    opened = served(relay, without(files, *GENERATIONS))
    assert (opened.source, shown(opened)) == ("nothing", whole)
    for bit, size in zip(range(3, 2800, 97), range(5, 350, 12), strict=True):
        damaged = dict(bits(files, "snapshot", begin=0))[bit] if bit % 2 else dict(cuts(files, "snapshot"))[size]
        damaged |= {"snapshot.previous": files["snapshot.previous"][:size]}
        opened = served(relay, damaged)
        assert (opened.source, shown(opened)) == ("nothing", whole)
        assert set(opened.quarantined) == set(GENERATIONS)


def test_both_snapshots_gone_and_the_beginning_collected_is_snapshot_lost(relay):
    files = collected()
    for damaged in (
        without(files, *GENERATIONS),
        without(files, "snapshot") | {"snapshot.previous": files["snapshot.previous"][:-1]},
        files | dict.fromkeys(GENERATIONS, b""),
        *(each | {"snapshot.previous": b"x"} for _, each in bits(files, "snapshot", 101)),
    ):
        assert served(relay, damaged).code == "snapshot_lost"


@pytest.mark.parametrize("frontier", range(1, 17))
def test_a_valid_older_snapshot_put_back_is_folded_forward(relay, frontier):
    files = layered()
    whole = shown(relay.put(files).open())
    for put_back in ({"snapshot": snapshot(frontier)}, dict.fromkeys(GENERATIONS, snapshot(frontier))):
        opened = served(relay, files | put_back)
        assert (opened.source, shown(opened)) == ("snapshot", whole)


@pytest.mark.parametrize("frontier", range(1, 17))
def test_a_valid_older_snapshot_put_back_where_what_follows_is_collected_is_journal_gap(relay, frontier):
    """Its base says which events may be gone; none of these may."""
    for base in range(min(frontier, 3) + 1):
        old = snapshot(frontier, base=base, retention="acknowledged")
        got = served(relay, collected() | dict.fromkeys(GENERATIONS, old))
        assert (got.code, got.file) == ("journal_gap", next(path for path in collected() if path.endswith(".zst")))


# acknowledged


def test_every_bit_and_truncation_of_acknowledged_and_its_absence_acknowledge_nothing(relay):
    """Nothing is collected by it either: the base stays where the snapshots proved it."""
    files = collected()
    path = "acknowledged"
    whole = shown(relay.put(files).open())
    for _, damaged in itertools.chain(bits(files, path, 7), cuts(files, path, 5), [(0, without(files, path))]):
        opened = served(relay, damaged)
        assert (opened.consumers, opened.base, shown(opened)) == ({}, 4, whole)
        assert opened.quarantined == ((path,) if path in damaged else ())


@pytest.mark.parametrize("ordinal", range(1, 17))
def test_a_stale_acknowledged_is_believed_and_moves_nothing_else(relay, ordinal):
    opened = served(relay, layered() | {"acknowledged": acknowledged(ordinal)})
    assert opened.consumers == {"c": (ordinal, digest(ordinal))}
    assert (opened.last, opened.base) == (16, 0)


def test_an_acknowledged_of_another_digest_is_not_believed(relay):
    forged = acknowledged(13, c=[13, b"x" * 16])
    opened = served(relay, layered() | {"acknowledged": forged})
    assert (opened.consumers, opened.quarantined) == ({}, ("acknowledged",))


@pytest.mark.parametrize("shape", sorted(SHAPES))
@pytest.mark.parametrize("ahead", [1, 2, 1000])
def test_an_acknowledged_ahead_of_the_journal_is_snapshot_ahead(relay, shape, ahead):
    last = LASTS[shape]
    for said in (acknowledged(last + ahead), acknowledged(1, c=cursor(1), d=cursor(last + ahead))):
        assert served(relay, SHAPES[shape]() | {"acknowledged": said}).code == "snapshot_ahead"


# The watermark


def watermarks():
    """Every watermark that is not the right one, but those from the future."""
    right = alone()["watermark"]
    yield from (each["watermark"] for _, each in bits(alone(), "watermark"))
    yield from (right[:size] for size in range(len(right)))
    yield from (oracle.watermark(oracle.SEGMENT, offset) for offset in (0, 1, HEADER, FIRST, SECOND, LAST - 1))
    yield from (oracle.watermark(OTHER_SEGMENT, offset) for offset in (0, LAST, 1 << 40))
    yield from (bytes(40), b"", right + b"more", right[::-1])


def test_a_watermark_missing_zero_stale_or_damaged_changes_nothing_of_a_whole_relay(relay):
    whole = shown(relay.put(alone()).open())
    for mark in watermarks():
        assert shown(served(relay, alone() | {"watermark": mark})) == whole
    assert shown(served(relay, without(alone(), "watermark"))) == whole


def test_no_watermark_is_less_safe_than_none(relay):
    """With active.log damaged: the outcome without one, or, where it proves more, `journal_corrupt`."""
    for content in damaged_contents():
        files = snapshotted() | {ACTIVE: content}
        none = served(relay, without(files, "watermark"))
        for mark in (*list(watermarks())[::17], oracle.watermark(oracle.SEGMENT, LAST)):
            got = served(relay, files | {"watermark": mark})
            if isinstance(got, Refused):
                assert got.code in ("journal_corrupt", getattr(none, "code", None))
            else:
                assert shown(got) == shown(none)


def damaged_contents():
    whole = alone()[ACTIVE]
    yield from (whole[:size] for size in range(SECOND, LAST, 23))
    yield from (each[ACTIVE] for _, each in bits(alone(), ACTIVE, 499))
    yield from (whole[:begin] + bytes(64) + whole[begin + 64 :] for begin in range(0, LAST - 64, 97))


@pytest.mark.parametrize("shape", ["alone", "snapshotted", "layered", "collected", "sealing"])
@pytest.mark.parametrize("further", [1, 64, 4096, 1 << 40])
def test_a_watermark_from_the_future_is_journal_corrupt(relay, shape, further):
    files = SHAPES[shape]()
    mark = oracle.watermark(oracle.SEGMENT, len(files[ACTIVE]) + further)
    assert served(relay, files | {"watermark": mark}) == Refused("journal_corrupt", ACTIVE, len(files[ACTIVE]))
