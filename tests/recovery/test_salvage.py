"""Salvage loses what is damaged and nothing else, whatever it meets and wherever it is cut off."""

import contextlib
import hashlib
import json
import os
import shutil
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import oracle, relay_files
from support.faults import Kill, Killed, changing, each_fault
from support.relay_files import RelayFiles, body, digest, read_lines, sealed, segment, snapshot

from relayd.journal.real_storage import open_state_directory
from relayd.protocol.errors import InvalidStateError, NotFoundError
from relayd.recovery.opening import open_relay
from relayd.recovery.refusal import OpeningError
from relayd.recovery.salvage import RelayHeldError, salvage, salvage_relay
from relayd.recovery.salvage_steps import Means

NEW_ID = b"\xee" * 16


def line_of(cursor, said) -> bytes:
    return json.dumps({"ordinal": cursor.ordinal, "kind": said.kind}).encode()


@pytest.fixture(autouse=True)
def _no_syncs(monkeypatch):
    """A process that is killed loses no page: these tests need none on disk."""
    for call in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, call, lambda _: None)


@pytest.fixture
def files(tmp_path):
    return RelayFiles(tmp_path / "state")


def run(files, *, tail=False, rescued=None, faults=None, line_of=line_of):
    directory = open_state_directory(str(files.path))
    wrapped = directory if faults is None else faults.wrap(directory)
    with contextlib.closing(directory):
        return salvage_relay(wrapped, relay_files.NAME, Means(rescued, line_of, lambda: NEW_ID, 5), tail=tail)


def reopened(files):
    """Opens the relay, and gives its state's frontier, without its files changed for the caller."""
    with contextlib.closing(open_state_directory(str(files.path))) as relay:
        opened = open_relay(relay, relay_files.NAME, segment_bytes=1 << 20, new_id=lambda: b"\xdd" * 16)
        frontier, store = opened.state.frontier, opened.store
        if opened.writer is not None:
            opened.writer.close()
        opened.journal.close()
    assert store == oracle.STORE
    return frontier


def lost_event(files) -> dict | None:
    """The data of the relay.lost in active.log, and its ordinal."""
    path = files.journal / "active.log"
    found = oracle.read_segment(path.read_bytes())[1] if path.exists() else {}
    for ordinal, stored in found.items():
        said = msgspec.msgpack.decode(stored)
        if said[1] == "relay.lost":
            return said[2] | {"ordinal": ordinal}
    return None


def damage(path, offset: int, size: int = 1) -> None:
    content = bytearray(path.read_bytes())
    for at in range(offset, offset + size):
        content[at] ^= 0x55
    path.write_bytes(content)


def record_place(content: bytes, ordinal: int, whole: bytes | None = None) -> tuple[int, int]:
    """Where the record stands in the file, and its bytes."""
    record = oracle.record(ordinal, body(ordinal))
    at = content.index(record)
    return at, len(record)


LAST = 20


@pytest.mark.parametrize("ordinal", range(1, LAST + 1))
@pytest.mark.parametrize("where", ["length", "ordinal", "digest", "body", "whole"])
def test_damage_to_one_record_that_the_snapshot_is_past_loses_that_record(files, ordinal, where):
    content = segment(1, LAST)
    active = files.active(content)
    files.put("snapshot", snapshot(LAST))
    at, size = record_place(content, ordinal)
    offset, count = {"length": (0, 1), "ordinal": (4, 1), "digest": (12, 1), "body": (28, 1), "whole": (0, size)}[where]
    damage(active, at + offset, count)

    report = run(files)

    assert report.marked == ((ordinal, ordinal),)
    assert report.lost is None
    assert report.refusal is None
    assert files.marks() == [(ordinal, ordinal)]
    assert files.records() == {n: body(n) for n in range(1, LAST + 1) if n != ordinal}
    assert reopened(files).ordinal == LAST
    assert any(name.startswith("quarantine/active.log") for name in files.everything())


