"""Recordings in which every sync of one kind was forgotten: what a product that lacks it would have done.

A kind is told by what the sync puts on disk.
"""

from collections import Counter
from typing import NamedTuple

from chaos.syscalls.disk import Cut, File, Rename, Unlink, Write
from chaos.syscalls.machine import Machine, Node, walk
from chaos.syscalls.recording import Recording
from chaos.syscalls.strace_log import Call


class Sync(NamedTuple):
    """One sync of the log: its kind, and which of its name it is in its thread, from 1 on."""

    kind: str
    call: Call
    n: int


def forget(recording: Recording, kind: str) -> Recording:
    """The recording without the syncs of this kind."""
    gone = {sync.call.began for sync in syncs_of(recording) if sync.kind == kind}
    assert gone, f"no sync of this kind: {kind}"
    return recording._replace(calls=[call for call in recording.calls if call.began not in gone])


def syncs_of(recording: Recording) -> list[Sync]:
    """Every sync of our files and directories, also one in which the process was killed."""
    numbers = _numbers(recording.calls)
    machine = Machine(recording.place)
    inherited: dict[int, int] = {}
    """By file or directory: how many of its unsynced changes an earlier process made."""
    process, found = 0, []
    for step in machine.run(recording.calls):
        if step.call.process != process:
            process = step.call.process
            inherited = {node.number: len(node.pending) for _, node in walk(machine.root)}
        if step.what == "syncing":
            node = machine.node(step.call.descriptor())
            own = node.pending[inherited.get(node.number, 0) :]
            found.append(Sync(_kind(machine, node, own), step.call, numbers[step.call.began]))
        elif step.what == "sync":
            inherited.pop(machine.node(step.call.descriptor()).number, None)
    return found


def _numbers(calls: list[Call]) -> dict[int, int]:
    counted: Counter[tuple[int, str, str]] = Counter()
    numbers = {}
    for call in calls:
        key = (call.process, call.thread, call.name)
        counted[key] += 1
        numbers[call.began] = counted[key]
    return numbers


def _kind(machine: Machine, node: Node, own: list) -> str:
    path = machine.name_of(node)
    inside = path.removeprefix("state/relays/")
    if inside.startswith(".") and inside.split("/")[0].endswith(".new"):
        return f"a relay being made: {inside.partition('/')[2] or 'itself'}"
    return _file_kind(node, inside, own) if isinstance(node, File) else _directory_kind(path, own)


def _file_kind(file: File, path: str, own: list) -> str:
    name = path.rsplit("/", 1)[-1]
    if "/quarantine/" in path:
        return "a copy in quarantine/"
    if name.endswith(".log.zst.new"):
        return "a sealed file"
    if name != "active.log":
        return name
    if not own:
        return "active.log while opening"
    if isinstance(own[-1], Cut):
        return "active.log cut"
    before = File(file.durable, file.pending[:-1])
    overwrites = isinstance(own[-1], Write) and own[-1].offset < len(before.content)
    return "active.log written over itself" if overwrites else "a group"


def _directory_kind(path: str, own: list) -> str:
    last = own[-1] if own else None
    match path.split("/"):
        case ["?"]:
            return "the state directory's name"
        case ["state"]:
            return "the name of relays/"
        case ["state", "relays"]:
            return _relays_kind(last)
    name = path.rsplit("/", 1)[-1]
    place = name if name in ("journal", "quarantine") else "the relay"
    match last:
        case Rename(_, target):
            what = "a sealed file" if target.endswith(".zst") else target
            return f"{place}: {what} renamed"
        case Unlink(gone) if not gone.endswith(".new"):
            return f"{place}: {'segments' if place == 'journal' else gone} unlinked"
        case _:
            return f"{place}: while opening"


def _relays_kind(last) -> str:
    match last:
        case Rename(_, target):
            return (
                "relays/: a deleted relay renamed" if target.endswith(".deleted") else "relays/: a made relay renamed"
            )
        case Unlink(_):
            return "relays/: a deleted relay freed"
        case _:
            return "relays/: at start"
