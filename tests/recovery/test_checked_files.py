"""snapshot, acknowledged and quarantine/: exact bytes, and no damage that goes unnoticed."""

import json
import struct
from pathlib import Path

import msgspec
import pytest
from support import oracle
from support.faults import Faults
from support.relays import acknowledged, cursor, framed, pack, snapshot, state

from relayd.journal.real_storage import open_state_directory
from relayd.protocol.cursor import GENESIS, Cursor
from relayd.recovery.acknowledged import decode_acknowledged, encode_acknowledged, replace_acknowledged
from relayd.recovery.checked_map import MAP_BYTES_MAX, CheckedMapError, LaterFormatError, frame_map, unframe_map
from relayd.recovery.idle import is_idle, mark_idle
from relayd.recovery.quarantine import keep_bytes, set_aside
from relayd.recovery.snapshot import (
    decode_snapshot,
    encode_snapshot,
    install,
    load_generation,
    read_generations,
    write_new,
)
from relayd.relay.acknowledged import Acknowledgements
from relayd.relay.state import RelayState

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "files.json").read_text())
SNAPSHOT = bytes.fromhex(VECTORS["snapshot_hex"])
ACKNOWLEDGED = bytes.fromhex(VECTORS["acknowledged_hex"])
FOUR = Cursor(4, bytes.fromhex("309aae0994c457497e4b9ead0f5a0242"))


@pytest.fixture
def relay(tmp_path):
    directory = open_state_directory(str(tmp_path))
    yield directory
    directory.close()


def test_the_known_snapshot_is_read():
    found = decode_snapshot(SNAPSHOT)
    assert (found.relay, found.store, found.frontier, found.base) == ("demo", oracle.STORE, FOUR, GENESIS)


def test_the_known_acknowledged_is_read_and_written():
    said = decode_acknowledged(ACKNOWLEDGED)
    assert (said.store, said.acknowledged, said.consumers) == (oracle.STORE, FOUR, {"controller": FOUR})
    assert encode_acknowledged(oracle.STORE, Acknowledgements(FOUR, {"controller": FOUR})) == ACKNOWLEDGED


def test_a_snapshot_is_the_bytes_the_layout_says():
    made = RelayState(oracle.STORE, frontier=Cursor(*cursor(3)), execution_since=1000, last_event_at=1003)
    content = encode_snapshot("demo", made, GENESIS)
    said = msgspec.msgpack.decode(content[48:])
    assert list(said) == ["format", "relay", "store", "frontier", "base", "state"]
    assert content == framed(b"RLYSNAP1", said)
    assert said["state"] == state(3, producers={})