@pytest.mark.parametrize("ordinal", range(1, LAST + 1))
@pytest.mark.parametrize("where", ["length", "body", "whole"])
def test_damage_to_one_record_that_the_fold_needs_keeps_the_prefix_and_rescues_the_rest(
    files, tmp_path, ordinal, where
):
    content = segment(1, LAST)
    active = files.active(content)
    at, size = record_place(content, ordinal)
    offset, count = {"length": (0, 1), "body": (28, 1), "whole": (0, size)}[where]
    damage(active, at + offset, count)
    rescued = tmp_path / "rescued.jsonl"

    report = run(files, rescued=str(rescued))

    assert report.lost == (ordinal, LAST)
    assert report.refusal is None
    assert {n: stored for n, stored in files.records().items() if n <= LAST} == {n: body(n) for n in range(1, ordinal)}
    lost = lost_event(files)
    assert (lost["first"], lost["last"], lost["ordinal"]) == (ordinal, LAST, LAST + 1)
    intact = read_lines(rescued).keys() if rescued.exists() else set()
    assert set(intact) == set(range(ordinal + 1, LAST + 1))
    assert report.rescued_events == LAST - ordinal
    assert reopened(files).ordinal == LAST + 1


@pytest.mark.parametrize("state", [0, 5, 9, 12, LAST])
def test_a_damaged_group_header_loses_no_record(files, state):
    content = segment(1, LAST)
    if state:
        files.put("snapshot", snapshot(state))
    for at in group_offsets(content):
        for offset in (0, 8, 24, 32, 40, 48, 56):
            active = files.active(content)
            damage(active, at + offset)
            report = run(files)
            assert (report.changed, report.marked, report.lost) == (True, (), None)
            assert files.records() == {n: body(n) for n in range(1, LAST + 1)}
            for path in files.journal.iterdir():
                path.unlink()


def group_offsets(content: bytes) -> list[int]:
    found, at = [], content.find(b"RLYG")
    while at >= 0:
        found.append(at)
        at = content.find(b"RLYG", at + 1)
    return found


def test_a_damaged_segment_header_loses_no_record(files):
    content = segment(1, LAST)
    for offset in range(0, 44, 5):
        active = files.active(content)
        damage(active, offset)
        if offset >= 8:
            run(files)
            assert files.records() == {n: body(n) for n in range(1, LAST + 1)}
        for path in files.journal.iterdir():
            path.unlink()


def history(files, state: int) -> None:
    """1-6 sealed, 7-12 rotated, 13-18 rotated, 19-24 active; the state at `state`."""
    files.put("journal/00000000000000000001-00000000000000000006.log.zst", sealed(1, 6))
    files.put("journal/00000000000000000007-00000000000000000012.log", segment(7, 12, b"\x77" * 16))
    files.put("journal/00000000000000000013-00000000000000000018.log", segment(13, 18, b"\x88" * 16))
    files.active(segment(19, 24))
    if state:
        files.put("snapshot", snapshot(state))
        files.put("snapshot.previous", snapshot(max(1, state - 1)))


