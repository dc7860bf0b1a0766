"""Files that are missing, that lie about what they hold, or that nobody knows."""

import itertools

import pytest
from chaos.at_rest.damage import without
from chaos.at_rest.judge import Refused
from chaos.at_rest.shapes import ACTIVE, LATE_SEALED, ROTATED, SEALED, SHAPES, collected, layered, rotating, sealing
from support import oracle
from support.relays import OTHER_SEGMENT, OTHER_STORE, name, sealed, segment, snapshot

AT_THE_END = {"snapshot": snapshot(16), "snapshot.previous": snapshot(16)}


def outcome(relay, files):
    """What opening makes of it, proven to be what the judge says and to change no byte where it refuses."""
    assert relay.put(files).differences() == []
    return relay.outcome


@pytest.mark.parametrize("small", [{}, AT_THE_END], ids=["state at 14", "state at the end"])
@pytest.mark.parametrize(("path", "behind", "span"), [(SEALED, ROTATED, "1 to 7"), (ROTATED, ACTIVE, "8 to 11")])
def test_a_first_or_middle_segment_missing_is_journal_gap_naming_ordinals(relay, path, behind, span, small):
    files = without(layered() | small, path)
    assert outcome(relay, files) == Refused("journal_gap", behind)
    assert f"ordinals {span} " in str(relay.disk.refused("journal_gap"))


def test_the_first_segment_above_the_base_missing_is_journal_gap(relay):
    assert outcome(relay, without(collected(), LATE_SEALED)) == Refused("journal_gap", ROTATED)


def test_active_log_missing_after_it_was_answered_from_is_journal_corrupt(relay):
    assert outcome(relay, without(layered(), ACTIVE)) == Refused("journal_corrupt", ACTIVE, 0)


def test_active_log_and_watermark_missing_is_snapshot_ahead(relay):
    assert outcome(relay, without(layered(), ACTIVE, "watermark")).code == "snapshot_ahead"


@pytest.mark.parametrize("small", [{}, AT_THE_END], ids=["state at 14", "state at the end"])
def test_two_rotated_names_swapped_refuse_and_change_nothing(relay, small):
    files = rotating() | small
    one, other = ROTATED, f"journal/{name(12, 16)}"
    assert outcome(relay, files | {one: files[other], other: files[one]}) == Refused("journal_corrupt", one, 48)


@pytest.mark.parametrize("other", [ROTATED, ACTIVE])
def test_a_sealed_and_another_name_swapped_refuse_and_change_nothing(relay, other):
    files = layered()
    got = outcome(relay, files | {SEALED: files[other], other: files[SEALED]})
    assert got == Refused("journal_corrupt", other, 0)


def test_two_sealed_names_swapped_are_unreadable_until_they_are_put_back(relay):
    """Their bodies are not read to open; each index tells that it is not the one its name states."""
    one, other = SEALED, f"{ROTATED}.zst"
    files = without(sealing(), ROTATED)
    served = outcome(relay, files | {one: files[other], other: files[one]})
    assert (served.last, served.unreadable) == (16, frozenset(range(1, 12)))
    assert outcome(relay, files).unreadable == frozenset()


@pytest.mark.parametrize("small", [{}, AT_THE_END], ids=["state at 14", "state at the end"])
@pytest.mark.parametrize("source", [SEALED, ROTATED, ACTIVE])
@pytest.mark.parametrize("suffix", [".log", ".log.zst", ".lost"])
def test_a_copy_under_any_other_range_refuses_and_touches_nothing(relay, source, suffix, small):
    """Overlap first; past the end it is a gap, but where a rotated file's own bytes are read before that."""
    files = layered() | small
    past_the_end = "journal_corrupt" if suffix == ".log" else "journal_gap"
    for first, size in itertools.product(range(1, 21), (1, 2, 4, 5, 7)):
        copy = f"journal/{name(first, first + size - 1, suffix)}"
        pair = {copy, f"{copy}.zst", copy.removesuffix(".zst")} & files.keys()
        # active.log under the very range it holds is a copy indeed: the test below.
        if pair or (first, size, suffix, source) == (12, 5, ".log", ACTIVE):
            continue
        got = outcome(relay, files | {copy: b"" if suffix == ".lost" else files[source]})
        assert isinstance(got, Refused), copy
        if not 12 <= first <= 16:
            assert got.code == ("journal_conflict" if first < 12 else past_the_end)
        assert "ordinal" in str(relay.disk.refused(got.code))


