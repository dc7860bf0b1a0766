"""Files and directories of the simulated disk: what every reader sees, and what of it is on the disk for certain."""

import errno
import os

from chaos.simulated.surviving import Change, apply, make


def error_of(number: int, name: str) -> OSError:
    return OSError(number, os.strerror(number), name)


class Inode:
    """A file's bytes: `cache` as every reader sees them, `synced` as they are on disk, and the `changes` in between.

    `lost`: a sync failed, so that the cache shows bytes that no later sync writes. `failed`: in this process.
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
            raise error_of(errno.ENOENT, name)
        gone = self.names.get(to if isinstance(to, str) else name)
        if isinstance(gone, Folder):
            gone.removed = True
        rename(self.names, name, to)
        self.changes.append((name, to))

    def sync(self) -> None:
        if self.changes:
            self.synced, self.changes = dict(self.names), []


Node = Inode | Folder


def rename(names: dict[str, Node], name: str, to: Node | str | None) -> None:
    if isinstance(to, str):
        names[to] = names.pop(name)
    elif to is None:
        del names[name]
    else:
        names[name] = to
