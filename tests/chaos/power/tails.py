"""A group that was never answered, of which any pages reached the disk by themselves before the power went."""

import contextlib
import random

from chaos.history import read_groups
from chaos.power.machine import LOG_FLUSHED, NOTHING_FLUSHED
from chaos.power.rounds import FLAGS, GROUP_SYNC
from chaos.power.station import Cut, Station, a_station
from support.wire import Wire

PAGE = 4096
DELAYED = ""
ZEROED = "data=writeback,nodelalloc"
"""Mount options with which a file's size reaches the disk before its data: what lies between reads as zeros."""
FIRST = 3000


def record(wire: Wire, number: int, size: int) -> dict:
    return wire.done("record", relay="a", events=[["x", [number, "y" * size]]], producer="p", sequence=number)


class Tail:
    """One disk: an answered event, then a group of `pages` pages that is cut off between its write and its sync.

    `mask` says which of its pages are written by then, the last one's bit is the lowest. The first is the page that the
    group before ends in.
    """

    def __init__(self, station: Station, flag: int, mask: int, pages: int) -> None:
        self._station = station
        self._options = station.machine.options
        self._flag, self._mask, self._pages = flag, mask, pages
        self._size = (pages - 1) * PAGE
        station.start()
        with station.daemon.connect() as wire:
            wire.done("open", relay="a", create=True)
            record(wire, 1, FIRST)
            self._synced = station.active("a").stat().st_size
            assert self._synced < PAGE < self._synced + 1000, "the group begins in the first page, and crosses its end"
            with station.cutting_at(Cut(1, flag, GROUP_SYNC, mask)), contextlib.suppress(ConnectionError):
                raise AssertionError(f"answered without a sync: {record(wire, 2, self._size)}")

    def pieces(self, left: bytes) -> str:
        """What is on the disk of the group, by pages: `.` zeros, `#` bytes; nothing past the file's end."""
        tail = [left[max(at, self._synced) : at + PAGE] for at in range(0, len(left), PAGE)]
        return "".join("#" if any(piece) else "." for piece in tail if piece)

    def check_machine(self, pieces: str) -> None:
        """The pages that were written are there: others too, where the kernel keeps several as one.

        Where sizes come before data, the file has its whole length.
        """
        written = "".join("#" if self._mask >> bit & 1 else "." for bit in reversed(range(self._pages)))
        if self._flag == NOTHING_FLUSHED:
            written = ""
        assert all(there == "#" for there, was in zip(pieces, written, strict=False) if was == "#"), (pieces, written)
        assert len(pieces) >= len(written if self._options == ZEROED else written.rstrip(".")), (pieces, written)

    def check(self) -> str:
        """The relay opens, to the group before or with all of this one; what became of the group, in a word.

        Asking again stores the event once, and after one more cut it is there.
        """
        left = self._station.active("a").read_bytes()
        pieces = self.pieces(left)
        self.check_machine(pieces)
        whole = max(read_groups(left, "active.log")) == 3
        self._station.start()
        with self._station.daemon.connect() as wire:
            assert wire.done("status", relay="a")["latest"][0] == (3 if whole else 2)
            opening = self._station.daemon.until_said("relay_opened")
            assert bool(opening["torn_bytes"]) is ("#" in pieces and not whole), opening
            again = record(wire, 2, self._size)
            assert (again["through"][0], again.get("duplicate", False)) == (3, whole)
        self._station.cut(NOTHING_FLUSHED)
        self._station.start()
        with self._station.daemon.connect() as wire:
            found = [one.data for one in wire.read_all("a") if one.kind == "x"]
        assert found == [[1, "y" * FIRST], [2, "y" * self._size]]
        return "whole" if whole else "torn" if opening["torn_bytes"] else "clean"


def any_tail(seed: int) -> str:
    """One drawn from a seed; what became of its group."""
    chance = random.Random(seed)
    options, pages = chance.choice((DELAYED, ZEROED)), chance.randint(2, 24)
    flag = LOG_FLUSHED if chance.random() < 0.9 else chance.choice(FLAGS)
    mask = (1 << pages) - 1 if chance.random() < 0.1 else chance.getrandbits(pages)
    # The snapshot and the segment are large: nothing but the group is written meanwhile.
    with a_station(options=options, segment_bytes=1 << 20) as station:
        return Tail(station, flag, mask, pages).check()
