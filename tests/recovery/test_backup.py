"""A backup is whole or not there; what is restored from it is the same relay, and opens."""

import contextlib
import json
import os
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest
from support import oracle
from support.faults import Fail, Faults, Kill, Killed, changing, each_fault
from support.relay_files import RelayFiles, body, digest, read_sealed, snapshot

from relayd.journal.real_storage import open_state_directory
from relayd.protocol.cursor import GENESIS, Cursor
from relayd.protocol.errors import AlreadyExistsError, InvalidRequestError, InvalidStateError, RelaydError
from relayd.recovery.backup import write_backup
from relayd.recovery.backup_format import BackupHead
from relayd.recovery.opening import open_relay
from relayd.recovery.places import open_file
from relayd.recovery.restore import Fresh, restore, restore_into
from relayd.recovery.verify import verify_path

FRESH = Fresh("checkpointed", 1, 5)


@pytest.fixture(autouse=True)
def _no_syncs(monkeypatch):
    for call in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, call, lambda _: None)


def cursor(ordinal):
    return Cursor(ordinal, digest(ordinal)) if ordinal else GENESIS


def head(latest, evicted=0, **more):
    return BackupHead("demo", oracle.STORE, cursor(evicted), cursor(latest), 5, **more)


def pages(*spans, size=4):
    for first, last in spans:
        for begin in range(first, last + 1, size):
            yield b"".join(oracle.record(n, body(n)) for n in range(begin, min(begin + size, last + 1)))


def made(tmp_path, *spans, latest=None, evicted=0, **more):
    path = str(tmp_path / "file.backup")
    report = write_backup(path, head(latest or spans[-1][1], evicted, **more), pages(*spans))
    return path, report


def names_in(directory):
    return sorted(path.name for path in directory.iterdir())


def opened(state, name="demo"):
    with contextlib.closing(open_state_directory(str(state / "relays" / name))) as relay:
        found = open_relay(relay, name, segment_bytes=1 << 20, new_id=lambda: b"\xdd" * 16)
        found.writer.close()
        found.journal.close()
    return found


def records(state, name="demo"):
    found = RelayFiles.__new__(RelayFiles)
    found.journal = state / "relays" / name / "journal"
    return found.records()


def test_the_same_relay_again(tmp_path):
    path, report = made(tmp_path, (1, 30), consumers={"controller": cursor(12), "late": cursor(30)})
    assert (report.records, report.missing) == (30, ())
    assert report.bytes == Path(path).stat().st_size
    state = tmp_path / "state"
    restored = restore(str(state), "demo", path)
    assert (restored.source, restored.store, restored.records, restored.latest) == (
        "backup",
        oracle.STORE,
        30,
        cursor(30),
    )
    assert records(state) == {n: body(n) for n in range(1, 31)}
    found = opened(state)
    assert (found.state.frontier, found.store) == (cursor(30), oracle.STORE)
    assert found.acknowledgements.consumers == {"controller": cursor(12), "late": cursor(30)}
    assert found.state.producers["builder"].sequence == 30
    assert not verify_path(str(state / "relays" / "demo")).damaged


def test_zstd_reads_the_records_of_a_backup(tmp_path):
    path, _ = made(tmp_path, (1, 30))
    content = Path(path).read_bytes()
    assert read_sealed(content) == {n: body(n) for n in range(1, 31)}


def test_it_goes_on_under_another_name_and_with_new_events(tmp_path):
    path, _ = made(tmp_path, (1, 9))
    restore(str(tmp_path / "state"), "other", path)
    assert opened(tmp_path / "state", "other").writer.last_ordinal == 9


def test_what_is_later_than_the_cut_is_left_out(tmp_path):
    path, report = made(tmp_path, (1, 30), latest=17)
    assert report.records == 17
    assert restore(str(tmp_path / "state"), "demo", path).latest == cursor(17)


def test_a_relay_whose_beginning_is_gone_goes_on_from_the_cut(tmp_path):
    path, _ = made(tmp_path, (11, 30), evicted=10, retention="acknowledged", max_active=3)
    restore(str(tmp_path / "state"), "demo", path)
    found = opened(tmp_path / "state")
    assert (found.state.frontier, found.base, found.state.retention, found.state.max_active) == (
        cursor(30), cursor(10), "acknowledged", 3,
    )  # fmt: skip
    assert records(tmp_path / "state").keys() == set(range(11, 31))