def test_active_log_copied_under_the_very_range_it_holds_loses_nothing(relay):
    files = layered() | {f"journal/{name(12, 16)}": layered()[ACTIVE]}
    served = outcome(relay, files)
    assert (set(served.records), served.quarantined) == (set(range(1, 17)), ("active.log.stale",))
    assert relay.goes_on() == 17


@pytest.mark.parametrize("counts", [(1,), (2,), (1, 2), (1, 2, 1), (7,)])
@pytest.mark.parametrize("small", [{}, AT_THE_END], ids=["state at 11", "state at the end"])
def test_a_stale_shorter_active_log_beside_the_sealed_file_that_covers_it_opens_and_goes_on(relay, counts, small):
    """It is kept in quarantine."""
    state = (
        {"snapshot": snapshot(11), "snapshot.previous": snapshot(8)}
        if not small
        else dict.fromkeys(small, snapshot(11))
    )
    stale = segment(*counts, segment=b"o" * 16)
    served = outcome(relay, without(layered(), "watermark") | state | {ACTIVE: stale})
    assert (served.last, set(served.records), served.quarantined) == (11, set(range(1, 12)), ("active.log.stale",))
    assert relay.files()["quarantine/active.log.stale"] == stale
    assert relay.goes_on() == 12


@pytest.mark.parametrize("counts", [(3,), (3, 1)])
def test_a_stale_active_log_beside_the_rotated_file_that_it_became_opens(relay, counts):
    stale = segment(*counts, first=8, segment=OTHER_SEGMENT)
    files = without(layered(), "watermark") | {ACTIVE: stale} | dict.fromkeys(AT_THE_END, snapshot(11))
    assert outcome(relay, files).quarantined == ("active.log.stale",)
    assert relay.goes_on() == 12


def test_a_rotated_file_beside_its_same_sealed_copy_is_let_go(relay):
    served = outcome(relay, sealing())
    assert (set(served.records), served.quarantined) == (set(range(1, 17)), ())
    assert ROTATED not in relay.files()


@pytest.mark.parametrize(
    "copy",
    [
        b"",
        b"junk",
        sealed(8, 11, segment=OTHER_SEGMENT)[:-1],
        sealed(8, 11),
        sealed(8, 11, store=OTHER_STORE),
        sealed(8, 10),
    ],
    ids=["nothing", "junk", "cut", "of another segment", "of another relay", "shorter"],
)
def test_a_rotated_file_beside_a_different_sealed_copy_is_used_and_the_copy_quarantined(relay, copy):
    path = f"{ROTATED}.zst"
    served = outcome(relay, sealing() | {path: copy})
    assert (set(served.records), served.quarantined) == (set(range(1, 17)), (path.removeprefix("journal/"),))
    assert relay.files()[ROTATED] == sealing()[ROTATED]
    assert path not in relay.files()


UNKNOWN = {
    "notes.txt": b"mine",
    "snapshot~": b"an editor's",
    ".snapshot.swp": b"an editor's",
    "snapshot.bak": b"old",
    "snapshot.previous.1": b"old",
    "#acknowledged#": b"an editor's",
    "journal/active.log~": b"an editor's",
    "journal/active.log.1": b"old",
    "journal/.active.log.swp": b"an editor's",
    "journal/README": b"mine",
    "journal/1-7.log": b"no segment's name",
    f"journal/{0:020}-{7:020}.log": b"no ordinal",
    f"journal/{9:020}-{8:020}.log": b"no span",
    f"journal/{name(1, 7)}.gz": b"no suffix of ours",
    f"journal/{name(1, 7)[:-4]}": b"no suffix",
    f"journal/ {name(1, 7)}": b"a space",
}


@pytest.mark.parametrize("shape", sorted(SHAPES))
def test_unknown_files_editor_backups_and_directories_are_ignored_and_never_deleted(relay, shape):
    whole = relay.put(SHAPES[shape]()).open()
    folders = ("mine", "journal/mine", "journal/some.new", "some.new", "quarantine")
    relay.put(SHAPES[shape]() | UNKNOWN, folders)
    served = relay.open()
    assert served[1:5] == whole[1:5]
    relay.goes_on()
    after = relay.files()
    assert {path: after.get(path) for path in UNKNOWN} == UNKNOWN
    assert all((relay.disk.path / folder).is_dir() for folder in folders)


def test_a_copy_under_the_name_of_a_leftover_changes_nothing(relay):
    """At or below the base nothing fails an open, whatever it holds."""
    for suffix, content in itertools.product((".log", ".log.zst", ".lost"), (b"", oracle.segment_header(), b"x" * 99)):
        files = collected() | {f"journal/{name(2, 4, suffix)}": content}
        assert set(outcome(relay, files).records) == set(range(5, 17))
