"""A command is accepted once: repeats are told by their id and compared by what they say, not by how it is written."""

import struct

import msgspec
import pytest
from support.inside import inside
from support.lane_calls import TASK, claim, events, finish, many, refused, submit
from support.lane_calls import worker as connect_worker
from support.wire import frame

pack = msgspec.msgpack.encode
REMEMBERED = 8192


class Written:
    """Values in encodings that an encoder would not choose."""

    map32 = b"\xdf\x00\x00\x00\x02" + pack("type") + pack("task") + pack("payload")
    int64 = b"\xd3" + struct.pack(">q", 7)
    uint32 = b"\xce" + struct.pack(">I", 7)
    float32 = b"\xca" + struct.pack(">f", 1.5)
    str32 = b"\xdb" + struct.pack(">I", 2) + b"ab"
    bin32 = b"\xc6" + struct.pack(">I", 2) + b"ab"
    array32 = b"\xdd" + struct.pack(">I", 1) + pack(7)


async def sent(client, command: bytes, command_id="task-0001"):
    """Sends a command as these bytes."""
    head = {"op": "submit", "id": 900, "relay": "a", "command_id": command_id}
    body = bytes([0x80 + len(head) + 1]) + pack(head)[1:] + pack("command") + command
    client.stream.feed(frame(body))
    return await client.answer(900)


@pytest.mark.parametrize(
    ("payload", "written"),
    [
        (7, Written.int64),
        (7, Written.uint32),
        (1.5, Written.float32),
        ("ab", Written.str32),
        (b"ab", Written.bin32),
        ([7], Written.array32),
        ({"a": 1, "b": {"c": 2, "d": 3}}, pack({"b": {"d": 3, "c": 2}, "a": 1})),
        (None, pack(None)),
    ],
    ids=repr,
)
async def test_the_length_of_encodings_and_the_order_of_keys_do_not_count(daemon, payload, written):
    client = await daemon.relay()
    ordinal = await submit(client, "task-0001", {"payload": payload, "type": "task"})
    answer = await sent(client, Written.map32 + written)
    assert (answer["re"], answer["ordinal"], answer["duplicate"]) == ("accepted", ordinal, True)
    assert len(events(daemon)) == 2


@pytest.mark.parametrize(
    "command",
    [
        {"type": "task", "payload": 1, "on_loss": "interrupt"},
        {"type": "task", "payload": 1, "on_loss": None},
        {"on_loss": None, "payload": 1, "type": "task"},
    ],
    ids=repr,
)
async def test_nulls_and_defaults_count_as_absent(daemon, command):
    client = await daemon.relay()
    await submit(client, "task-0001", TASK)
    assert (await client.done("submit", relay="a", command_id="task-0001", command=command))["duplicate"]


@pytest.mark.parametrize(
    "command",
    [
        {"type": "task", "payload": 1.0},
        {"type": "task", "payload": True},
        {"type": "task", "payload": "1"},
        {"type": "task", "payload": b"1"},
        {"type": "task", "payload": [1]},
        {"type": "task"},
        {"type": "task", "payload": 1, "on_loss": "requeue"},
        {"type": "side_task", "payload": 1},
        {"type": "clear_queue"},
    ],
    ids=repr,
)
@pytest.mark.parametrize("ended", [False, True], ids=["not ended", "ended"])
async def test_other_content_under_a_used_id_is_a_conflict(daemon, command, ended):
    client, worker = await daemon.relay(), await connect_worker(daemon)
    await submit(client, "task-0001", TASK)
    if ended:
        await claim(worker)
        await finish(worker, "task-0001")
    assert await refused(daemon, client, "submit", command_id="task-0001", command=command) == "conflict"


async def test_every_type_is_repeated_with_its_first_answer_before_and_after_it_ended(place):
    async with inside(place) as daemon:
        client = await daemon.relay()
        commands = {
            "begin-001": {"type": "begin_checkpoint"},
            "release-1": {"type": "release_checkpoint", "barrier": "begin-001"},
            "begin-002": {"type": "begin_checkpoint"},
            "complete1": {"type": "complete_checkpoint", "barrier": "begin-002"},
            "notice-01": {"type": "notice", "text": "x"},
            "task-0001": TASK,
            "side-0001": {"type": "side_task", "payload": 1},
            "cancel-01": {"type": "cancel", "target": "task-0001"},
            "remove-01": {"type": "remove_queued", "command_id": "task-0001"},
            "clear-001": {"type": "clear_queue"},
            "floor-001": {"type": "advance_floor", "cursor": None},
            "conf-0001": {"type": "configure", "key": "k", "value": 1},
        }
        ordinals = {}
        for name, command in commands.items():
            if name == "floor-001":
                command["cursor"] = (await client.done("status", relay="a"))["latest"]
            ordinals[name] = await submit(client, name, command)
            again = await client.done("submit", relay="a", command_id=name, command=command)
            assert (again["ordinal"], again["duplicate"]) == (ordinals[name], True)
    async with inside(place) as daemon:
        client = await daemon.relay()
        count = len(events(daemon))
        for name, command in commands.items():
            again = await client.done("submit", relay="a", command_id=name, command=command)
            assert (again["ordinal"], again["duplicate"]) == (ordinals[name], True)
        assert len(events(daemon)) == count


async def test_the_last_8192_terminal_ids_are_remembered_across_a_restart_and_no_more(place):
    notice = {"type": "notice", "text": "x"}
    async with inside(place) as daemon:
        client = await daemon.relay()
        await many(client, [f"notice-{at:06}" for at in range(REMEMBERED + 1)], notice)
        await daemon.nobody_asks()
    for _ in range(2):
        async with inside(place) as daemon:
            client = await daemon.relay()
            for at in (1, REMEMBERED):
                again = await client.done("submit", relay="a", command_id=f"notice-{at:06}", command=notice)
                assert again["duplicate"]
                assert again["ordinal"] == 2 + 2 * at
            assert await refused(daemon, client, "command", command_id="notice-000000") == "not_found"
    async with inside(place) as daemon:
        client = await daemon.relay()
        assert await submit(client, "notice-000000", {"type": "notice", "text": "another"}) == 2 * REMEMBERED + 4
        assert await refused(daemon, client, "command", command_id="notice-000001") == "not_found"
