"""`quarantine/`: bytes that opening or salvage set aside, never deleted (docs/reference/journal.md, "Layout").

Keeping the same bytes again, as an opening does that was killed half way, makes no second copy. Everything here raises
OSError; what is then unfinished ends in `.new`, and the next opening removes it.
"""

import contextlib
from collections.abc import Callable, Iterator
from itertools import count
from typing import Final

from relayd.journal.active import open_fresh
from relayd.journal.names import NEW, QUARANTINE
from relayd.journal.storage import Directory, File
from relayd.protocol.event import Buffer
from relayd.protocol.limits import MIB

_CHUNK_BYTES: Final = MIB

_Chunks = Callable[[], Iterator[memoryview]]
"""The content from its beginning, in pieces; can be called again."""


def keep_bytes(relay: Directory, name: str, content: Buffer) -> str:
    """Keeps `content` in quarantine/ as `name`, or as `name.1`, `name.2`, … where other bytes have it; gives that name.

    It is on disk when this returns.
    """
    view = memoryview(content)
    return _keep(relay, name, lambda: _slices(view), len(view))


def keep_file(relay: Directory, directory: Directory, name: str) -> str:
    """`keep_bytes` for the whole file `name` of `directory`, which stays. Memory is bounded."""
    with contextlib.closing(directory.open(name, "read")) as file:
        return _keep(relay, name, lambda: _read_chunks(file), file.size())


def set_aside(relay: Directory, directory: Directory, name: str) -> str:
    """Keeps the file `name` of `directory`, removes it there, and syncs `directory`; gives its name in quarantine/."""
    kept = keep_file(relay, directory, name)
    directory.unlink(name)
    directory.sync()
    return kept


def open_quarantine(relay: Directory) -> Directory:
    """Opens quarantine/; where it is missing it is made, and its name synced."""
    try:
        return relay.directory(QUARANTINE)
    except FileNotFoundError:
        relay.make_directory(QUARANTINE)
        relay.sync()
        return relay.directory(QUARANTINE)


def _keep(relay: Directory, name: str, chunks: _Chunks, size: int) -> str:
    with contextlib.closing(open_quarantine(relay)) as quarantine:
        for kept in _candidates(name):
            found = quarantine.stat(kept)
            if found is None:
                _write(quarantine, kept, chunks)
            elif found[1] != size or not _same(quarantine, kept, chunks):
                continue
            quarantine.sync()
            return kept
    raise AssertionError("there is always one more number")


def _candidates(name: str) -> Iterator[str]:
    yield name
    yield from (f"{name}.{number}" for number in count(1))


def _write(quarantine: Directory, name: str, chunks: _Chunks) -> None:
    unfinished = name + NEW
    with contextlib.closing(open_fresh(quarantine, unfinished)) as file:
        at = 0
        for chunk in chunks():
            file.write((chunk,), at)
            at += len(chunk)
        file.sync()
    quarantine.replace(unfinished, name)


def _same(quarantine: Directory, name: str, chunks: _Chunks) -> bool:
    with contextlib.closing(quarantine.open(name, "read")) as file:
        at = 0
        for chunk in chunks():
            if file.read(len(chunk), at) != bytes(chunk):
                return False
            at += len(chunk)
    return True


def _slices(view: memoryview) -> Iterator[memoryview]:
    return (view[at : at + _CHUNK_BYTES] for at in range(0, len(view), _CHUNK_BYTES))


def _read_chunks(file: File) -> Iterator[memoryview]:
    at = 0
    while part := file.read(_CHUNK_BYTES, at):
        yield memoryview(part)
        at += len(part)
