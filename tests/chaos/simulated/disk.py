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

import random
from collections import Counter
from collections.abc import Callable

from chaos.simulated.handles import STATE, SimulatedDirectory
from chaos.simulated.nodes import Folder, Inode, Node, rename
from chaos.simulated.surviving import OFTEN, WAYS, apply


class Disk:
    """One state directory. `chance` decides what a sync that fails has written all the same.

    Syncs of what `lies` says yes to (a file by the name it was opened by, a directory by its own and a slash) do
    nothing, on the disks that come of this one too. `open_handles`: files and directories not given back yet.
    `synced_again`: files that were synced once more by the process that had seen their sync fail, though they are
    active.log or were not written anew. `survived`: how often a cut left a file in which way.
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

    def state(self) -> SimulatedDirectory:
        """The state directory, opened."""
        return SimulatedDirectory(self, self.root, STATE)

    def crash(self, *, forgets_lost: bool = False) -> "Disk":
        """What the next process finds: all that was written. `forgets_lost`: the kernel has dropped clean pages."""

        def of_file(inode: Inode) -> Inode:
            copied = inode.copy()
            if forgets_lost and copied.lost:
                copied.cache = bytearray(apply(copied.synced, copied.changes))
                copied.lost = False
            return copied

        return self._next(lambda folder: folder.names, of_file, keep_changes=True)

    def cut(self, chance: random.Random, way: str | None = None) -> "Disk":
        """What a power cut leaves; `way`: `nothing` or `everything` of what was not synced, of files and names."""
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
                rename(names, *change)
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
        """Every file below the directory that `parts` lead to, by its path, as readers see it; and directories."""
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
