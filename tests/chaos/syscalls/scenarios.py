"""Short workloads in which the daemon is killed at one certain sync, started again, and asked the same once more."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from chaos.syscalls.forgetting import Sync, syncs_of
from chaos.syscalls.recording import SETTINGS, Kill, Recording, record
from chaos.syscalls.workload import RELAYS, Asked, Workload

GROUP_BYTES = 1700
ATTEMPTS = 4


def _open(relay: str = "kept") -> Asked:
    return Asked("open", {"relay": relay, "create": True, "retention": RELAYS.get(relay, "checkpointed")})


def _work(sequence: int, relay: str = "kept", size: int = 600) -> Asked:
    text = random.Random(f"{relay} {sequence}").randbytes(size // 2).hex()
    events = [["work", [relay, sequence, text]]]
    return Asked("record", {"relay": relay, "events": events, "producer": "p", "sequence": sequence})


def _acknowledge(workload: Workload, relay: str) -> Asked:
    return Asked("acknowledge", {"relay": relay, "through": workload.cursors[relay]})


def everything(workload: Workload) -> None:
    """Appends, rotates, seals, writes snapshots, takes acknowledgements, collects, evicts, makes and deletes relays."""
    for relay in RELAYS:
        workload.ask(_open(relay))
    for sequence in range(1, 15):
        workload.ask(_work(sequence, "read", GROUP_BYTES))
        workload.ask(_work(sequence, "short", GROUP_BYTES), _work(sequence, "kept", 90 * sequence))
        if sequence % 4 == 0:
            workload.ask(_acknowledge(workload, "read"))
    workload.ask(_open("made"), _work(1, "made"))
    workload.ask(Asked("delete_relay", {"relay": "made", "store": workload.stores["made"]}))
    for relay in ("read", "short"):
        workload.until_collected(relay)
    workload.until_idle("kept")
    workload.ask(_work(15, "kept", 90))


def repeating(workload: Workload) -> None:
    """What is sent again after the kill is answered as a duplicate."""
    workload.ask(_open())
    for sequence in (1, 2, 3):
        workload.ask(_work(sequence))


def rotating(workload: Workload) -> None:
    """Goes on in a fresh segment."""
    workload.ask(_open())
    for sequence in range(1, 3 + SETTINGS["segment_bytes"] // GROUP_BYTES):
        workload.ask(_work(sequence, size=GROUP_BYTES))


def acknowledging(workload: Workload) -> None:
    """What was acknowledged before the kill is acknowledged again; the opening before it has nothing to fold."""
    workload.ask(_open())
    workload.ask(_work(1))
    workload.until_idle("kept")
    for _ in range(2):
        workload.ask(_acknowledge(workload, "kept"))


def making(workload: Workload) -> None:
    """The second relay is there after the kill, though its making was not answered."""
    for relay in ("read", "kept", "kept"):
        workload.ask(_open(relay))


class Scenario(NamedTuple):
    """`kill`: the kind of the sync at whose last one the daemon dies."""

    asking: Callable[[Workload], None]
    kill: str


SCENARIOS = {
    "repeating": Scenario(repeating, "a group"),
    "rotating": Scenario(rotating, "journal: active.log renamed"),
    "acknowledging": Scenario(acknowledging, "the relay: acknowledged renamed"),
    "making": Scenario(making, "relays/: a made relay renamed"),
    "beginning": Scenario(making, "the name of relays/"),
}


def record_everything(directory: Path) -> Recording:
    """No kill; at the end SIGTERM."""
    return record(directory, everything)


def record_scenario(directory: Path, scenario: Scenario) -> Recording:
    """Runs it once unharmed, to find the call, and once more with the kill.

    Where a relay was closed for being idle in one of the two runs alone, the call has another number: then both again.
    """
    for attempt in range(ATTEMPTS):
        unharmed, killed = directory / f"unharmed-{attempt}", directory / f"killed-{attempt}"
        unharmed.mkdir()
        killed.mkdir()
        sync = _last(syncs_of(record(unharmed, scenario.asking)), scenario.kill)
        recording = record(killed, scenario.asking, Kill(sync.call.name, sync.n))
        died_in = [sync.kind for sync in syncs_of(recording) if sync.call.returned is None]
        if died_in == [scenario.kill]:
            return recording
    raise AssertionError(f"killed in {died_in}, and not in: {scenario.kill}")


def _last(syncs: list[Sync], kind: str) -> Sync:
    return [sync for sync in syncs if sync.kind == kind][-1]
