"""A few words for tests of the command lane: who calls, what is on disk, and what was refused without a trace."""

import hashlib
import struct

import msgspec
from support import oracle
from support.wire import frame

TASK = {"type": "task", "payload": 1}
AGAIN = {"type": "task", "payload": 1, "on_loss": "requeue"}
SIDE = {"type": "side_task", "payload": 1}


async def worker(daemon, name="w1"):
    """A connection with a worker identity."""
    client = daemon.connect_silent()
    await client.done("hello", versions=[1], client="test", worker=name)
    return client


async def submit(client, command_id, command):
    """The ordinal at which it was accepted."""
    return (await client.done("submit", relay="a", command_id=command_id, command=command))["ordinal"]


async def many(client, names, command):
    """Submits it under all these names, pipelined, a hundred in one piece; the answers by name."""
    answers = {}
    for at in range(0, len(names), 100):
        some = dict(enumerate(names[at : at + 100], 1_000_000))
        client.stream.feed(
            b"".join(
                frame({"op": "submit", "id": request, "relay": "a", "command_id": name, "command": command})
                for request, name in some.items()
            )
        )
        for request, name in some.items():
            answers[name] = await client.answer(request)
    return answers


async def claim(client, capacity=1, **more):
    """What is handed over: id and delivery of each."""
    claimed = await client.done("claim", relay="a", capacity=capacity, **more)
    return [(one["command_id"], one["delivery"]) for one in claimed["commands"]]


async def finish(client, command_id, outcome="completed", **more):
    return await client.done("finish", relay="a", command_id=command_id, outcome=outcome, **more)


async def told(client, command_id, **more):
    """State and reason."""
    answer = await client.done("command", relay="a", command_id=command_id, **more)
    return answer["state"], answer.get("reason")


async def cut_of(client, command_id):
    """The cut of a checkpoint, when it is ready."""
    return (await client.done("command", relay="a", command_id=command_id, wait_ms=60_000))["cut"]


def events(daemon, after=1):
    """What is on disk behind an ordinal: kind, command_id, data."""
    bodies = oracle.read_journal(daemon.journal())
    said = [[*msgspec.msgpack.decode(bodies[at]), None, None][:4] for at in range(after + 1, len(bodies) + 1)]
    return [(kind, command_id, data) for _, kind, data, command_id in said]


def kinds(daemon, after=1):
    """The same, in one word each: `started task-0001`, or the application's kind."""
    return [kind if name is None else f"{kind.partition('.')[2]} {name}" for kind, name, _ in events(daemon, after)]


def groups(daemon):
    """First ordinal and count of each group of active.log."""
    data, at, found = (daemon.journal() / "active.log").read_bytes(), 48, []
    while data[at : at + 4] == b"RLYG":
        first, count, length = struct.unpack_from("<QII", data, at + 32)
        found.append((first, count))
        at += 64 + length
    return found


def cursor(daemon, ordinal):
    """The right cursor of an event on disk."""
    body = oracle.read_journal(daemon.journal())[ordinal]
    said = struct.pack("<Q", ordinal) + body
    return [ordinal, hashlib.blake2b(said, digest_size=16, person=b"relayd.event.v1").digest()]


async def refused(daemon, client, op, /, **fields):
    """The code of a refusal that left nothing on disk."""
    before = (daemon.journal() / "active.log").read_bytes()
    code = (await client.refusal(op, relay="a", **fields))[0]
    assert (daemon.journal() / "active.log").read_bytes() == before
    return code
