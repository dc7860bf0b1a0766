"""A seed, in both its forms: what it says, what it may not say, and what a restored relay makes of it."""

import copy
import hashlib
import json

import pytest
from support import oracle
from support.relays import RelayDisk, cursor, framed, pack, seen, state

from relayd.journal.real_storage import open_state_directory
from relayd.protocol.cursor import GENESIS, Cursor
from relayd.protocol.errors import InvalidRequestError
from relayd.recovery.making import restore_relay
from relayd.recovery.seed import SeedError, decode_seed, encode_seed

PLAIN = {
    "frontier": cursor(9),
    "commands": [],
    "config": {},
    "terminal_ids": [],
    "producers": {"p": [4, cursor(7)]},
    "floor": cursor(5),
}
FULL = PLAIN | {
    "commands": [["command-1", 8, {"type": "task", "payload": {"n": 1.5}}]],
    "config": {"model": {"deep": [True, None]}},
    "terminal_ids": [
        [
            "command-0",
            {
                "type": "task",
                "digest": b"d" * 16,
                "ordinal": 2,
                "state": "completed",
                "terminal": 6,
                "outcome": b"o" * 16,
            },
        ]
    ],
}


def as_json(seed: dict) -> bytes:
    said = copy.deepcopy(seed)
    for at in [
        said["frontier"],
        *([said["floor"]] if "floor" in said else []),
        *(p[1] for p in said["producers"].values()),
    ]:
        at[1] = at[1].hex()
    for _, entry in said["terminal_ids"]:
        entry |= {key: entry[key].hex() for key in ("digest", "outcome")}
    return json.dumps(said).encode()


@pytest.mark.parametrize("seed", [PLAIN, FULL], ids=["plain", "full"])
def test_both_forms_say_the_same(seed):
    binary, text = decode_seed(framed(b"RLYSNAP1", seed)), decode_seed(as_json(seed))
    assert encode_seed(binary) == encode_seed(text)
    assert decode_seed(encode_seed(binary)) == binary
    assert binary.frontier == Cursor(*cursor(9))
    assert binary.floor == Cursor(*cursor(5))
    assert [(each.command_id, each.ordinal, bytes(each.command)) for each in binary.commands] == [
        (name, ordinal, pack(command)) for name, ordinal, command in seed["commands"]
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"unheard_of": 1},
        {"frontier": [9, None]},
        {"frontier": [0, b"x" * 16]},
        {"frontier": [9, bytes(16)]},
        {"frontier": [2**64 - 2, b"x" * 16]},
        {"floor": cursor(10)},
        {"producers": {"": [1, cursor(1)]}},
        {"producers": {"p": [-1, cursor(1)]}},
        {"producers": {"p": [1, cursor(10)]}},
        {"producers": {f"p{n}": [1, cursor(1)] for n in range(1025)}},
        {"commands": [["short", 1, 1]]},
        {"commands": [["command-1", 10, 1]]},
        {"terminal_ids": [["!", 1]]},
    ],
)
def test_what_a_seed_may_not_say(changes):
    with pytest.raises(SeedError):
        decode_seed(framed(b"RLYSNAP1", PLAIN | changes))


@pytest.mark.parametrize("missing", ["frontier", "commands", "config", "terminal_ids", "producers"])
def test_every_field_but_floor_is_needed(missing):
    without = {key: value for key, value in PLAIN.items() if key != missing}
    with pytest.raises(SeedError, match=missing):
        decode_seed(framed(b"RLYSNAP1", without))
    assert decode_seed(framed(b"RLYSNAP1", {k: v for k, v in PLAIN.items() if k != "floor"})).floor is None


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b"{}", b"\xff\xfe", as_json(PLAIN).replace(b'"floor": [5, "', b'"floor": [5, "AB')]
)
def test_no_seed_at_all(text):
    with pytest.raises(SeedError):
        decode_seed(text)


def restore(tmp_path, seed: bytes) -> RelayDisk:
    disk = RelayDisk(tmp_path)
    disk.journal.rmdir()
    disk.path.rmdir()
    relays = open_state_directory(str(tmp_path / "relays"))
    try:
        restore_relay(
            relays,
            "demo",
            seed=seed,
            store=oracle.STORE,
            retention="acknowledged",
            max_active=2,
            now_ms=5000,
            new_id=disk.new_id,
        )
    finally:
        relays.close()
    return disk


@pytest.mark.parametrize("form", [as_json, lambda seed: framed(b"RLYSNAP1", seed)], ids=["json", "binary"])
def test_a_restored_relay_goes_on_where_its_seed_ends(tmp_path, form):
    seed = form(PLAIN)
    disk = restore(tmp_path, seed)
    digest = hashlib.blake2b(seed, digest_size=32).digest()
    body = pack(
        [5000, "relay.restored", {"store": oracle.STORE, "seed": digest, "retention": "acknowledged", "max_active": 2}]
    )
    assert disk.bodies() == {10: body}
    opened = disk.look()
    frontier = [10, oracle.record(10, body)[12:28]]
    assert seen(opened) == state(
        10,
        retention="acknowledged",
        max_active=2,
        frontier=frontier,
        floor=cursor(5),
        seed=digest,
        execution_since=5000,
        last_event_at=5000,
        producers={"p": [4, cursor(7)]},
    )
    assert (disk.path / "seed").read_bytes() == seed
    assert opened.base == Cursor(*cursor(9))
    (disk.path / "snapshot").unlink()
    assert seen(disk.look()) == seen(opened)


def test_a_seed_at_genesis(tmp_path):
    seed = as_json(PLAIN | {"frontier": [0, bytes(16)], "producers": {}, "floor": [0, bytes(16)]})
    disk = restore(tmp_path, seed)
    assert list(disk.bodies()) == [1]
    assert disk.look().base == GENESIS


@pytest.mark.parametrize("seed", [b"no seed", as_json(FULL | {"config": {" ": 1}})], ids=["bad", "blank key"])
def test_a_seed_that_cannot_be_used_restores_nothing(tmp_path, seed):
    with pytest.raises(InvalidRequestError, match="seed"):
        restore(tmp_path, seed)
    assert list((tmp_path / "relays").iterdir()) == []


def test_another_seed_beside_the_journal_refuses(tmp_path):
    disk = restore(tmp_path, as_json(PLAIN))
    disk.put(seed=as_json(PLAIN | {"floor": cursor(6)}))
    assert "another digest" in str(disk.refused("snapshot_conflict"))


def test_a_seed_of_another_frontier_refuses(tmp_path):
    disk = restore(tmp_path, as_json(PLAIN))
    disk.put(seed=as_json(PLAIN | {"frontier": cursor(8)}))
    disk.refused("snapshot_lost")
    disk.put(seed=as_json(PLAIN | {"frontier": cursor(12)}))
    disk.refused("snapshot_conflict")


def test_a_bad_seed_refuses_and_is_named(tmp_path):
    disk = restore(tmp_path, as_json(PLAIN))
    disk.put(seed=b"{}")
    assert disk.refused("snapshot_lost").detail.file == str(disk.path / "seed")


def test_a_bad_seed_beside_a_usable_snapshot_is_nobodys_business(tmp_path):
    disk = restore(tmp_path, as_json(PLAIN))
    disk.look()
    disk.put(seed=b"{}")
    assert disk.look().state.frontier.ordinal == 10
