"""The daemon's calls, one after the other, on a model of its files.

A change counts from when the call began: from then on it may be on disk. A sync covers what had returned when it began,
and counts from when it returned without error. A call that failed changed nothing; one in which the process was killed
is taken not to have happened, and `matches` proves of every recording that the model shows what the real files hold.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from chaos.syscalls.disk import Cut, Directory, File, Link, Rename, Unlink, Write
from chaos.syscalls.strace_log import Call

Node = File | Directory

CHANGES = {
    "openat",
    "mkdir",
    "mkdirat",
    "pwrite64",
    "pwritev",
    "pwritev2",
    "ftruncate",
    "renameat",
    "renameat2",
    "rename",
    "unlink",
    "unlinkat",
    "rmdir",
}
SYNCS = {"fsync", "fdatasync"}
SENDS = {"sendto", "sendmsg"}
RECEIVES = {"recvfrom", "recvmsg"}
PASSED_OVER = {"close", "dup", "dup2", "dup3", "write", "writev", "open"}
"""Calls of which only the descriptors matter; none of them may be of a file of ours but `close`."""


class Moment(NamedTuple):
    """A call's beginning or its return."""

    place: int
    call: Call
    returning: bool


class Step(NamedTuple):
    """What happened: `change`, `syncing` (it began), `sync` (it returned without error), `sent` or `received`.

    `relays`: the directories of the relays that a change or a sync was about.
    """

    number: int
    what: str
    call: Call
    relays: tuple[Directory, ...]


