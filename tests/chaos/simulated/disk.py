"""A disk in memory that forgets what was not synced, behind the seam of relayd/journal/storage.py.

    disk = Disk(random.Random(7))
    state = disk.state()                      # its one directory, as relayd would open it
    …
    disk = disk.crash()                       # the process died: all that was written shows, synced or not
    disk = disk.cut(random.Random(8))         # the power went: one of the states that this may leave

A power cut keeps of each file its synced bytes and some of what came after (surviving.py), and of each directory the
names that were synced and a first part of what was done to them since. Syncing a file says nothing of its name.
A sync that fails marks the file's bytes clean: they show as long as the kernel keeps them, no later sync writes
them, and what of them is on disk is chance. One that lies does nothing.
"""

import errno
import os
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal

from chaos.simulated.surviving import OFTEN, WAYS, Change, apply, make

from relayd.journal.storage import Entry, ForeignFileError, Identity
from relayd.protocol.event import Buffer

DEVICE = 7
STATE = "/simulated"


def _error(number: int, name: str) -> OSError:
    return OSError(number, os.strerror(number), name)


class Inode:
    """A file's bytes: `cache` as every reader sees them, `synced` as they are on disk for certain, and what lies between.

    `lost`: a sync failed, so that the cache shows bytes that no later sync writes.
    """

    def __init__(self, number: int, synced: bytes = b"") -> None:
        self.number = number
        self.synced = synced
        self.cache = bytearray(synced)
        self.changes: list[Change] = []
        self.lost = False
        self.failed = False

    def change(self, change: Change) -> None:
        make(self.cache, change)
        self.changes.append(change)

    def sync(self) -> None:
        if self.changes:
            self.synced = apply(self.synced, self.changes) if self.lost else bytes(self.cache)
            self.changes = []

    def lose(self, synced: bytes) -> None:
        """A sync failed, and `synced` is what has come to be on disk."""
        self.failed = True
        self.lost = self.lost or bool(self.changes)
        self.synced, self.changes = synced, []

    def copy(self) -> "Inode":
        copied = Inode(self.number, self.synced)
        copied.cache, copied.changes, copied.lost = self.cache[:], self.changes[:], self.lost
        return copied


