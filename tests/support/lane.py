"""Events of the command lane as bodies, and what they add up to, both from the tables of the reference alone.

`SCENE` is a relay in the middle of everything: queued, pending and in flight, side tasks, cancels, a setting, ids that
are remembered, and a checkpoint that waits.
"""

import hashlib

import msgspec
from support import oracle

pack = msgspec.msgpack.encode
ENTRY_BYTES = 96
CREATED = pack([1000, "relay.created", {"store": oracle.STORE, "retention": "checkpointed", "max_active": 2}])


def queued(command_id: str, /, **command: object) -> bytes:
    return pack([2000, "command.queued", {"command": command}, command_id])


def started(command_id: str) -> bytes:
    return pack([2001, "command.started", None, command_id])


def claimed(command_id: str, worker: str, delivery: int = 1) -> bytes:
    return pack([2002, "command.claimed", {"worker": worker, "delivery": delivery}, command_id])


def requeued(command_id: str) -> bytes:
    return pack([2003, "command.requeued", {"reason": "lease_expired"}, command_id])


def ended(word: str, command_id: str, kind: str = "task", **more: object) -> bytes:
    return pack([2004, f"command.{word}", {"type": kind, **more}, command_id])


def ready(command_id: str) -> bytes:
    return pack([2005, "checkpoint.ready", {"barrier": command_id}, command_id])


SCENE = [
    CREATED,
    queued("configure-1", type="configure", key="model", value={"deep": [True, 1.5]}),
    started("configure-1"),
    claimed("configure-1", "w1"),
    ended("completed", "configure-1", "configure", result={"ok": 1}, message="set"),
    queued("task-done-1", type="task", payload=1),
    started("task-done-1"),
    queued("remove-0001", type="remove_queued", command_id="task-none-1"),
    ended("completed", "remove-0001", "remove_queued", result={"removed": []}),
    claimed("task-done-1", "w1"),
    ended("rejected", "task-done-1", reason="by_worker"),
    queued("task-again1", type="task", payload={"n": 2}, on_loss="requeue"),
    started("task-again1"),
    claimed("task-again1", "w1"),
    queued("side-fly-01", type="side_task", payload="beside"),
    started("side-fly-01"),
    claimed("side-fly-01", "w2", 3),
    requeued("task-again1"),
    started("task-again1"),
    claimed("task-again1", "w2", 2),
    queued("cancel-told", type="cancel", target="task-again1"),
    claimed("cancel-told", "w2"),
    queued("task-pend-1", type="task"),
    started("task-pend-1"),
    queued("cancel-open", type="cancel", target="side-fly-01"),
    queued("task-wait-1", type="task", payload=b"raw"),
    queued("conf-wait-1", type="configure", key="model", value="other"),
    queued("begin-0001", type="begin_checkpoint"),
    queued("side-wait-1", type="side_task"),
]
"""Bodies from ordinal 1 on."""

LIVE = (
    "task-again1", "side-fly-01", "task-pend-1", "task-wait-1", "conf-wait-1", "side-wait-1", "cancel-told",
    "cancel-open", "begin-0001",
)  # fmt: skip
"""What has not ended at the end of SCENE."""

COMMANDS = {}
for _ordinal, _body in enumerate(SCENE, 1):
    _said = msgspec.msgpack.decode(_body)
    if _said[1] == "command.queued":
        COMMANDS[_said[3]] = (_ordinal, _said[2]["command"])


def canonical_digest(value: dict) -> bytes:
    """What a repeat is compared by."""
    encoded = msgspec.msgpack.Encoder(order="deterministic").encode(value)
    return hashlib.blake2b(encoded, digest_size=16).digest()


def entry(command_id: str, state: str, worker: str | None = None, delivery: int = 0) -> list:
    """A command that has not ended, as a snapshot has it."""
    ordinal, command = COMMANDS[command_id]
    digest = canonical_digest(command)
    return [command["type"], digest, ordinal, command, state, worker, delivery, command.get("target")]


def terminal(command_id: str, word: str, at: int, reason: str | None = None, **said: object) -> list:
    """One that has ended at ordinal `at`, likewise."""
    ordinal, command = COMMANDS[command_id]
    outcome = canonical_digest({"outcome": word, **said})
    return [command["type"], canonical_digest(command), ordinal, word, at, outcome, reason]


def live_bytes(config: dict, *command_ids: str) -> int:
    """What these commands and settings count for."""
    commands = sum(ENTRY_BYTES + 2 * len(name) + len(pack(COMMANDS[name][1])) for name in command_ids)
    return commands + sum(ENTRY_BYTES + len(key) + len(pack(value)) for key, value in config.items())


CONFIG = {"model": {"deep": [True, 1.5]}}
ENDED = {
    "configure-1": terminal("configure-1", "completed", 5, result={"ok": 1}, message="set"),
    "remove-0001": terminal("remove-0001", "completed", 9, result={"removed": []}),
    "task-done-1": terminal("task-done-1", "rejected", 11, "by_worker"),
}
LANE = {
    "queue": {"task-wait-1": entry("task-wait-1", "queued"), "conf-wait-1": entry("conf-wait-1", "queued")},
    "side": {"side-wait-1": entry("side-wait-1", "queued")},
    "started": {
        "side-fly-01": entry("side-fly-01", "in_flight", "w2", 3),
        "task-again1": entry("task-again1", "in_flight", "w2", 2),
        "task-pend-1": entry("task-pend-1", "pending"),
    },
    "cancels": {
        "cancel-told": entry("cancel-told", "in_flight", "w2", 1),
        "cancel-open": entry("cancel-open", "queued"),
    },
    "barrier": ["begin-0001", entry("begin-0001", "queued"), None],
    "ended": ENDED,
    "config": CONFIG,
    "live_bytes": live_bytes(CONFIG, *LIVE),
}
"""The lane after SCENE, worked out by hand."""


def records(bodies: list[bytes], first: int = 1) -> list[bytes]:
    """One record for each body."""
    return [oracle.record(first + at, body) for at, body in enumerate(bodies)]


def cursor(ordinal: int, bodies: list[bytes] = SCENE) -> list:
    """The cursor of the event at `ordinal`, of bodies from ordinal 1 on."""
    return [ordinal, oracle.record(ordinal, bodies[ordinal - 1])[12:28] if ordinal else bytes(16)]


def segment(bodies: list[bytes], size: int = 4) -> bytes:
    """A segment from ordinal 1 on, `size` events to a group."""
    return oracle.segment_of([bodies[at : at + size] for at in range(0, len(bodies), size)])


def state(lane: dict = LANE, bodies: list[bytes] = SCENE, **changes: object) -> dict:
    """The state after `bodies`, as a snapshot keeps it."""
    return {
        "store": oracle.STORE,
        "retention": "checkpointed",
        "max_active": 2,
        "frontier": cursor(len(bodies), bodies),
        "evicted": [0, bytes(16)],
        "floor": None,
        "seed": None,
        "execution_since": 2001,
        "last_event_at": msgspec.msgpack.decode(bodies[-1])[0],
        "producers": {},
        "lane": lane,
    } | changes
