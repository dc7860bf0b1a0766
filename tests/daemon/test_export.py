"""`export`: all that a relay's events add up to, at one synced frontier (docs/reference/protocol.md, "Operations")."""

import msgspec
import pytest
import trio
from support.faults import Fail, Faults, named
from support.inside import inside

LARGE = "x" * 900_000


async def submit(client, name, **command):
    return await client.done("submit", relay="a", command_id=name, command=command)


def state_of(part: dict) -> dict:
    assert part["size"] == len(part["state"])
    return msgspec.msgpack.decode(part["state"])


async def test_it_is_what_the_next_snapshot_keeps(daemon):
    client = await daemon.relay()
    await client.done("record", relay="a", events=[["x", 1]], producer="p", sequence=1)
    await submit(client, "task-0001", type="task", payload=1)
    await submit(client, "config-01", type="configure", key="k", value=1)
    part = await client.done("export", relay="a")
    assert part["at"] == (await client.done("status", relay="a"))["latest"]
    said = state_of(part)
    assert (said["frontier"], said["producers"].keys()) == (part["at"], {"p"})
    assert (list(said["lane"]["started"]), list(said["lane"]["queue"])) == (["task-0001"], ["config-01"])
    await daemon.nobody_asks()
    snapshot = msgspec.msgpack.decode((daemon.place / "relays" / "a" / "snapshot").read_bytes()[48:])
    assert snapshot["state"] == said


async def test_what_is_not_durable_is_not_told(daemon):
    client = await daemon.relay()
    daemon.gate.hold("commit")
    client.send("submit", relay="a", command_id="task-0001", command={"type": "task"})
    asked = client.send("export", relay="a")
    await trio.sleep(1)
    assert client.answered(asked) is None
    daemon.gate.open()
    assert list(state_of(await client.answer(asked))["lane"]["started"]) == ["task-0001"]


async def test_a_write_that_fails_refuses_the_export_that_waits_for_it(place):
    faults = Faults()
    async with inside(place, faults=faults) as daemon:
        client = await daemon.relay()
        daemon.gate.hold("commit")
        client.send("submit", relay="a", command_id="task-0001", command={"type": "task"})
        asked = client.send("export", relay="a")
        await trio.sleep(1)
        faults.plan, faults.counted, faults.count = Fail(1), named("write active.log"), 0
        daemon.gate.open()
        assert (await client.answer(asked))["code"] == "storage_failed"
        assert state_of(await client.done("export", relay="a"))["lane"] == {}


async def parts(client, part):
    found = part["state"]
    while len(found) < part["size"]:
        assert part["state"]
        part = await client.done("export", relay="a", at=part["at"], offset=len(found))
        found += part["state"]
    return msgspec.msgpack.decode(found)


async def test_all_parts_are_of_one_moment_whatever_is_recorded_between_them(daemon):
    client = await daemon.relay()
    for number in range(5):
        await submit(client, f"task-000{number}", type="task", payload=LARGE + str(number))
    first = await client.done("export", relay="a")
    assert len(first["state"]) == 1 << 20 < first["size"]
    await submit(client, "clear-001", type="clear_queue")
    said = await parts(client, first)
    assert said["frontier"] == first["at"]
    assert list(said["lane"]["queue"]) == [f"task-000{number}" for number in range(1, 5)]
    assert said["lane"]["queue"]["task-0004"][3]["payload"] == LARGE + "4"
    assert list((await parts(client, await client.done("export", relay="a")))["lane"]) == [
        "started",
        "ended",
        "live_bytes",
    ]


async def test_what_is_no_longer_kept_is_to_be_begun_again(daemon):
    client = await daemon.relay()
    for number in range(3):
        await submit(client, f"task-000{number}", type="task", payload=LARGE)

    async def more(part):
        return await client.refusal("export", relay="a", at=part["at"], offset=len(part["state"]))

    first = await client.done("export", relay="a")
    await trio.sleep(59)
    await client.done("export", relay="a", at=first["at"], offset=1)
    await trio.sleep(59)
    await client.done("export", relay="a", at=first["at"], offset=1)
    await trio.sleep(61)
    assert await more(first) == ("invalid_state", False, {"state": "not kept"})

    first = await client.done("export", relay="a")
    await submit(client, "remove-01", type="remove_queued", command_id="task-0002")
    second = await client.done("export", relay="a")
    assert (await more(first))[0] == "invalid_state"
    assert (await parts(client, second))["frontier"] == second["at"]
    unproven = [second["at"][0], None]
    assert (await client.refusal("export", relay="a", at=unproven, offset=1))[0] == "invalid_state"


async def test_an_offset_needs_the_cursor_that_it_belongs_to(daemon):
    client = await daemon.relay()
    assert (await client.refusal("export", relay="a", offset=1))[0] == "invalid_request"
    assert (await client.refusal("export", relay="a", offset=-1))[0] == "invalid_request"
    assert (await client.refusal("export", relay="none"))[0] == "not_found"


async def test_it_ends_no_hold_and_is_told_with_the_cut(daemon):
    client, other = await daemon.relay(), await daemon.connect()
    await submit(client, "begin-001", type="begin_checkpoint")
    held = other.send("record", relay="a", events=[["x", 1]])
    said = state_of(await client.done("export", relay="a"))
    assert said["lane"]["barrier"][2] == said["frontier"]
    await trio.sleep(1)
    assert other.answered(held) is None


@pytest.mark.parametrize("seconds", [0, 70])
async def test_without_room_it_is_still_told(place, seconds):
    faults = Faults()
    async with inside(place, faults=faults) as daemon:
        client = await daemon.relay()
        await submit(client, "task-0001", type="task")
        faults.plan = Fail(1, 28, forever=True)
        faults.counted, faults.count = named("write", "open create"), 0
        assert (await client.call("submit", relay="a", command_id="task-0002", command={"type": "task"}))[
            "code"
        ] == "storage_full"
        await trio.sleep(seconds)
        assert list(state_of(await client.done("export", relay="a"))["lane"]["started"]) == ["task-0001"]