@pytest.mark.parametrize(("content", "read"), [(snapshot(3), decode_snapshot), (acknowledged(3), decode_acknowledged)])
def test_every_bit_every_truncation_and_anything_appended_is_noticed(content, read):
    read(content)
    for at in range(len(content) * 8):
        damaged = bytearray(content)
        damaged[at // 8] ^= 1 << at % 8
        with pytest.raises(CheckedMapError):
            read(damaged)
    for size in range(len(content)):
        with pytest.raises(CheckedMapError):
            read(content[:size])
    with pytest.raises(CheckedMapError):
        read(content + b"\0")


def test_a_length_is_not_believed():
    huge = b"RLYSNAP1" + struct.pack("<Q", 2**64 - 1) + bytes(32)
    with pytest.raises(CheckedMapError, match="bytes follow"):
        unframe_map(b"RLYSNAP1", huge)
    with pytest.raises(CheckedMapError, match="possible"):
        frame_map(b"RLYSNAP1", bytes(MAP_BYTES_MAX + 1))


@pytest.mark.parametrize(
    ("magic", "read"), [(b"RLYSNAP1", decode_snapshot), (b"RLYACKD1", decode_acknowledged)], ids=["snapshot", "acks"]
)
def test_a_later_format_is_told_from_damage(magic, read):
    with pytest.raises(LaterFormatError, match="format is 2"):
        read(framed(magic, {"format": 2, "new": [1]}))
    for never in ({"format": 0}, {"format": "1"}, {}, [1]):
        with pytest.raises(CheckedMapError):
            read(framed(magic, never))


@pytest.mark.parametrize(
    "changes",
    [
        {"frontier": [3, None]},
        {"base": cursor(4)},
        {"state": {}},
        {"state": state(4)},
        {"state": state(3, store=b"S" * 16)},
        {"state": state(3) | {"unheard_of": 1}},
    ],
)
def test_a_snapshot_that_contradicts_itself_is_not_usable(changes):
    said = msgspec.msgpack.decode(snapshot(3)[48:])
    with pytest.raises(CheckedMapError):
        load_generation("snapshot", framed(b"RLYSNAP1", said | changes))


def test_acknowledgements_without_digests_are_not_believed():
    for said in ([3, None], [0, b"x" * 16], [3, bytes(16)]):
        whole = {"format": 1, "store": oracle.STORE, "acknowledged": cursor(1), "consumers": {"c": said}}
        with pytest.raises(CheckedMapError, match="names no event"):
            decode_acknowledged(framed(b"RLYACKD1", whole))


def test_installing_keeps_the_generation_before(relay, tmp_path):
    for frontier in (1, 2, 3):
        write_new(relay, snapshot(frontier))
        install(relay)
    assert [one.snapshot.frontier.ordinal for one in read_generations(relay).usable] == [3, 2]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["snapshot", "snapshot.previous"]


def test_a_generation_is_synced_before_its_name_and_the_name_before_anything_else(relay):
    faults = Faults()
    wrapped = faults.wrap(relay)
    write_new(wrapped, snapshot(1))
    install(wrapped)
    done = [call for call in faults.names() if not call.startswith(("stat", "open"))]
    assert done == ["write snapshot.new", "sync snapshot.new", "replace snapshot.new snapshot", faults.names()[-1]]
    assert faults.names()[-1].startswith("sync ")


def test_acknowledged_is_synced_before_its_name_and_the_name_before_the_answer(relay):
    faults = Faults()
    replace_acknowledged(faults.wrap(relay), oracle.STORE, Acknowledgements(FOUR, {}))
    done = [call for call in faults.names() if not call.startswith("open")]
    assert done[:3] == ["write acknowledged.new", "sync acknowledged.new", "replace acknowledged.new acknowledged"]
    assert done[3].startswith("sync ")


def test_a_damaged_generation_is_named_beside_the_usable_one(relay, tmp_path):
    (tmp_path / "snapshot").write_bytes(snapshot(3)[:-1])
    (tmp_path / "snapshot.previous").write_bytes(snapshot(2))
    found = read_generations(relay)
    assert [one.name for one in found.usable] == ["snapshot.previous"]
    assert [name for name, _ in found.damaged] == ["snapshot"]


def test_acknowledged_is_replaced_whole(relay, tmp_path):
    (tmp_path / "acknowledged").write_bytes(b"old" * 1000)
    (tmp_path / "acknowledged.new").write_bytes(b"left by a crash")
    replace_acknowledged(relay, oracle.STORE, Acknowledgements(FOUR, {"controller": FOUR}))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"acknowledged": ACKNOWLEDGED}


def test_idle_is_a_hint_that_comes_and_stays(relay):
    assert not is_idle(relay)
    mark_idle(relay)
    mark_idle(relay)
    assert is_idle(relay)


def test_quarantine_keeps_each_content_once(relay, tmp_path):
    assert [keep_bytes(relay, "a", content) for content in (b"1", b"2", b"1", b"22", b"")] == [
        "a",
        "a.1",
        "a",
        "a.2",
        "a.3",
    ]
    kept = {path.name: path.read_bytes() for path in (tmp_path / "quarantine").iterdir()}
    assert kept == {"a": b"1", "a.1": b"2", "a.2": b"22", "a.3": b""}


def test_a_file_set_aside_is_moved_whole(relay, tmp_path):
    content = bytes(range(256)) * 9000
    (tmp_path / "big").write_bytes(content)
    assert set_aside(relay, relay, "big") == "big"
    assert not (tmp_path / "big").exists()
    assert (tmp_path / "quarantine" / "big").read_bytes() == content


def test_pack_is_not_canonical_but_ours():
    """The maker of test bytes encodes as relayd does, so that comparing whole files means something."""
    assert pack({"a": [1, b"x"]}) == bytes.fromhex("81a16192 01c40178".replace(" ", ""))
