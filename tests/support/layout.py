"""A journal's files, made by the oracle, and a reader of their pages whose every record is proven."""

import itertools
import struct
from collections.abc import Callable
from pathlib import Path

from support import oracle, sealed_oracle

from relayd.journal.catalogue import Segment, View
from relayd.journal.groups import GroupIndex
from relayd.journal.names import SegmentKind, segment_name
from relayd.journal.pages import PageReader, make_page_cache
from relayd.journal.real_storage import open_state_directory
from relayd.protocol.cursor import Span
from relayd.protocol.limits import MIB

ACTIVE, ROTATED, SEALED, LOST = SegmentKind


class Layout:
    """A journal's directory with files of each kind, made by the oracle, and the view of it."""

    def __init__(self, path: Path) -> None:
        path.mkdir(exist_ok=True)
        self.path, self.next, self.segments, self.bodies, self.ids = path, 1, [], {}, itertools.count(1)
        self.active: Segment | None = None
        self.opened = open_state_directory(str(path))
        self.cache = make_page_cache()
        self.reader = PageReader(self.opened, self.cache, oracle.STORE)

    @property
    def view(self) -> View:
        """What a catalogue would show."""
        return View(tuple(self.segments), self.active)

    @property
    def last(self) -> int:
        """The last ordinal."""
        return self.next - 1

    def add(self, kind: SegmentKind, blocks: list[list[bytes]], *, indexed: bool = False) -> Segment:
        """One more file with a frame or group for each block; of a lost span, only the ordinals count."""
        first, last = self.next, self.next + sum(map(len, blocks)) - 1
        id_ = bytes([next(self.ids)]) * 16
        data, groups = b"", None
        if kind is SEALED:
            data = sealed_oracle.sealed_of(blocks, first)
        elif kind in (ROTATED, ACTIVE):
            data = oracle.segment_of(blocks, first, id_)
            groups = index_of(blocks, first) if indexed or kind is ACTIVE else None
        name = segment_name(kind, first, last)
        (self.path / name).write_bytes(data)
        if kind is not LOST:
            self.bodies.update(enumerate((body for block in blocks for body in block), first))
        made = Segment(kind, first, last, len(data), id_ if groups is not None else None, groups)
        if kind is ACTIVE:
            self.active = made
        else:
            self.segments.append(made)
        self.next = last + 1
        return made

    def read(self, after: int, through: int | None = None, max_bytes: int = MIB) -> list[int] | Span:
        """The ordinals of a page, each proven to be the record that was written."""
        page = self.reader.read(self.view, after, self.last if through is None else through, max_bytes)
        return page if isinstance(page, Span) else proven(page, self.bodies)

    def damage(self, segment: Segment, change: Callable[[bytes], bytes]) -> None:
        """Changes a file's bytes, and forgets what was read of it."""
        file = self.path / segment.name
        file.write_bytes(change(file.read_bytes()))
        self.reader = PageReader(self.opened, make_page_cache(), oracle.STORE)


def index_of(blocks: list[list[bytes]], first: int) -> GroupIndex:
    """Where the groups of `oracle.segment_of` stand."""
    index, offset = GroupIndex(), 48
    for block in blocks:
        end = offset + 64 + sum(28 + len(body) for body in block)
        index.add(first, offset, end)
        first, offset = first + len(block), end
    return index


def proven(page: bytes, bodies: dict[int, bytes]) -> list[int]:
    """The ordinals of a page's records; fails the test where one is not whole or not what was written."""
    found, at = [], 0
    while at < len(page):
        length, ordinal = struct.unpack_from("<IQ", page, at)
        assert page[at : at + 28 + length] == oracle.record(ordinal, bodies[ordinal])
        found.append(ordinal)
        at += 28 + length
    assert at == len(page), "whole records"
    return found


def flip(offset: int, bit: int = 0) -> Callable[[bytes], bytes]:
    """Changes one bit."""
    return lambda data: data[:offset] + bytes([data[offset] ^ 1 << bit]) + data[offset + 1 :]


def walk(layout: Layout, max_bytes: int) -> list[int]:
    """Every ordinal from the first to the last, going on behind what cannot be read."""
    after, got = 0, []
    while after < layout.last:
        page = layout.read(after, None, max_bytes)
        got += [] if isinstance(page, Span) else page
        after = page.last if isinstance(page, Span) else page[-1]
    return got