DAMAGES = {
    "sealed frame": ("journal/00000000000000000001-00000000000000000006.log.zst", lambda data: flip(data, 60)),
    "sealed index": (
        "journal/00000000000000000001-00000000000000000006.log.zst",
        lambda data: flip(data, len(data) - 60),
    ),
    "sealed cut": ("journal/00000000000000000001-00000000000000000006.log.zst", lambda data: data[: len(data) // 3]),
    "rotated body": ("journal/00000000000000000007-00000000000000000012.log", lambda data: flip(data, 300)),
    "rotated cut": ("journal/00000000000000000007-00000000000000000012.log", lambda data: data[:-10]),
    "rotated gone": ("journal/00000000000000000013-00000000000000000018.log", None),
    "active body": ("journal/active.log", lambda data: flip(data, len(data) // 2)),
    "active cut": ("journal/active.log", lambda data: data[: len(data) // 2]),
    "active gone": ("journal/active.log", None),
    "sealed empty": ("journal/00000000000000000001-00000000000000000006.log.zst", lambda _: b""),
}


def flip(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]


def damage_by(files, what: str) -> None:
    name, change = DAMAGES[what]
    path = files.path / name
    if change is None:
        path.unlink()
    else:
        path.write_bytes(change(path.read_bytes()))


def accounted(files, rescued, last: int) -> None:
    """Every ordinal up to `last` is in the journal, rescued, or in a span that is given up; none is there twice."""
    records, marks, event = files.records(), files.marks(), lost_event(files)
    spans = list(marks)
    if event is not None:
        assert event["ordinal"] == event["last"] + 1 > last
        spans.append((event["first"], event["last"]))
    intact = read_lines(rescued).keys() if rescued.exists() else set()
    for ordinal in range(1, last + 1):
        holders = (ordinal in records) + any(first <= ordinal <= end for first, end in spans)
        assert holders == 1, f"ordinal {ordinal}"
        if ordinal in records:
            assert records[ordinal] == body(ordinal)
            assert ordinal not in intact


@pytest.mark.parametrize("state", [0, 3, 9, 15, 22, 24])
@pytest.mark.parametrize("what", DAMAGES)
def test_every_damage_with_every_state_is_mended_and_opens(files, tmp_path, what, state):
    history(files, state)
    damage_by(files, what)
    before = files.everything()
    rescued = tmp_path / "rescued.jsonl"

    report = run(files, rescued=str(rescued))

    assert report.refusal is None
    accounted(files, rescued, 24)
    kept = {name.removeprefix("quarantine/"): data for name, data in files.everything().items()}
    for name, data in before.items():
        if name.startswith("journal/") and data:
            assert data in kept.values(), f"{name} is neither in its place nor in quarantine/"
    if state == 24 and what not in ("active cut", "active gone"):
        # Of a file that ends before its watermark nobody knows how many records are missing.
        assert report.lost is None
    again = files.everything()
    assert not run(files, rescued=str(rescued)).changed
    assert files.everything() == again
    assert reopened(files).ordinal >= 24


@pytest.mark.parametrize("state", [0, 15, 24])
@pytest.mark.parametrize(
    "what", ["sealed frame", "sealed index", "rotated body", "rotated gone", "active body", "active gone"]
)
def test_killed_at_every_call_it_is_run_again_and_ends_the_same(tmp_path, what, state):
    expected = None
    number = 0
    for number, faults in enumerate(each_fault(lambda n: Kill(n, after=True), changing), 1):
        files = RelayFiles(tmp_path / str(number))
        history(files, state)
        damage_by(files, what)
        rescued = tmp_path / f"{number}.jsonl"
        with contextlib.suppress(Killed):
            run(files, rescued=str(rescued), faults=faults)
        last = run(files, rescued=str(rescued))
        assert last.refusal is None
        outcome = {name: data for name, data in files.everything().items() if not name.startswith("quarantine/")}
        outcome.pop("watermark", None)
        lines = rescued.read_bytes() if rescued.exists() else None
        if expected is None:
            expected = (outcome, lines)
        assert (outcome, lines) == expected, f"killed at call {number}, {faults.met_at}"
        accounted(files, rescued, 24)
        reopened(files)
        shutil.rmtree(files.state)
    assert number > 2


@pytest.mark.parametrize("state", [0, 15])
@pytest.mark.parametrize("what", ["rotated body", "active body", "active cut"])
def test_a_killed_salvage_never_leaves_a_journal_that_opens_to_less(tmp_path, state, what):
    """Between its steps an opening refuses, or ends where the finished salvage does."""
    number = 0
    for number, faults in enumerate(each_fault(lambda n: Kill(n, after=True), changing), 1):
        files = RelayFiles(tmp_path / str(number))
        history(files, state)
        damage_by(files, what)
        with contextlib.suppress(Killed):
            run(files, rescued=str(tmp_path / f"{number}.jsonl"), faults=faults)
        with contextlib.suppress(OpeningError):
            assert reopened(files).ordinal >= 24
        shutil.rmtree(files.state)


def test_an_undecided_tail_needs_the_flag_and_is_then_given_up_by_an_event(files, tmp_path):
    content = segment(1, 6, sizes=(1,))
    active = files.active(content, synced=-1)
    at, _ = record_place(content, 6)
    damage(active, at + 30)
    before = files.everything()
    with pytest.raises(OpeningError, match="journal_undecided"):
        run(files)
    assert files.everything() == before

    report = run(files, tail=True, rescued=str(tmp_path / "r"))

    assert report.lost == (6, 6)
    assert files.records().keys() == {1, 2, 3, 4, 5, 7}
    assert reopened(files).ordinal == 7


def test_a_torn_tail_is_left_to_opening(files):
    content = segment(1, 6, sizes=(1,))
    files.active(content[:-5], synced=-1)
    before = files.everything()
    assert not run(files).changed
    assert files.everything() == before
    assert reopened(files).ordinal == 5


def test_a_torn_tail_behind_damage_is_neither_kept_nor_counted(files, tmp_path):
    whole = segment(1, 6, sizes=(1,))
    torn = oracle.group(len(whole), 7, relay_files.bodies(7, 9))
    active = files.active(whole + torn[:-3], synced=len(whole))
    files.put("snapshot", snapshot(6))
    at, _ = record_place(whole, 4)
    damage(active, at + 30)
    report = run(files)
    assert (report.marked, report.lost) == (((4, 4),), None)
    assert files.records().keys() == {1, 2, 3, 5, 6}
    assert reopened(files).ordinal == 6


def test_ordinals_that_may_have_been_answered_are_not_used_again(files, tmp_path):
    """The file is shorter than it was synced: as many ordinals are given up as can have stood there."""
    content = segment(1, 9, sizes=(1,))
    shorter = content.index(oracle.record(4, body(4))) - 64
    files.active(content[:shorter], synced=len(content))
    report = run(files, rescued=str(tmp_path / "r"))
    first, last = report.lost
    assert first == 4
    assert last >= 9
    assert reopened(files).ordinal == last + 1


def test_what_a_consumer_acknowledged_is_not_used_again(files, tmp_path):
    files.active(segment(1, 6), synced=-1)
    files.put("acknowledged", relay_files.acknowledged(9))
    report = run(files, rescued=str(tmp_path / "r"))
    assert report.lost == (7, 9)
    assert reopened(files).ordinal == 10


def test_a_state_past_the_journals_end_stays(files):
    files.active(segment(1, 6))
    files.put("snapshot", snapshot(9))
    report = run(files)
    assert (report.marked, report.lost) == (((7, 9),), None)
    assert reopened(files).ordinal == 9


def test_without_snapshots_and_beginning_everything_readable_is_rescued(files, tmp_path):
    files.put("journal/00000000000000000007-00000000000000000012.log", segment(7, 12, b"\x77" * 16))
    files.active(segment(13, 18))
    rescued = tmp_path / "r"
    report = run(files, rescued=str(rescued))
    assert report.lost == (1, 18)
    assert read_lines(rescued).keys() == set(range(7, 19))
    assert reopened(files).ordinal == 19


def test_snapshots_that_contradict_the_whole_journal_go_to_quarantine(files):
    files.active(segment(1, 6))
    wrong = snapshot(5).replace(digest(5), digest(4))
    encoded = wrong[48:]
    files.put("snapshot", wrong[:16] + hashlib.blake2b(encoded, digest_size=32).digest() + encoded)
    with pytest.raises(OpeningError, match="snapshot_conflict"):
        reopened(files)
    report = run(files)
    assert report.refusal is None or "snapshot" not in report.refusal
    assert reopened(files).ordinal == 6


@pytest.mark.parametrize("swap", [True, False])
def test_names_that_lie_are_put_right(files, tmp_path, swap):
    history(files, 24)
    one = files.journal / "00000000000000000007-00000000000000000012.log"
    other = files.journal / "00000000000000000013-00000000000000000018.log"
    if swap:
        first, second = one.read_bytes(), other.read_bytes()
        one.write_bytes(second)
        other.write_bytes(first)
    else:
        other.write_bytes(one.read_bytes())
    report = run(files)
    expected = [] if swap else [(13, 18)]
    assert files.marks() == expected
    assert report.refusal is None
    assert files.records().keys() == set(range(1, 25)) - ({*range(13, 19)} if expected else set())
    assert reopened(files).ordinal == 24


def test_another_relays_segment_is_refused_and_nothing_changes(files):
    history(files, 24)
    path = files.journal / "00000000000000000007-00000000000000000012.log"
    header = oracle.segment_header(b"\x99" * 16, b"\x77" * 16)
    path.write_bytes(header + path.read_bytes()[48:])
    before = files.everything()
    with pytest.raises(OpeningError, match="journal_conflict"):
        run(files)
    assert files.everything() == before


def test_two_files_that_contradict_each_other_are_refused(files):
    history(files, 24)
    other = segment(7, 12, b"\x77" * 16)
    changed = oracle.segment_of([[body(n, "another text")] for n in range(10, 16)], 10, b"\x99" * 16)
    files.put("journal/00000000000000000010-00000000000000000015.log", changed)
    assert other
    before = files.everything()
    with pytest.raises(OpeningError, match="journal_conflict"):
        run(files)
    assert files.everything() == before


def test_a_record_inside_a_body_is_not_taken_for_one(files, tmp_path):
    """A client may plant the bytes of a record; damage around it must not bring it to life."""
    planted = oracle.record(4, msgspec.msgpack.encode([1, "output", "forged"]))
    made = [body(1), body(2), msgspec.msgpack.encode([1, "output", planted]), body(4), body(5)]
    content = oracle.segment_of([made[:2], made[2:]])
    for offset in (0, 12):
        active = files.active(content)
        damage(active, content.index(oracle.record(3, made[2])) + offset)
        files.put("snapshot", snapshot(5))
        run(files)
        assert files.records() == {1: body(1), 2: body(2), 4: body(4), 5: body(5)}
        assert files.marks() == [(3, 3)]
        shutil.rmtree(files.journal)
        files.journal.mkdir()


@pytest.mark.parametrize(
    ("holder", "who"),
    [(b'{"pid":4711,"socket":"/s"}', "a daemon (pid 4711)"), (b"junk", "a daemon"), (None, "a daemon")],
)
def test_a_relay_that_a_daemon_has_open_is_left_alone_and_the_daemon_named(files, holder, who):
    history(files, 24)
    if holder is not None:
        (files.state / "holder").write_bytes(holder)
    before = files.everything()
    with (
        contextlib.closing(open_state_directory(str(files.state))) as state,
        contextlib.closing(open_state_directory(str(files.path))) as held,
    ):
        assert state.lock()
        assert held.lock()
        with pytest.raises(RelayHeldError) as refused:
            salvage(str(files.state), relay_files.NAME, line_of=line_of)
    assert str(refused.value) == (
        f"{who} has relay `demo` open; stop it, run this again, and start it. Until then readers are told of what "
        "cannot be read."
    )
    assert refused.value.retryable
    assert files.everything() == before


def test_a_relay_that_another_tool_works_on_is_left_alone(files):
    history(files, 24)
    with contextlib.closing(open_state_directory(str(files.path))) as held:
        assert held.lock()
        with pytest.raises(RelayHeldError, match="another tool is at work on relay `demo`"):
            salvage(str(files.state), relay_files.NAME, line_of=line_of)


def test_where_only_room_for_events_is_known_their_end_is_told_as_a_bound(files, tmp_path):
    """Every segment is gone; how many events the watermark's bytes were is not known."""
    files.put("snapshot", snapshot(6))
    files.put("watermark", oracle.watermark(b"\x44" * 16, 5000))
    report = run(files, rescued=str(tmp_path / "r"))
    assert report.lost[0] == 7
    assert report.lost[1] > 7
    assert report.lost_at_most
    assert [damage.at_most for damage in report.damages] == [True]
    assert reopened(files).ordinal == report.lost[1] + 1


def test_where_the_end_of_what_is_given_up_is_known_it_is_no_bound(files, tmp_path):
    files.active(segment(1, 6), synced=-1)
    files.put("acknowledged", relay_files.acknowledged(9))
    assert not run(files, rescued=str(tmp_path / "r")).lost_at_most


def test_where_nothing_is_left_the_advice_is_not_this_command_again(files):
    files.put("journal/00000000000000000007-00000000000000000012.log", b"")
    with pytest.raises(OpeningError, match="nothing is left to keep") as refused:
        run(files)
    assert "salvage" not in refused.value.detail.hint
    assert f"relayd restore {files.state} demo FILE" in refused.value.detail.hint


def test_no_such_relay(files):
    for name in ("other", "../demo", ""):
        with pytest.raises(NotFoundError):
            salvage(str(files.state), name, line_of=line_of)


def test_the_rescued_file_is_never_another_one_overwritten(files, tmp_path):
    history(files, 0)
    damage_by(files, "rotated body")
    rescued = tmp_path / "r"
    rescued.write_text("something else")
    before = files.everything()
    with pytest.raises(InvalidStateError, match="there already"):
        run(files, rescued=str(rescued))
    assert files.everything() == before


def test_without_a_place_the_rescued_events_are_in_quarantine(files):
    history(files, 0)
    damage_by(files, "rotated body")
    report = salvage(str(files.state), relay_files.NAME, line_of=line_of)
    name = report.rescued_file
    assert name.startswith(str(files.quarantine))
    assert len(read_lines(Path(name))) == report.rescued_events > 0


def test_whatever_is_whole_is_left_as_it_is(files):
    history(files, 20)
    before = files.everything()
    report = run(files)
    assert not report.changed
    assert report.damages == ()
    assert files.everything() == before


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_whatever_is_damaged_nothing_intact_is_lost_and_the_relay_opens(tmp_path_factory, data):
    """Any bytes of any files changed, cut, zeroed or gone: what is left is kept, rescued, or was damaged itself."""
    root = tmp_path_factory.mktemp("damage")
    files = RelayFiles(root / "state")
    history(files, data.draw(st.sampled_from([0, 3, 9, 15, 22, 24]), "state"))
    everything = st.sampled_from(sorted(files.everything()))
    names = data.draw(st.lists(everything, min_size=1, max_size=3, unique=True), "names")
    for name in names:
        path = files.path / name
        content = path.read_bytes()
        at = data.draw(st.integers(0, len(content) - 1), "at")
        match data.draw(st.sampled_from(["flip", "cut", "zero", "block", "gone"]), "how"):
            case "flip":
                path.write_bytes(flip(content, at))
            case "cut":
                path.write_bytes(content[:at])
            case "zero":
                path.write_bytes(content[:at] + bytes(min(512, len(content) - at)) + content[at + 512 :])
            case "block":
                other = segment(1, 12, b"\x55" * 16)[at : at + 512]
                path.write_bytes(content[:at] + other + content[at + len(other) :])
            case _:
                path.unlink()
    rescued = root / "rescued"
    intact = intact_records(files)

    report = run(files, tail=True, rescued=str(rescued))

    assert report.refusal is None
    records, lines = files.records(), read_lines(rescued).keys() if rescued.exists() else set()
    assert not records.keys() & lines
    event = lost_event(files)
    given_up = range(event["first"], event["last"] + 1) if event else range(0)
    # Where file and watermark are both gone, nothing tells of its ordinals, and the event may have the first of them.
    told = {n: stored for n, stored in records.items() if n <= 24 and (event is None or n != event["ordinal"])}
    assert told == {n: body(n) for n in told}
    assert not records.keys() & set(given_up)
    assert intact <= records.keys() | lines
    assert not run(files, tail=True, rescued=str(rescued)).changed
    frontier = reopened(files).ordinal
    assert frontier >= max(records | dict.fromkeys(given_up), default=0)


def intact_records(files) -> set[int]:
    """Ordinals whose records stand whole, behind a good group or frame, by the plain readers of these tests."""
    found: set[int] = set()
    for path in files.journal.iterdir():
        content = path.read_bytes()
        if path.name.endswith(".log"):
            found |= oracle.read_segment(content)[1].keys()
        else:
            with contextlib.suppress(Exception):
                found |= relay_files.read_sealed(content).keys()
    return found
