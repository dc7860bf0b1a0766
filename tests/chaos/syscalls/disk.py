"""Files and directories as the system shows them, and what of it a power cut may leave.

A file's bytes since its last sync: of each piece of 512 bytes, any version it has had since then may be on disk, each
piece by itself, and with any size that the file has had, or grew through in steps of 512. A directory's names since its
last sync: any number of the first changes. Nothing follows from one file, or directory, to another: a synced file may
have no name, and a name that is on disk may stand for a file without its bytes.
"""

import hashlib
import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

PIECE = 512
PAGE = 4096
DRAWN_MOST = 2000
"""Draws for one file of one step: where fewer contents than asked for are found in so many, those are given."""
_ids = itertools.count(1)


class Write(NamedTuple):
    offset: int
    content: bytes


class Cut(NamedTuple):
    size: int


class Link(NamedTuple):
    name: str
    node: "File | Directory"


class Unlink(NamedTuple):
    name: str


class Rename(NamedTuple):
    name: str
    target: str


class Content(NamedTuple):
    """What a file may hold after a cut."""

    data: bytes
    digest: bytes


class Variants(NamedTuple):
    """The contents a cut may leave of a file, each once: nothing of what is unsynced first, all of it second."""

    contents: list[Content]
    complete: bool


@dataclass(eq=False)
class File:
    durable: bytes = b""
    pending: list[Write | Cut] = field(default_factory=list)
    number: int = field(default_factory=lambda: next(_ids))
    changes: int = 0
    _known: tuple[tuple, Variants] | None = None

    def change(self, change: Write | Cut) -> None:
        self.pending.append(change)
        self.changes += 1

    def synced(self, count: int) -> None:
        """The first `count` of the changes are on disk."""
        if count:
            content = bytearray(self.durable)
            for change in self.pending[:count]:
                _apply(content, change)
            self.durable, self.pending = bytes(content), self.pending[count:]
            self.changes += 1

    @property
    def content(self) -> bytes:
        """As processes see it."""
        content = bytearray(self.durable)
        for change in self.pending:
            _apply(content, change)
        return bytes(content)

    def variants(self, most: int, seed: int) -> Variants:
        """At most `most` of them, then drawn by `seed` from all."""
        key = (self.changes, most)
        if self._known is None or self._known[0] != key:
            self._known = (key, _variants(self, most, f"{seed} {self.changes}"))
        return self._known[1]


def _apply(content: bytearray, change: Write | Cut) -> None:
    if isinstance(change, Cut):
        del content[change.size :]
        content.extend(bytes(change.size - len(content)))
    else:
        content.extend(bytes(max(0, change.offset - len(content))))
        content[change.offset : change.offset + len(change.content)] = change.content


class _History(NamedTuple):
    """Every version of each changed piece since the last sync, oldest first, and every size the file had meanwhile."""

    pieces: dict[int, list[bytes]]
    sizes: list[int]
    oldest: int
    newest: int

    def all_picks(self) -> Iterator[tuple[int, dict[int, int]]]:
        """Every size, with every choice of versions for the pieces that such a file has."""
        for size in self.sizes:
            within = [at for at in self.pieces if at * PIECE < size]
            for versions in itertools.product(*(range(len(self.pieces[at])) for at in within)):
                yield size, dict(zip(within, versions, strict=True))

    @property
    def ways(self) -> int:
        return sum(
            math.prod(len(versions) for at, versions in self.pieces.items() if at * PIECE < size) for size in self.sizes
        )


