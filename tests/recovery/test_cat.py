"""`relayd cat` gives every intact event of whatever it is pointed at, says what is not there, and changes nothing."""

import contextlib

import msgspec
import pytest
import zstandard
from support import oracle
from support.relay_files import RelayFiles, acknowledged, bodies, body, digest, sealed, segment, snapshot

from relayd.journal.real_storage import open_state_directory
from relayd.protocol.cursor import GENESIS, Cursor
from relayd.protocol.errors import NotFoundError
from relayd.recovery.backup import write_backup
from relayd.recovery.backup_format import BackupHead
from relayd.recovery.cat import Collected, InFlight, NoSegmentError, StoredEvent, Unreadable, iter_path

SEALED = "journal/00000000000000000001-00000000000000000006.log.zst"
ROTATED = "journal/00000000000000000007-00000000000000000012.log"


@pytest.fixture
def files(tmp_path):
    made = RelayFiles(tmp_path / "state")
    made.put(SEALED, sealed(1, 6))
    made.put(ROTATED, segment(7, 12, b"\x77" * 16))
    made.active(segment(13, 18))
    return made


def shown(path, after=0):
    events, rest = {}, []
    for one in iter_path(str(path), after=after):
        if isinstance(one, StoredEvent):
            assert one.cursor.ordinal > max(events, default=0)
            assert one.cursor.digest == digest(one.cursor.ordinal)
            events[one.cursor.ordinal] = one.stored
        else:
            rest.append(one)
    return events, rest


