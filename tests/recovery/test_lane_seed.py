"""A seed with queued commands, settings and remembered ids: what the relay made of it does, and what is refused."""

import copy
import json

import pytest
from support import lane, oracle
from support.inside import inside, run_virtually
from support.relays import RelayDisk, framed, pack, seen

from relayd.journal.real_storage import open_state_directory
from relayd.protocol.errors import InvalidRequestError
from relayd.protocol.limits import TERMINAL_IDS_REMEMBERED
from relayd.recovery.making import restore_relay
from relayd.recovery.restore import restore
from relayd.recovery.seed import SeedError, decode_seed

DIGEST = b"s" * 16
TASK = {"type": "task", "payload": {"n": 1.5}}
SIDE = {"type": "side_task", "payload": [1]}
SETTING = {"type": "configure", "key": "model", "value": {"deep": [True, 1]}}
DONE = {"type": "task", "payload": "done"}
TERMINAL = {
    "type": "task",
    "digest": lane.canonical_digest(DONE),
    "ordinal": 3,
    "state": "rejected",
    "terminal": 8,
    "outcome": lane.canonical_digest({"outcome": "rejected", "message": "no"}),
    "reason": "by_worker",
}
SEED = {
    "frontier": [40, DIGEST],
    "commands": [["task-0001", 12, TASK], ["side-0001", 15, SIDE], ["config-01", 21, SETTING], ["task-0002", 22, DONE]],
    "config": {"limit": 7, "names": ["a", None]},
    "terminal_ids": [["done-0001", TERMINAL]],
    "producers": {"p": [4, [38, DIGEST]]},
    "floor": [5, DIGEST],
}


def as_json(seed: dict) -> bytes:
    """The form for people: digests of 32 hex digits."""
    said = copy.deepcopy(seed)
    for at in (said["frontier"], said["floor"], *(mark[1] for mark in said["producers"].values())):
        at[1] = at[1].hex()
    hexed = {"digest": TERMINAL["digest"].hex(), "outcome": TERMINAL["outcome"].hex()}
    said["terminal_ids"] = [[name, ended | hexed] for name, ended in said["terminal_ids"]]
    return json.dumps(said).encode()


FORMS = pytest.mark.parametrize("form", [as_json, lambda seed: framed(b"RLYSNAP1", seed)], ids=["json", "binary"])


def live(name: str, ordinal: int, command: dict) -> list:
    return [command["type"], lane.canonical_digest(command), ordinal, command, "queued", None, 0, None]


@FORMS
def test_what_the_relay_begins_with_is_what_the_seed_says(tmp_path, form):
    disk = restored(tmp_path, form(SEED))
    commands = {name: live(name, ordinal, command) for name, ordinal, command in SEED["commands"]}
    spent = sum(96 + 2 * len(name) + len(pack(command)) for name, _, command in SEED["commands"])
    spent += sum(96 + len(key) + len(pack(value)) for key, value in SEED["config"].items())
    opened = disk.look()
    assert seen(opened)["lane"] == {
        "queue": {name: each for name, each in commands.items() if name != "side-0001"},
        "side": {"side-0001": commands["side-0001"]},
        "ended": {"done-0001": list(TERMINAL.values())},
        "config": SEED["config"],
        "live_bytes": spent,
    }
    (disk.path / "snapshot").unlink()
    assert seen(disk.look()) == seen(opened), "the seed is kept, and says the same again"


def restored(tmp_path, seed: bytes) -> RelayDisk:
    disk = RelayDisk(tmp_path)
    disk.journal.rmdir()
    disk.path.rmdir()
    relays = open_state_directory(str(tmp_path / "relays"))
    try:
        restore_relay(
            relays, "demo", seed=seed, store=oracle.STORE, retention="checkpointed", max_active=1, now_ms=5000,
            new_id=disk.new_id,
        )  # fmt: skip
    finally:
        relays.close()
    return disk


@FORMS
def test_it_opens_hands_over_in_order_and_remembers(tmp_path, form):
    file = tmp_path / "seed"
    file.write_bytes(form(SEED))
    restore(str(tmp_path / "state"), "a", str(file))

    async def main():
        async with inside(tmp_path / "state") as daemon:
            client, worker = await daemon.connect(), daemon.connect_silent()
            await worker.done("hello", versions=[1], client="w", worker="w1")
            status = await client.done("status", relay="a")
            # Task and side task run side by side; a configure runs alone, and waits for both.
            assert (status["active"], status["queued"]) == (["side-0001", "task-0001"], ["config-01", "task-0002"])
            assert status["config"] == SEED["config"]
            handed = await worker.done("claim", relay="a", capacity=9)
            fields = ("command_id", "ordinal", "command", "delivery")
            assert [tuple(one[field] for field in fields) for one in handed["commands"]] == [
                ("task-0001", 12, TASK, 1), ("side-0001", 15, SIDE, 1),
            ]  # fmt: skip
            for name, following in (("task-0001", None), ("side-0001", "config-01"), ("config-01", "task-0002")):
                await worker.done("finish", relay="a", command_id=name, outcome="completed")
                handed = (await worker.done("claim", relay="a", capacity=9))["commands"]
                assert [one["command_id"] for one in handed] == ([following] if following else [])
            assert (await client.done("status", relay="a"))["config"] == SEED["config"] | {"model": SETTING["value"]}

            repeat = await client.done("submit", relay="a", command_id="done-0001", command=DONE)
            assert (repeat["ordinal"], repeat["duplicate"]) == (3, True)
            other = await client.refusal("submit", relay="a", command_id="done-0001", command=TASK)
            assert other[0] == "conflict"
            same = await worker.done("finish", relay="a", command_id="done-0001", outcome="rejected", message="no")
            assert (same["ordinal"], same["duplicate"]) == (8, True)
            assert (await worker.refusal("finish", relay="a", command_id="done-0001", outcome="completed"))[
                0
            ] == "conflict"
            told = await client.done("command", relay="a", command_id="done-0001")
            assert (told["state"], told["reason"], told["terminal"]) == ("rejected", "by_worker", 8)
            queued = await client.done("submit", relay="a", command_id="task-0002", command=DONE)
            assert (queued["ordinal"], queued["duplicate"]) == (22, True)

    run_virtually(main)