def _history(file: File) -> _History:
    content = bytearray(file.durable)
    pieces: dict[int, list[bytes]] = {}
    sizes = [len(content)]
    for change in file.pending:
        before = bytes(content)
        _apply(content, change)
        begin, end = min(len(before), len(content)), max(len(before), len(content))
        if isinstance(change, Write):
            begin, end = min(change.offset, len(before)), change.offset + len(change.content)
            sizes += range(len(before) - len(before) % PIECE + PIECE, len(content), PIECE)
        sizes.append(len(content))
        for at in range(begin // PIECE, -(-end // PIECE)):
            versions = pieces.setdefault(at, [_piece(before, at)])
            if (piece := _piece(content, at)) != versions[-1]:
                versions.append(piece)
    return _History(pieces, list(dict.fromkeys(sizes)), len(file.durable), len(content))


def _variants(file: File, most: int, seed: str) -> Variants:
    if not file.pending:
        return Variants([_content(file.durable)], complete=True)
    history = _history(file)
    complete = history.ways <= most
    found: dict[bytes, Content] = {}
    rest = history.all_picks() if complete else _drawn_picks(history, random.Random(seed))
    for size, pick in itertools.chain(_plain_picks(history), rest):
        content = _content(_assemble(file.durable, history.pieces, size, pick))
        found.setdefault(content.digest, content)
        if len(found) >= most and not complete:
            break
    return Variants(list(found.values()), complete)


def _plain_picks(history: _History) -> Iterator[tuple[int, dict[int, int]]]:
    """Nothing; everything; the size alone; the bytes alone."""
    old = dict.fromkeys(history.pieces, 0)
    new = {at: len(versions) - 1 for at, versions in history.pieces.items()}
    yield from ((history.oldest, old), (history.newest, new), (history.newest, old), (history.oldest, new))


def _drawn_picks(history: _History, chance: random.Random) -> Iterator[tuple[int, dict[int, int]]]:
    """Whole pages, one piece missing, only one there, an earlier version of all; then any."""
    pieces, size = history.pieces, history.newest
    old = dict.fromkeys(pieces, 0)
    new = {at: len(versions) - 1 for at, versions in pieces.items()}
    for page in sorted({at * PIECE // PAGE for at in pieces}):
        yield size, old | {at: new[at] for at in pieces if at * PIECE // PAGE == page}
    yield size, {at: max(0, version - 1) for at, version in new.items()}
    for at in chance.sample(sorted(pieces), min(len(pieces), 8)):
        yield size, new | {at: 0}
        yield size, old | {at: new[at]}
    for _ in range(min(history.ways, DRAWN_MOST)):
        yield chance.choice(history.sizes), {at: chance.randrange(len(versions)) for at, versions in pieces.items()}


def _piece(content: bytes | bytearray, at: int) -> bytes:
    return bytes(content[at * PIECE : (at + 1) * PIECE]).ljust(PIECE, b"\0")


def _assemble(durable: bytes, pieces: dict[int, list[bytes]], size: int, pick: dict[int, int]) -> bytes:
    content = bytearray(durable[:size].ljust(size, b"\0"))
    for at, version in pick.items():
        begin = at * PIECE
        if begin < size:
            end = min(size, begin + PIECE)
            content[begin:end] = pieces[at][version][: end - begin]
    return bytes(content)


def _all_picks(pieces: dict[int, list[bytes]], sizes: list[int]) -> Iterator[tuple[int, dict[int, int]]]:
    for size in sizes:
        within = [at for at in pieces if at * PIECE < size]
        for versions in itertools.product(*(range(len(pieces[at])) for at in within)):
            yield size, dict(zip(within, versions, strict=True))


def _some_picks(
    pieces: dict[int, list[bytes]], sizes: list[int], most: int, chance: random.Random
) -> Iterator[tuple[int, dict[int, int]]]:
    """The plainest first: the size alone, the bytes alone, whole pages, one piece missing, one there; then any."""
    old, new = dict.fromkeys(pieces, 0), {at: len(versions) - 1 for at, versions in pieces.items()}
    plain = [(sizes[-1], old), (sizes[0], new)]
    if len(pieces) * PIECE > PAGE:
        plain += [(sizes[-1], old | {a: new[a] for a in pieces if a * PIECE // PAGE == page}) for page in range(4)]
    for at in chance.sample(list(pieces), min(len(pieces), most // 4)):
        plain += [(sizes[-1], new | {at: 0}), (sizes[-1], old | {at: new[at]})]
    yield from plain
    for _ in range(most - len(plain)):
        yield chance.choice(sizes), {at: chance.randrange(len(versions)) for at, versions in pieces.items()}


def _content(data: bytes) -> Content:
    return Content(data, hashlib.blake2b(data, digest_size=16).digest())


@dataclass(eq=False)
class Directory:
    durable: dict[str, "File | Directory"] = field(default_factory=dict)
    pending: list[Link | Unlink | Rename] = field(default_factory=list)
    names: dict[str, "File | Directory"] = field(default_factory=dict)
    """As processes see them."""
    number: int = field(default_factory=lambda: next(_ids))

    def change(self, change: Link | Unlink | Rename) -> None:
        self.pending.append(change)
        _change_names(self.names, change)

    def synced(self, count: int) -> None:
        """The first `count` of the changes are on disk."""
        for change in self.pending[:count]:
            _change_names(self.durable, change)
        self.pending = self.pending[count:]

    def after(self, count: int) -> dict[str, "File | Directory"]:
        """The names that are there where `count` of the changes reached the disk."""
        if count == len(self.pending):
            return self.names
        names = dict(self.durable)
        for change in self.pending[:count]:
            _change_names(names, change)
        return names


def _change_names(names: dict[str, File | Directory], change: Link | Unlink | Rename) -> None:
    match change:
        case Link(name, node):
            names[name] = node
        case Unlink(name):
            del names[name]
        case Rename(name, target):
            names[target] = names.pop(name)
