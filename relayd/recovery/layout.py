"""Which files stand for which ordinals, from their names alone (docs/reference/journal.md, "Opening", 2)."""

from typing import NamedTuple

from relayd.journal.names import JOURNAL, SegmentKind, SegmentName
from relayd.journal.storage import Directory
from relayd.recovery.refusal import refusal


class Layout(NamedTuple):
    """The files but active.log, in order of ordinals.

    `leftovers` end at or below the base: collection was cut off, and nobody reads them. `settled` are the others, each
    range once. `doubled`: sealed copies of ranges whose rotated file is still here, and is the one that counts.
    `end`: the last ordinal that any name tells; 0 where there is none.
    """

    leftovers: tuple[SegmentName, ...]
    settled: tuple[SegmentName, ...]
    doubled: tuple[SegmentName, ...]
    end: int


def lay_out(relay: Directory, names: tuple[SegmentName, ...], base: int) -> Layout:
    """Parts `names`, in order, at `base`. Raises OpeningError (`journal_conflict`) where ranges overlap above it."""
    settled: list[SegmentName] = []
    doubled: list[SegmentName] = []
    for name in names:
        if name.last <= base:
            continue
        before = settled[-1] if settled else None
        if before is None or name.first > before.last:
            settled.append(name)
        elif _is_pair(before, name):
            doubled.append(name)
        else:
            message = f"its ordinals overlap those of {before.text}; one of them does not belong here"
            raise refusal(relay, "journal_conflict", message, file=f"{JOURNAL}/{name.text}")
    end = max((name.last for name in names), default=0)
    return Layout(_leftovers(names, base, settled), tuple(settled), tuple(doubled), end)


def _is_pair(rotated: SegmentName, copy: SegmentName) -> bool:
    """Whether they are a rotated file and its sealed copy, which comes behind it in the order of names."""
    kinds = (rotated.kind, copy.kind) == (SegmentKind.ROTATED, SegmentKind.SEALED)
    return kinds and (rotated.first, rotated.last) == (copy.first, copy.last)


def _leftovers(names: tuple[SegmentName, ...], base: int, settled: list[SegmentName]) -> tuple[SegmentName, ...]:
    """Each range once. One that overlaps another is left alone: nothing below base fails an open."""
    taken: list[SegmentName] = []
    begin = settled[0].first if settled else base + 1
    for name in names:
        if name.last <= base and name.last < begin and (not taken or name.first > taken[-1].last):
            taken.append(name)
    return tuple(taken)
