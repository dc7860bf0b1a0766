"""`relayd cat` gives every intact event of whatever it is pointed at, says what is not there, and changes nothing."""

import contextlib

import pytest
from support import oracle
from support.relay_files import RelayFiles, bodies, body, digest, sealed, segment

from relayd.journal.real_storage import open_state_directory
from relayd.protocol.errors import NotFoundError
from relayd.recovery.cat import InFlight, StoredEvent, Unreadable, iter_path

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