def test_a_relay_whose_every_event_is_gone(tmp_path):
    path = str(tmp_path / "file")
    write_backup(path, head(30, 30), [])
    restore(str(tmp_path / "state"), "demo", path)
    found = opened(tmp_path / "state")
    assert found.state.frontier == cursor(30)
    assert found.writer.last_ordinal == 30


@pytest.mark.parametrize("spans", [[(1, 9), (14, 30)], [(1, 3), (5, 5), (9, 20)], [(4, 30)]])
@pytest.mark.parametrize("latest", [30, 34])
def test_unreadable_spans_stay_marked(tmp_path, spans, latest):
    path, report = made(tmp_path, *spans, latest=latest)
    had = {n for first, last in spans for n in range(first, last + 1)}
    missing = {n for first, last in report.missing for n in range(first, last + 1)}
    assert missing == set(range(1, latest + 1)) - had
    restored = restore(str(tmp_path / "state"), "demo", path)
    assert restored.missing == report.missing
    assert records(tmp_path / "state").keys() == had
    assert opened(tmp_path / "state").state.frontier == cursor(latest)


def test_a_span_that_an_event_gave_up_needs_no_mark(tmp_path):
    lost = msgspec.msgpack.encode([1, "relay.lost", {"first": 4, "last": 6, "reason": "damaged"}])
    records_of = [*(oracle.record(n, body(n)) for n in (1, 2, 3)), oracle.record(7, lost)]
    latest = Cursor(7, records_of[-1][12:28])
    path = str(tmp_path / "file")
    write_backup(path, BackupHead("demo", oracle.STORE, GENESIS, latest, 5), [b"".join(records_of)])
    restore(str(tmp_path / "state"), "demo", path)
    assert not list((tmp_path / "state").rglob("*.lost"))
    assert opened(tmp_path / "state").state.frontier == latest


@pytest.mark.parametrize("wrong", ["digest", "order", "cut", "twice"])
def test_pages_that_do_not_verify_are_not_written(tmp_path, wrong):
    path = tmp_path / "file"
    path.write_bytes(b"the backup of yesterday")
    good = [oracle.record(n, body(n)) for n in range(1, 6)]
    bad = {
        "digest": [*good[:2], good[2][:-1] + b"x"],
        "order": [good[1], good[0]],
        "cut": good,
        "twice": [good[0], good[0]],
    }[wrong]
    latest = Cursor(5, b"\x01" * 16) if wrong == "cut" else cursor(5)
    with pytest.raises(InvalidStateError, match="verify"):
        write_backup(str(path), BackupHead("demo", oracle.STORE, GENESIS, latest, 5), bad)
    assert path.read_bytes() == b"the backup of yesterday"
    assert names_in(tmp_path) == ["file"]


def test_a_daemon_that_goes_away_leaves_the_file_as_it_was(tmp_path):
    def broken():
        yield from pages((1, 5))
        raise ConnectionError

    path = tmp_path / "file"
    path.write_bytes(b"the backup of yesterday")
    with pytest.raises(ConnectionError):
        write_backup(str(path), head(30), broken())
    assert path.read_bytes() == b"the backup of yesterday"
    assert names_in(tmp_path) == ["file"]


def test_no_bit_of_a_backup_flips_unnoticed_and_nothing_is_made_of_it(tmp_path):
    path, _ = made(tmp_path, (1, 30))
    whole = Path(path).read_bytes()
    assert not verify_path(path).findings
    for at in range(0, len(whole), 11):
        Path(path).write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        try:
            restore(str(tmp_path / "state"), "demo", path)
        except InvalidRequestError:
            assert names_in(tmp_path / "state" / "relays") == []
            assert verify_path(path).damaged
        else:
            # A bit that changes nothing of what the frame expands to.
            assert records(tmp_path / "state") == {n: body(n) for n in range(1, 31)}
            shutil.rmtree(tmp_path / "state")


def test_no_shortening_of_a_backup_restores(tmp_path):
    path, _ = made(tmp_path, (1, 30))
    whole = Path(path).read_bytes()
    for size in range(0, len(whole), 13):
        Path(path).write_bytes(whole[:size])
        with pytest.raises(InvalidRequestError):
            restore(str(tmp_path / "state"), "demo", path)
    assert names_in(tmp_path / "state" / "relays") == []