class Folder:
    """A directory's names now, those on disk for certain, and what was done to them in between, in order."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.names: dict[str, Node] = {}
        self.synced: dict[str, Node] = {}
        self.changes: list[tuple[str, Node | None] | tuple[str, str]] = []
        self.locked_by: object = None
        self.removed = False

    def change(self, name: str, to: "Node | str | None") -> None:
        """Gives `name` to a node, takes it away (None), or moves it to another name.

        Nothing is made in a directory that was removed itself. Raises FileNotFoundError.
        """
        if self.removed:
            raise _error(errno.ENOENT, name)
        gone = self.names.get(to if isinstance(to, str) else name)
        if isinstance(gone, Folder):
            gone.removed = True
        _rename(self.names, name, to)
        self.changes.append((name, to))

    def sync(self) -> None:
        if self.changes:
            self.synced, self.changes = dict(self.names), []


Node = Inode | Folder


def _rename(names: dict[str, Node], name: str, to: Node | str | None) -> None:
    if isinstance(to, str):
        names[to] = names.pop(name)
    elif to is None:
        del names[name]
    else:
        names[name] = to


class Disk:
    """One state directory. `chance` decides what a sync that fails has written all the same.

    Syncs of what `lies` says yes to (a file by the name it was opened by, a directory by its own and a slash) do
    nothing, on the disks that come of this one too. `open_handles`: files and directories not given back yet. `synced_again`: files that were synced once
    more by the process that had seen their sync fail, though they are active.log or were not written anew. `survived`: how often a cut left a file in which way.
    """

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.root = Folder(1)
        self.lies: Callable[[str], bool] | None = None
        self.open_handles = 0
        self.synced_again: list[str] = []
        self.survived: Counter[str] = Counter()
        self._numbers = 1

    def number(self) -> int:
        self._numbers += 1
        return self._numbers

    def state(self) -> "SimulatedDirectory":
        """The state directory, opened."""
        return SimulatedDirectory(self, self.root, STATE)

    def crash(self, *, forgets_lost: bool = False) -> "Disk":
        """What the next process finds: everything written, and no lock. `forgets_lost`: the kernel dropped clean pages."""

        def of_file(inode: Inode) -> Inode:
            copied = inode.copy()
            if forgets_lost and copied.lost:
                copied.cache = bytearray(apply(copied.synced, copied.changes))
                copied.lost = False
            return copied

        return self._next(lambda folder: folder.names, of_file, keep_changes=True)

    def cut(self, chance: random.Random, way: str | None = None) -> "Disk":
        """What a power cut leaves; `way`: of every file and directory, `nothing` or `everything` that was not synced."""
        survived: Counter[str] = Counter()

        def of_file(inode: Inode) -> Inode:
            if not inode.changes:
                return Inode(inode.number, inode.synced)
            chosen = way or chance.choice(OFTEN)
            survived[chosen] += 1
            return Inode(inode.number, WAYS[chosen](inode.synced, inode.changes, chance))

        def of_folder(folder: Folder) -> dict[str, Node]:
            count = len(folder.changes)
            kept = {"nothing": 0, "everything": count}[way] if way else chance.randint(0, count)
            if count:
                survived["no names" if not kept else "all names" if kept == count else "some names"] += 1
            names = dict(folder.synced)
            for change in folder.changes[:kept]:
                _rename(names, *change)
            return names

        left = self._next(of_folder, of_file, keep_changes=False)
        left.survived = survived
        return left

    def _next(
        self, of_folder: Callable[[Folder], dict[str, Node]], of_file: Callable[[Inode], Inode], *, keep_changes: bool
    ) -> "Disk":
        made = Disk(self.chance)
        made.lies, made._numbers = self.lies, self._numbers
        known: dict[int, Node] = {}

        def copy(node: Node) -> Node:
            if node.number not in known:
                if isinstance(node, Inode):
                    known[node.number] = of_file(node)
                else:
                    copied = known[node.number] = Folder(node.number)
                    copied.names = {name: copy(each) for name, each in of_folder(node).items()}
                    if keep_changes:
                        copied.synced = {name: copy(each) for name, each in node.synced.items()}
                        copied.changes = [(name, copy(to) if isinstance(to, Node) else to) for name, to in node.changes]
                    else:
                        copied.synced = dict(copied.names)
            return known[node.number]

        made.root = copy(self.root)
        return made

    def tree(self, *parts: str) -> dict[str, bytes]:
        """Every file below the directory that `parts` lead to, by its path, as readers see it; empty directories too."""
        found: dict[str, bytes] = {}

        def walk(folder: Folder, prefix: str) -> None:
            for name, node in sorted(folder.names.items()):
                if isinstance(node, Inode):
                    found[prefix + name] = bytes(node.cache)
                else:
                    found[prefix + name + "/"] = b""
                    walk(node, prefix + name + "/")

        walk(self.folder(*parts), "")
        return found

    def folder(self, *parts: str) -> Folder:
        """The directory that names lead to, from the state directory on. Raises KeyError."""
        node: Node = self.root
        for part in parts:
            node = node.names[part]
        return node


class _Handle:
    def __init__(self, disk: Disk, number: int) -> None:
        self._disk = disk
        self._open = True
        self.identity = Identity(DEVICE, number)
        disk.open_handles += 1

    def close(self) -> None:
        if self._open:
            self._open = False
            self._disk.open_handles -= 1

    def _use(self) -> None:
        if not self._open:
            raise _error(errno.EBADF, "")


class SimulatedFile(_Handle):
    """An open file; `name` is the one it was opened by."""

    def __init__(self, disk: Disk, inode: Inode, name: str, *, writable: bool) -> None:
        super().__init__(disk, inode.number)
        self._inode = inode
        self._name = name
        self._writable = writable

    def size(self) -> int:
        self._use()
        return len(self._inode.cache)

    def read(self, size: int, offset: int) -> bytes:
        self._use()
        return bytes(self._inode.cache[offset : offset + size])

    def write(self, buffers: Sequence[Buffer], offset: int) -> None:
        self._use_to_write()
        data = b"".join(buffers)
        if data:
            self._inode.change((offset, data))

    def sync(self) -> None:
        self._use()
        if self._disk.lies is None or not self._disk.lies(self._name):
            self._inode.sync()
        if self._inode.failed and (self._name.startswith("active.log") or self._inode.synced != self._inode.cache):
            self._disk.synced_again.append(self._name)

    def sync_failed(self) -> None:
        """The sync that was asked for has failed: what was not synced is lost, but for what chance wrote."""
        chance, inode = self._disk.chance, self._inode
        way = chance.choice(("nothing", "nothing", *WAYS)) if inode.changes else "nothing"
        inode.lose(WAYS[way](inode.synced, inode.changes, chance))

    def truncate(self, size: int) -> None:
        self._use_to_write()
        if size != len(self._inode.cache):
            self._inode.change(size)

    def _use_to_write(self) -> None:
        self._use()
        if not self._writable:
            raise _error(errno.EBADF, self._name)


class SimulatedDirectory(_Handle):
    """An open directory; `path` begins with STATE."""

    def __init__(self, disk: Disk, folder: Folder, path: str) -> None:
        super().__init__(disk, folder.number)
        self._folder = folder
        self.path = path

    def entries(self) -> list[Entry]:
        self._use()
        names = sorted(self._folder.names.items())
        return [Entry(name, "file" if isinstance(node, Inode) else "directory") for name, node in names]

    def open(self, name: str, mode: Literal["read", "update", "create"]) -> SimulatedFile:
        found = self._find(name)
        if mode == "create":
            if found is not None:
                raise _error(errno.EEXIST, name)
            found = Inode(self._disk.number())
            self._folder.change(name, found)
        if found is None:
            raise _error(errno.ENOENT, name)
        if isinstance(found, Folder):
            raise ForeignFileError(f"{self.path}/{name}", "is a directory")
        return SimulatedFile(self._disk, found, name, writable=mode != "read")

    def directory(self, name: str) -> "SimulatedDirectory":
        found = self._find(name)
        if found is None:
            raise _error(errno.ENOENT, name)
        if isinstance(found, Inode):
            raise ForeignFileError(f"{self.path}/{name}", "is no directory")
        return SimulatedDirectory(self._disk, found, f"{self.path}/{name}")

    def make_directory(self, name: str) -> None:
        if self._find(name) is not None:
            raise _error(errno.EEXIST, name)
        self._folder.change(name, Folder(self._disk.number()))

    def stat(self, name: str) -> tuple[Identity, int] | None:
        found = self._find(name)
        return found and (Identity(DEVICE, found.number), len(found.cache) if isinstance(found, Inode) else 4096)

    def replace(self, name: str, target: str) -> None:
        found, there = self._find(name), self._find(target)
        if found is None:
            raise _error(errno.ENOENT, name)
        if isinstance(found, Inode) and isinstance(there, Folder):
            raise _error(errno.EISDIR, name)
        if isinstance(found, Folder) and isinstance(there, Inode):
            raise _error(errno.ENOTDIR, name)
        if isinstance(there, Folder) and there is not found and there.names:
            raise _error(errno.ENOTEMPTY, name)
        if found is not there:
            self._folder.change(name, target)

    def unlink(self, name: str) -> None:
        found = self._find(name)
        if found is None:
            raise _error(errno.ENOENT, name)
        if isinstance(found, Folder):
            raise _error(errno.EISDIR, name)
        self._folder.change(name, None)

    def remove_tree(self, name: str) -> None:
        found = self._find(name)
        if found is None:
            raise _error(errno.ENOENT, name)
        if isinstance(found, Inode):
            raise _error(errno.ENOTDIR, name)
        with_it = SimulatedDirectory(self._disk, found, f"{self.path}/{name}")
        for entry in with_it.entries():
            (with_it.unlink if entry.kind == "file" else with_it.remove_tree)(entry.name)
        with_it.close()
        self._folder.change(name, None)

    def sync(self) -> None:
        self._use()
        if self._disk.lies is None or not self._disk.lies(f"{self.path.rpartition('/')[2]}/"):
            self._folder.sync()

    def sync_failed(self) -> None:
        """Names are in the file system's journal, which goes on with them: a later sync that returns has them on disk."""

    def lock(self) -> bool:
        self._use()
        if self._folder.locked_by not in (None, self):
            return False
        self._folder.locked_by = self
        return True

    def still_there(self) -> bool:
        node: Node = self._disk.root
        for part in self.path.removeprefix(STATE).split("/")[1:]:
            if not isinstance(node, Folder) or part not in node.names:
                return False
            node = node.names[part]
        return node is self._folder

    def close(self) -> None:
        super().close()
        if self._folder.locked_by is self:
            self._folder.locked_by = None

    def _find(self, name: str) -> Node | None:
        self._use()
        if "/" in name or name in {"", ".", ".."}:
            raise ValueError(f"{name!r} is no name of a directory's entry")
        return self._folder.names.get(name)
