"""What a stopped call does, and to which file, in words: `pwritev kept/journal/active.log`, `send client`.

Files go by their path below `state/relays/`, else by their path below the daemon's place; an open file by the name it
has now. The ordinals in a segment's name are written `RANGE` (one alone `ORDINAL`), a store id `STORE`, so that names
are the same in each run. A call that has to do with neither, as the daemon's own wake-ups, is nothing to count.
"""

import os
import re
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from chaos.calls.notify import NUMBERS, Stopped, read_memory, read_text, take_descriptor

_AT_CURRENT = 0xFFFFFF9C
_WORDS = {
    "pwritev2": "pwritev", "pwrite64": "pwrite", "writev": "write", "renameat2": "rename", "renameat": "rename",
    "unlinkat": "unlink", "mkdirat": "mkdir", "pread64": "pread", "newfstatat": "stat", "fstat": "stat",
    "statx": "stat", "getdents64": "entries", "sendto": "send", "sendmsg": "send",
}  # fmt: skip
_VARYING = (
    (re.compile(r"[0-9]{20}-[0-9]{20}"), "RANGE"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "STORE"),
    (re.compile(r"\b[0-9]{20}\b"), "ORDINAL"),
)
_BY_NUMBER = {number: name for name, number in NUMBERS.items()}
_OF_DESCRIPTOR = frozenset({
    "write", "pwrite64", "writev", "pwritev", "pwritev2", "ftruncate", "fsync", "fdatasync", "pread64", "fstat",
    "getdents64", "flock",
})  # fmt: skip
_SENDING = frozenset({"sendto", "sendmsg", "write"})
_BY_PATH = frozenset({"unlink", "rmdir", "mkdir"})
_BY_DIRECTORY_AND_PATH = frozenset({"unlinkat", "mkdirat", "newfstatat", "statx", "openat"})


class Named(NamedTuple):
    """`word` and `target` make the name; `descriptor` of the file, where the call has one; `size` of a write."""

    word: str
    target: str
    descriptor: int | None = None
    size: int | None = None

    def __str__(self) -> str:
        return f"{self.word} {self.target}"


class Names:
    """Names the calls of one daemon that lives in `place`."""

    def __init__(self, pid: int, place: Path) -> None:
        self._pid = pid
        self._place = str(place.resolve()) + "/"
        self._relays = self._place + "state/relays/"
        self._clients: dict[str, bool] = {}

    def name(self, call: Stopped) -> Named | None:
        """None for a call that is nobody's business."""
        kind = _BY_NUMBER[call.number]
        word = _WORDS.get(kind, kind)
        first = call.arguments[0]
        if kind in _OF_DESCRIPTOR or kind in _SENDING:
            target = self._link(call.tid, first)
            if target.startswith("socket:"):
                return Named("send", "client", first) if self._is_client(target, first) else None
            size = written_size(call) if kind.startswith(("pwrite", "write")) else None
            return self._named(word, target, first, size)
        if kind == "rename":
            return self._renamed(call, (_AT_CURRENT, call.arguments[0]), (_AT_CURRENT, call.arguments[1]))
        if kind.startswith("rename"):
            return self._renamed(call, call.arguments[0:2], call.arguments[2:4])
        if kind in _BY_PATH:
            return self._named(word, self._path(call.tid, _AT_CURRENT, first))
        assert kind in _BY_DIRECTORY_AND_PATH, kind
        if kind == "openat":
            word = f"open {_mode(call.arguments[2])}"
        return self._named(word, self._path(call.tid, first, call.arguments[1]))

    def _named(self, word: str, path: str, descriptor: int | None = None, size: int | None = None) -> Named | None:
        short = self._short(path)
        return None if short is None else Named(word, short, descriptor, size)

    def _renamed(self, call: Stopped, old: tuple[int, ...], new: tuple[int, ...]) -> Named | None:
        source, target = (self._short(self._path(call.tid, *one)) for one in (old, new))
        return None if source is None or target is None else Named("rename", f"{source} {Path(target).name}")

    def _short(self, path: str) -> str | None:
        if not path.startswith(self._place):
            return None
        short = path[len(self._relays) :] if path.startswith(self._relays) else path[len(self._place) :]
        for varying, word in _VARYING:
            short = varying.sub(word, short)
        return short

    def _path(self, tid: int, directory: int, address: int) -> str:
        path = read_text(tid, address)
        if path.startswith("/"):
            return path
        within = self._link(tid, directory & 0xFFFFFFFF)
        return f"{within}/{path}" if path else within

    def _link(self, tid: int, descriptor: int) -> str:
        try:
            name = "cwd" if descriptor == _AT_CURRENT else f"fd/{descriptor}"
            return os.readlink(f"/proc/{tid}/{name}")  # noqa: PTH115 - asked at each call
        except OSError:
            # No such descriptor, or the process is gone.
            return ""

    def _is_client(self, link: str, descriptor: int) -> bool:
        """Whether a socket is one of those that were accepted: its own address is then the listener's."""
        if link not in self._clients:
            with socket.socket(fileno=take_descriptor(self._pid, descriptor)) as taken:
                name = taken.getsockname() if taken.family == socket.AF_UNIX else ""
                self._clients[link] = isinstance(name, str) and name.startswith(self._place)
        return self._clients[link]


def _mode(flags: int) -> str:
    if flags & os.O_CREAT:
        return "create"
    if flags & os.O_DIRECTORY:
        return "directory"
    return "update" if flags & (os.O_WRONLY | os.O_RDWR) else "read"


# A write's bytes


def _vectors(call: Stopped) -> list[tuple[int, int]]:
    kind = _BY_NUMBER[call.number]
    _, address, count, *_ = call.arguments
    if kind in ("write", "pwrite64"):
        return [(address, count)]
    return list(struct.iter_unpack("<QQ", read_memory(call.tid, address, 16 * count)))


def written_size(call: Stopped) -> int:
    """How many bytes a write is about to write."""
    return sum(length for _, length in _vectors(call))


def write_some(call: Stopped, descriptor: int, taken: int, write: Callable[[int, bytes, int], int] = os.pwrite) -> None:
    """Writes the first `taken` bytes of a stopped write, in its place, through `descriptor`."""
    content = b""
    for address, length in _vectors(call):
        content += read_memory(call.tid, address, min(length, taken - len(content))) if len(content) < taken else b""
    offset = call.arguments[3]
    while content:
        written = write(descriptor, content, offset)
        content, offset = content[written:], offset + written