class Machine:
    """The files below `place`, and the open descriptors of the process that runs."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.root = Directory()
        self.steps = 0
        self.standing: dict[str, Directory] = {}
        """The relay that last stood under each name in relays/."""
        self._named: dict[int, str] = {}
        self._descriptors: dict[int, Node] = {}
        self._process = 0
        self._owner: dict[int, Directory] = {}
        self._began: dict[int, tuple[Node, int]] = {}
        self._made: dict[int, Node] = {}
        self._touched: tuple[Directory, ...] = ()

    # Where things are

    @property
    def relays(self) -> Directory | None:
        state = self.root.names.get("state")
        found = state.names.get("relays") if isinstance(state, Directory) else None
        return found if isinstance(found, Directory) else None

    def node(self, descriptor: int) -> Node | None:
        """What a descriptor of the running process names, where that is ours."""
        return self._descriptors.get(descriptor)

    def relay_of(self, node: Node) -> Directory | None:
        return self._owner.get(node.number)

    def standing_name(self, relay: Directory) -> str | None:
        """The name under which it stands or last stood in relays/; None where it never had one."""
        return self._named.get(relay.number)

    def name_of(self, node: Node) -> str:
        """Where it stands now, below its relay or the place."""
        return next((path for path, found in walk(self.root) if found is node), "?")

    # Going on

    def run(self, calls: list[Call]) -> Iterator[Step]:
        """Every step; at each, the model is as it was right after it."""
        for moment in moments(calls):
            if moment.call.process != self._process:
                self._process, self._descriptors, self._began = moment.call.process, {}, {}
            step = self._returned(moment.call) if moment.returning else self._begun(moment.call)
            if step is not None:
                self.steps += 1
                yield Step(self.steps, step, moment.call, self._touched)

    def _begun(self, call: Call) -> str | None:
        if call.name in SYNCS:
            node = self.node(call.descriptor())
            if node is None:
                return None
            self._began[call.began] = (node, len(node.pending))
            self._touched = ()
            return "syncing"
        if call.name == "close":
            self._descriptors.pop(call.descriptor(), None)
            return None
        if call.name in RECEIVES or not call.succeeded:
            return None
        if call.name in SENDS:
            self._touched = ()
            return "sent"
        if call.name in CHANGES:
            return "change" if self._change(call) else None
        assert call.name in PASSED_OVER, f"a call that the model does not know: {call.name}"
        assert call.name == "open" or self.node(call.descriptor()) is None, f"{call.name} on a file of ours"
        return None

    def _returned(self, call: Call) -> str | None:
        if call.name in RECEIVES:
            self._touched = ()
            return "received" if call.succeeded and call.value else None
        if call.name == "openat" and call.succeeded:
            node = self._made.pop(call.began, None)
            if node is not None:
                self._descriptors[call.opened] = node
        if call.name in SYNCS and call.began in self._began:
            node, count = self._began.pop(call.began)
            if call.succeeded:
                self._touched = self._about(node, node.pending[:count])
                node.synced(count)
                return "sync"
        return None

    def _change(self, call: Call) -> bool:
        """Makes the change; False where it is none of ours."""
        match call.name:
            case "openat":
                return self._open(call)
            case "pwrite64" | "pwritev" | "pwritev2" | "ftruncate":
                return self._change_file(call)
            case "mkdir" | "mkdirat":
                directory, name = self._target(call)
                return self._rename(directory, Link(name, Directory()))
            case "unlink" | "unlinkat" | "rmdir":
                directory, name = self._target(call)
                return self._rename(directory, Unlink(name))
            case _:
                assert call.name in ("renameat", "renameat2"), f"a call that the model does not know: {call.name}"
                name, target = (one.decode() for one in call.strings())
                directory = self.node(call.descriptor())
                assert directory is self.node(call.descriptor(1)), "a rename between two directories"
                return self._rename(directory, Rename(name, target))

    def _open(self, call: Call) -> bool:
        directory, name = self._target(call)
        if directory is None:
            return False
        node = self.root if name == "" else directory.names.get(name)
        changed = node is None
        if changed:
            assert "O_CREAT" in call.arguments, f"opened, and not there in the model: {name}"
            node = File()
            self._rename(directory, Link(name, node))
        self._made[call.began] = node
        assert "O_TRUNC" not in call.arguments, "the model knows no O_TRUNC"
        return changed

    def _change_file(self, call: Call) -> bool:
        file = self.node(call.descriptor())
        if not isinstance(file, File):
            return False
        if call.name == "ftruncate":
            file.change(Cut(call.numbers()[-1]))
        else:
            file.change(Write(call.numbers()[1], b"".join(call.strings())[: call.value]))
        self._touched = self._about(file, [])
        return True

    def _target(self, call: Call) -> tuple[Directory | None, str]:
        """The directory and the name in it that a call's path means; None where it is none of ours."""
        path = call.strings()[0].decode()
        if not path.startswith("/"):
            directory = self.node(call.descriptor()) if call.name.endswith("at") else None
            return (directory, path) if isinstance(directory, Directory) else (None, path)
        if path == self.place:
            return self.root, ""
        if not path.startswith(f"{self.place}/state"):
            # The socket stands beside the state directory.
            return None, path
        *parents, name = path.removeprefix(self.place + "/").split("/")
        directory = self.root
        for parent in parents:
            directory = directory.names[parent]
        return directory, name

    def _rename(self, directory: Node | None, change: Link | Unlink | Rename) -> bool:
        if not isinstance(directory, Directory):
            return False
        if isinstance(change, Link):
            owner = change.node if directory is self.relays else self._owner.get(directory.number)
            if owner is not None:
                self._owner[change.node.number] = owner
        self._touched = self._about(directory, [change])
        directory.change(change)
        if directory is self.relays:
            for name, node in directory.names.items():
                if not name.startswith("."):
                    self.standing[name] = node
                    self._named[node.number] = name
        return True

    def _about(self, node: Node, changes: list) -> tuple[Directory, ...]:
        """The relays that a change or sync is about; of relays/ itself, those whose names change."""
        if node is not self.relays:
            owner = self._owner.get(node.number)
            return () if owner is None else (owner,)
        names = {one.name for one in changes} | {one.target for one in changes if isinstance(one, Rename)}
        found = [one.node for one in changes if isinstance(one, Link)]
        found += [shown[name] for shown in (node.durable, node.names) for name in names if name in shown]
        return tuple(dict.fromkeys(one for one in found if isinstance(one, Directory)))

    # Against the real files

    def matches(self, real: Path) -> None:
        """Fails where the model does not show what the real files hold."""
        shown = {path: node.content if isinstance(node, File) else None for path, node in walk(self.root)}
        there = {
            str(path.relative_to(real)): path.read_bytes() if path.is_file() else None
            for path in real.rglob("*")
            if path.is_file() or path.is_dir()
        }
        assert shown.keys() == there.keys(), f"names: {sorted(shown.keys() ^ there.keys())}"
        different = [path for path in shown if shown[path] != there[path]]
        assert not different, f"the model holds other bytes: {different}"


def moments(calls: list[Call]) -> list[Moment]:
    """Beginnings and returns, in the order of the log."""
    found = [Moment(call.began, call, returning=False) for call in calls]
    found += [Moment(call.returned, call, returning=True) for call in calls if call.returned is not None]
    return sorted(found, key=lambda moment: (moment.place, moment.returning))


def walk(directory: Directory, prefix: str = "") -> Iterator[tuple[str, Node]]:
    """Everything below, as processes see it."""
    for name, node in directory.names.items():
        yield prefix + name, node
        if isinstance(node, Directory):
            yield from walk(node, f"{prefix}{name}/")