def changed(**changes: object) -> dict:
    return SEED | changes


def one_command(*command: object) -> dict:
    return changed(commands=[list(command)])


def one_terminal(name: str = "done-0001", **changes: object) -> dict:
    return changed(terminal_ids=[[name, TERMINAL | changes]])


MANY = [[f"done-{n:05}", TERMINAL] for n in range(TERMINAL_IDS_REMEMBERED + 1)]
BAD = {
    "a command's id": (one_command("short", 12, TASK), "`commands` has 'short'"),
    "an id twice": (
        changed(commands=[["task-0001", 12, TASK], ["task-0001", 13, TASK]]),
        "`commands` has 'task-0001'",
    ),
    "not in order": (
        changed(commands=[["task-0001", 13, TASK], ["task-0002", 12, TASK]]),
        "`commands` has ordinal 12",
    ),
    "the same ordinal": (changed(commands=[["task-0001", 12, TASK], ["task-0002", 12, TASK]]), "ordinal 12"),
    "at ordinal 0": (one_command("task-0001", 0, TASK), "ordinal 0"),
    "past the frontier": (one_command("task-0001", 41, TASK), "`commands` has ordinal 41"),
    "no command": (one_command("task-0001", 12, 7), "`commands` has 'task-0001'"),
    "an unknown type": (one_command("task-0001", 12, {"type": "dance"}), "`commands` has 'task-0001'"),
    "an unknown field": (one_command("task-0001", 12, TASK | {"x": 1}), "`commands` has 'task-0001'"),
    "a command too large": (one_command("task-0001", 12, TASK | {"payload": "x" * 2**20}), "'task-0001'"),
    "a blank setting in the queue": (one_command("task-0001", 12, SETTING | {"key": " "}), "'task-0001'"),
    "a cancel in the queue": (one_command("cancel-01", 12, {"type": "cancel", "target": "task-0001"}), "a cancel;"),
    "a checkpoint in the queue": (one_command("begin-001", 12, {"type": "begin_checkpoint"}), "a begin_checkpoint;"),
    "a blank key": (changed(config={" ": 1}), "`config` has a blank key"),
    "a terminal id": (one_terminal("!"), "`terminal_ids` has '!'"),
    "terminal and queued": (one_terminal("task-0001"), "`terminal_ids` has 'task-0001'"),
    "a terminal id twice": (changed(terminal_ids=MANY[:1] * 2), "`terminal_ids` has 'done-00000'"),
    "too many": (changed(terminal_ids=MANY), f"{TERMINAL_IDS_REMEMBERED} are remembered"),
    "an end past the frontier": (one_terminal(terminal=41), "'done-0001' at an ordinal past the frontier"),
    "accepted past the frontier": (one_terminal(ordinal=41), "'done-0001' at an ordinal past the frontier"),
    "ended before it was accepted": (one_terminal(ordinal=9), "'done-0001'"),
    "a state that is none": (one_terminal(state="queued"), "state"),
    "a type that is none": (one_terminal(type="dance"), "type"),
    "an unknown word of an end": (one_terminal(x=1), "x"),
    "more than a snapshot can hold": (
        changed(commands=[[f"task-{n:04}", n, TASK | {"payload": "x" * 1_000_000}] for n in range(1, 17)]),
        "bytes of state",
    ),
    "a reason that is none": (one_terminal(reason="because"), "reason"),
}


@FORMS
@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_a_bad_seed_is_refused_naming_what_and_writes_nothing(tmp_path, form, bad):
    said, named = bad
    with pytest.raises(SeedError) as wrong:
        decode_seed(form(said))
    assert named in str(wrong.value)
    file = tmp_path / "seed"
    file.write_bytes(form(said))
    with pytest.raises(InvalidRequestError) as refused:
        restore(str(tmp_path / "state"), "a", str(file))
    assert named in str(refused.value)
    assert not [*(tmp_path / "state").rglob("*a*/*")]


@pytest.mark.parametrize("field", ["digest", "outcome"])
def test_a_digest_of_another_size_is_refused_and_named(field):
    with pytest.raises(SeedError, match=field):
        decode_seed(framed(b"RLYSNAP1", one_terminal(**{field: b"short"})))