def test_a_name_that_is_taken_or_none(tmp_path):
    path, _ = made(tmp_path, (1, 5))
    restore(str(tmp_path / "state"), "demo", path)
    with pytest.raises(AlreadyExistsError):
        restore(str(tmp_path / "state"), "demo", path)
    for name in ("", "../x", "Demo"):
        with pytest.raises(InvalidRequestError):
            restore(str(tmp_path / "state"), name, path)
    with pytest.raises(InvalidRequestError, match="nothing is at"):
        restore(str(tmp_path / "state"), "x", str(tmp_path / "nothing"))


def test_killed_at_every_call_a_restored_relay_is_there_whole_or_not_there(tmp_path):
    path, _ = made(tmp_path, (1, 9), (14, 30), consumers={"controller": cursor(12)})
    number = 0
    for faults in each_fault(lambda n: Kill(n, after=True), changing):
        number += 1
        state = tmp_path / str(number)
        (state / "relays").mkdir(parents=True)
        with contextlib.suppress(Killed):
            run_restore(state, path, faults)
        if (state / "relays" / "demo").exists():
            assert opened(state).state.frontier == cursor(30)
        else:
            run_restore(state, path, Faults())
            assert opened(state).state.frontier == cursor(30)
        assert names_in(state / "relays") == ["demo"]
    assert number > 20


def test_a_failing_disk_leaves_nothing_behind(tmp_path):
    path, _ = made(tmp_path, (1, 9), (14, 30))
    for number, faults in enumerate(each_fault(Fail, changing)):
        state = tmp_path / str(number)
        (state / "relays").mkdir(parents=True)
        with contextlib.suppress(OSError, RelaydError):
            run_restore(state, path, faults)
        if faults.met and faults.met_at.name != "sync":
            assert names_in(state / "relays") in ([], ["demo"])


def run_restore(state, path, faults):
    with (
        contextlib.closing(open_state_directory(str(state / "relays"))) as relays,
        contextlib.closing(open_file(path)) as source,
    ):
        return restore_into(faults.wrap(relays), "demo", source, FRESH)


def seed(**more):
    said = {"frontier": [40, "ab" * 16], "commands": [], "config": {}, "terminal_ids": [], "producers": {}}
    return json.dumps(said | more).encode()


def test_a_relay_from_a_seed(tmp_path):
    path = tmp_path / "seed.json"
    path.write_bytes(seed(producers={"p": [3, [38, "cd" * 16]]}))
    report = restore(str(tmp_path / "state"), "demo", str(path), retention="acknowledged", max_active=2)
    assert (report.source, report.latest.ordinal) == ("seed", 41)
    found = opened(tmp_path / "state")
    assert (found.store, found.state.retention, found.state.max_active) == (report.store, "acknowledged", 2)
    assert found.state.producers["p"].sequence == 3


@pytest.mark.parametrize("content", [b"", b"{}", b"junk", snapshot(0), seed(unknown=1), seed(config={" ": 1})])
def test_what_is_neither_backup_nor_seed_makes_nothing(tmp_path, content):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(InvalidRequestError):
        restore(str(tmp_path / "state"), "demo", str(path))
    assert not [*(tmp_path / "state").rglob("*demo*")]


@pytest.mark.parametrize("content", [b"", b"a plain text\n", bytes(100)])
def test_what_looks_like_neither_is_called_so_by_its_name(tmp_path, content):
    path = tmp_path / "plain"
    path.write_bytes(content)
    with pytest.raises(InvalidRequestError, match=f"{path} is neither a backup nor a seed"):
        restore(str(tmp_path / "state"), "demo", str(path))
    assert not (tmp_path / "state").exists()


def test_the_zstd_tool_reads_a_backup(tmp_path):
    if shutil.which("zstd") is None:
        pytest.skip("no zstd tool on this machine")
    path, _ = made(tmp_path, (1, 30))
    plain = subprocess.run(
        ["zstd", "-dc", "--", path], capture_output=True, check=True, stdin=subprocess.DEVNULL
    ).stdout
    assert plain == b"".join(pages((1, 30)))
