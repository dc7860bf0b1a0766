"""The simulated disk behind the seam of relayd/journal/storage.py: open files and directories."""

import errno
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from chaos.simulated.nodes import Folder, Inode, Node, error_of
from chaos.simulated.surviving import WAYS

from relayd.journal.storage import Entry, ForeignFileError, Identity
from relayd.protocol.event import Buffer

if TYPE_CHECKING:
    from chaos.simulated.disk import Disk

DEVICE = 7
STATE = "/simulated"


class _Handle:
    def __init__(self, disk: "Disk", number: int) -> None:
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
            raise error_of(errno.EBADF, "")


class SimulatedFile(_Handle):
    """An open file; `name` is the one it was opened by."""

    def __init__(self, disk: "Disk", inode: Inode, name: str, *, writable: bool) -> None:
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
            raise error_of(errno.EBADF, self._name)


class SimulatedDirectory(_Handle):
    """An open directory; `path` begins with STATE."""

    def __init__(self, disk: "Disk", folder: Folder, path: str) -> None:
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
                raise error_of(errno.EEXIST, name)
            found = Inode(self._disk.number())
            self._folder.change(name, found)
        if found is None:
            raise error_of(errno.ENOENT, name)
        if isinstance(found, Folder):
            raise ForeignFileError(f"{self.path}/{name}", "is a directory")
        return SimulatedFile(self._disk, found, name, writable=mode != "read")

    def directory(self, name: str) -> "SimulatedDirectory":
        found = self._find(name)
        if found is None:
            raise error_of(errno.ENOENT, name)
        if isinstance(found, Inode):
            raise ForeignFileError(f"{self.path}/{name}", "is no directory")
        return SimulatedDirectory(self._disk, found, f"{self.path}/{name}")

    def make_directory(self, name: str) -> None:
        if self._find(name) is not None:
            raise error_of(errno.EEXIST, name)
        self._folder.change(name, Folder(self._disk.number()))

    def stat(self, name: str) -> tuple[Identity, int] | None:
        found = self._find(name)
        return found and (Identity(DEVICE, found.number), len(found.cache) if isinstance(found, Inode) else 4096)

    def replace(self, name: str, target: str) -> None:
        found, there = self._find(name), self._find(target)
        if found is None:
            raise error_of(errno.ENOENT, name)
        if isinstance(found, Inode) and isinstance(there, Folder):
            raise error_of(errno.EISDIR, name)
        if isinstance(found, Folder) and isinstance(there, Inode):
            raise error_of(errno.ENOTDIR, name)
        if isinstance(there, Folder) and there is not found and there.names:
            raise error_of(errno.ENOTEMPTY, name)
        if found is not there:
            self._folder.change(name, target)

    def unlink(self, name: str) -> None:
        found = self._find(name)
        if found is None:
            raise error_of(errno.ENOENT, name)
        if isinstance(found, Folder):
            raise error_of(errno.EISDIR, name)
        self._folder.change(name, None)

    def remove_tree(self, name: str) -> None:
        found = self._find(name)
        if found is None:
            raise error_of(errno.ENOENT, name)
        if isinstance(found, Inode):
            raise error_of(errno.ENOTDIR, name)
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
        """The file system's journal keeps the names: a later sync that returns has them on disk."""

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