def flip(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


@pytest.mark.parametrize("below", ["", "journal"])
@pytest.mark.parametrize("after", [0, 1, 5, 6, 9, 12, 17, 18, 99])
def test_a_relay_and_its_journal(files, below, after):
    before = files.everything()
    events, rest = shown(files.path / below, after)
    assert events == {n: body(n) for n in range(after + 1, 19)}
    assert rest == []
    assert files.everything() == before


@pytest.mark.parametrize(("name", "held"), [(SEALED, (1, 6)), (ROTATED, (7, 12)), ("journal/active.log", (13, 18))])
@pytest.mark.parametrize("renamed", [False, True])
def test_a_segment_under_its_name_or_another(files, tmp_path, name, held, renamed):
    path = files.path / name
    if renamed:
        path = path.rename(tmp_path / "copy")
    events, rest = shown(path)
    assert events == {n: body(n) for n in range(held[0], held[1] + 1)}
    assert rest == []


def test_a_journal_that_stands_alone(files, tmp_path):
    (tmp_path / "copy").mkdir()
    for path in files.journal.iterdir():
        (tmp_path / "copy" / path.name).write_bytes(path.read_bytes())
    assert shown(tmp_path / "copy")[0].keys() == set(range(1, 19))


def test_damage_is_told_in_its_place_and_the_rest_is_given(files):
    flip(files.path / ROTATED, (files.path / ROTATED).read_bytes().index(body(9)) + 20)
    events, (damage,) = shown(files.path)
    assert events.keys() == set(range(1, 19)) - {9}
    assert isinstance(damage, Unreadable)
    assert (damage.file, damage.lost) == (ROTATED, (9, 9))


@pytest.mark.parametrize("at", range(0, 400, 7))
def test_any_flip_in_a_sealed_segment_loses_at_most_what_is_told(files, at):
    path = files.path / SEALED
    flip(path, at % path.stat().st_size)
    events, rest = shown(path)
    told = {n for one in rest if one.lost for n in range(one.lost[0], one.lost[1] + 1)}
    assert events == {n: body(n) for n in events}
    assert events.keys() | told == set(range(1, 7))
    assert not events.keys() & told


def test_a_torn_end_is_told_and_not_shown(files):
    content = segment(13, 18)
    files.active(content + oracle.group(len(content), 19, bodies(19, 21))[:-3], synced=len(content))
    events, (torn,) = shown(files.path)
    assert events.keys() == set(range(1, 19))
    assert (torn.offset, torn.lost) == (len(content), None)
    assert "never answered" in torn.what


def test_a_marked_span_is_told(files):
    (files.path / ROTATED).unlink()
    files.put("journal/00000000000000000007-00000000000000000012.lost", b"")
    events, (lost,) = shown(files.path)
    assert events.keys() == {*range(1, 7), *range(13, 19)}
    assert lost.lost == (7, 12)


def test_a_live_relay_stops_at_the_watermark(files):
    content = segment(13, 18, sizes=(1,))
    stop = content.index(oracle.record(16, body(16))) - 64
    files.active(content, synced=stop)
    with contextlib.closing(open_state_directory(str(files.path))) as daemon:
        assert daemon.lock()
        events, rest = shown(files.path)
    assert events.keys() == set(range(1, 16))
    assert rest == [InFlight("journal/active.log", stop, len(content) - stop)]


def test_a_live_relay_without_a_watermark_shows_nothing_of_the_active_segment(files):
    (files.path / "watermark").unlink()
    with contextlib.closing(open_state_directory(str(files.path))) as daemon:
        assert daemon.lock()
        events, rest = shown(files.path)
    assert events.keys() == set(range(1, 13))
    assert isinstance(rest[0], InFlight)


def test_what_is_no_journal_is_not_found(tmp_path):
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(NotFoundError):
            list(iter_path(str(path)))


def gaps(rest):
    return [(type(one), one.gone if isinstance(one, Collected) else one.lost) for one in rest]


@pytest.mark.parametrize(("gone", "span"), [(SEALED, (1, 6)), (ROTATED, (7, 12))])
@pytest.mark.parametrize("live", [False, True])
def test_a_segment_that_is_gone_is_missed_by_name(files, gone, span, live):
    (files.path / gone).unlink()
    with contextlib.ExitStack() as stack:
        if live:
            assert stack.enter_context(contextlib.closing(open_state_directory(str(files.path)))).lock()
        events, rest = shown(files.path)
    assert events.keys() == set(range(1, 19)) - set(range(span[0], span[1] + 1))
    assert gaps(rest) == [(Unreadable, span)]
    assert rest[0].what == "they were answered, and are in no file"


@pytest.mark.parametrize(("after", "span"), [(0, (7, 12)), (8, (9, 12)), (11, (12, 12))])
def test_what_is_missing_is_told_from_the_cursor_on(files, after, span):
    (files.path / ROTATED).unlink()
    assert gaps(shown(files.path, after)[1]) == [(Unreadable, span)]
    assert shown(files.path, 12)[1] == []


@pytest.mark.parametrize("name", ["snapshot", "acknowledged"])
def test_an_end_that_was_answered_and_is_gone_is_told(files, name):
    """All segments but the first are gone, and the watermark names none: what stands beside them tells."""
    (files.path / ROTATED).unlink()
    (files.path / "journal/active.log").unlink()
    (files.path / "watermark").unlink()
    files.put(name, {"snapshot": snapshot, "acknowledged": acknowledged}[name](15))
    events, rest = shown(files.path)
    assert events.keys() == set(range(1, 7))
    assert gaps(rest) == [(Unreadable, (7, 15))]


def test_all_segments_gone_beside_a_watermark_is_told_with_what_may_have_been_used(files):
    for path in files.journal.iterdir():
        path.unlink()
    files.put("snapshot", snapshot(18))
    events, (lost,) = shown(files.path, 18)
    assert events == {}
    assert (lost.file, lost.lost[0], lost.at_most) == ("journal/active.log", 19, True)
    assert "missing" in lost.what


def test_a_watermark_of_another_file_says_nothing_of_a_missing_active_segment(files):
    """A crash in the middle of a rotation: the file that it names has another name by now."""
    (files.path / "journal/active.log").unlink()
    files.put("watermark", oracle.watermark(b"\x77" * 16, 500))
    events, rest = shown(files.path)
    assert (events.keys(), rest) == (set(range(1, 13)), [])


@pytest.mark.parametrize("base", [6, 9])
def test_collected_events_are_a_gap_and_no_damage(files, base):
    (files.path / SEALED).unlink()
    files.put("snapshot", snapshot(15, base))
    assert gaps(shown(files.path)[1]) == [(Collected, (1, 6))]
    assert gaps(shown(files.path, 4)[1]) == [(Collected, (5, 6))]


def test_what_is_missing_above_the_base_is_damage(files):
    (files.path / SEALED).unlink()
    files.put("snapshot", snapshot(15, 4))
    assert gaps(shown(files.path)[1]) == [(Collected, (1, 4)), (Unreadable, (5, 6))]


def test_a_journal_that_stands_alone_may_begin_anywhere_and_has_no_hole(files, tmp_path):
    (tmp_path / "copy").mkdir()
    for path in files.journal.iterdir():
        (tmp_path / "copy" / path.name).write_bytes(path.read_bytes())
    (tmp_path / "copy" / SEALED.removeprefix("journal/")).unlink()
    assert gaps(shown(tmp_path / "copy")[1]) == [(Collected, (1, 6))]
    (tmp_path / "copy" / SEALED.removeprefix("journal/")).write_bytes(sealed(1, 5))
    (tmp_path / "copy" / ROTATED.removeprefix("journal/")).unlink()
    assert (Unreadable, (7, 12)) in gaps(shown(tmp_path / "copy")[1])


def test_a_file_that_holds_less_than_its_name_says_is_told(files):
    for name, content in ((SEALED, sealed(1, 4)), (ROTATED, b"")):
        (files.path / name).write_bytes(content)
    events, rest = shown(files.path)
    assert events.keys() == {1, 2, 3, 4, *range(13, 19)}
    assert [lost for _, lost in gaps(rest) if lost is not None] == [(5, 6), (7, 12)]


def test_a_span_that_an_event_gave_up_is_told_as_one_that_a_file_marks(files):
    lost = msgspec.msgpack.encode([1, "relay.lost", {"first": 13, "last": 20, "reason": "missing"}])
    files.active(oracle.segment_of([[lost]], 21))
    rest = [one for one in iter_path(str(files.path)) if not isinstance(one, StoredEvent)]
    assert [(one.lost, one.what) for one in rest] == [((13, 20), "salvage has given these up")]


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"root:x:0:0:root:/root:/bin/bash\n", "no segment, and no backup either"),
        (b"", "no segment, empty"),
        (snapshot(3), "no segment, and no events are in it"),
        (zstandard.ZstdCompressor().compress(b"some text"), "no segment, no record is in it"),
    ],
)
def test_a_file_that_is_no_segment_is_refused(tmp_path, content, what):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(NoSegmentError, match=f"{path}: {what}"):
        list(iter_path(str(path)))


def test_a_backup_is_read(tmp_path):
    path = tmp_path / "x.backup"
    records = [[oracle.record(n, body(n)) for n in span] for span in (range(3, 9), range(11, 15))]
    cursors = [Cursor(n, digest(n)) for n in (2, 16)]
    write_backup(str(path), BackupHead("demo", oracle.STORE, *cursors, 5), [b"".join(page) for page in records])
    events, rest = shown(path)
    assert events == {n: body(n) for n in (*range(3, 9), *range(11, 15))}
    assert gaps(rest) == [(Collected, (1, 2)), (Unreadable, (9, 10)), (Unreadable, (15, 16))]
    assert shown(path, 11)[0].keys() == {12, 13, 14}
    assert gaps(shown(path, 11)[1]) == [(Unreadable, (15, 16))]
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    with pytest.raises(NoSegmentError, match="no whole backup"):
        list(iter_path(str(path)))


def test_a_damaged_backup_loses_what_is_told_and_no_more(tmp_path):
    path = tmp_path / "x.backup"
    page = b"".join(oracle.record(n, body(n)) for n in range(1, 30))
    write_backup(str(path), BackupHead("demo", oracle.STORE, GENESIS, Cursor(29, digest(29)), 5), [page])
    frame = path.read_bytes().index(b"\x28\xb5\x2f\xfd")
    flip(path, frame + 60)
    events, rest = shown(path)
    told = {n for one in rest if one.lost for n in range(one.lost[0], one.lost[1] + 1)}
    assert rest
    assert events.keys() | told == set(range(1, 30))
    assert not events.keys() & told


def test_a_state_directory_is_told_what_to_name(files):
    with pytest.raises(NotFoundError, match=f"{files.state} is a state directory"):
        list(iter_path(str(files.state)))
