"""What a power cut may leave of one file: its synced bytes, and of what came after any part that POSIX allows.

A disk persists 512 bytes whole or not at all. What a write put into a piece may be there or not, piece by piece and
whatever the order; a piece of the file that never got its bytes is zeros. Only the end of a file may lie anywhere.
"""

import random
from collections.abc import Callable, Sequence

SECTOR, PAGE = 512, 4096

Change = tuple[int, bytes] | int
"""A write, as offset and bytes, or the size that the file was cut to."""


def apply(content: bytes, changes: Sequence[Change]) -> bytes:
    """The file after all `changes`."""
    made = bytearray(content)
    for change in changes:
        make(made, change)
    return bytes(made)


def make(content: bytearray, change: Change) -> None:
    """Makes one change; what a write leaves out before its offset is zeros."""
    if isinstance(change, int):
        del content[change:]
        content.extend(bytes(max(0, change - len(content))))
        return
    offset, data = change
    content.extend(bytes(max(0, offset - len(content))))
    content[offset : offset + len(data)] = data


def nothing(synced: bytes, _changes: Sequence[Change], _chance: random.Random) -> bytes:
    """Only what was synced."""
    return synced


def everything(synced: bytes, changes: Sequence[Change], _chance: random.Random) -> bytes:
    """All that was written."""
    return apply(synced, changes)


def earlier(synced: bytes, changes: Sequence[Change], chance: random.Random) -> bytes:
    """The first changes, not the last."""
    return apply(synced, changes[: chance.randrange(len(changes))])


def torn(synced: bytes, changes: Sequence[Change], chance: random.Random) -> bytes:
    """The first changes, and a beginning of the next: to any byte where the file grows by it, else whole sectors."""
    at = chance.randrange(len(changes))
    before, change = apply(synced, changes[:at]), changes[at]
    if isinstance(change, int):
        return before
    offset, data = change
    end = offset + chance.randrange(len(data) + 1)
    if end < max(len(before), offset):
        end = max(offset, end - end % SECTOR)
    return apply(before, [(offset, data[: end - offset])])


def sectors(synced: bytes, changes: Sequence[Change], chance: random.Random) -> bytes:
    """Each piece of 512 bytes as any of the changes left it."""
    return _pieces(synced, changes, chance, SECTOR)


def pages(synced: bytes, changes: Sequence[Change], chance: random.Random) -> bytes:
    """Each piece of 4,096 bytes as any of the changes left it."""
    return _pieces(synced, changes, chance, PAGE)


def _pieces(synced: bytes, changes: Sequence[Change], chance: random.Random, piece: int) -> bytes:
    versions = [synced]
    for change in changes:
        versions.append(apply(versions[-1], [change]))
    sizes = {len(version) for version in versions}
    # A long write gives the file its size page by page.
    sizes |= {size for size in range(0, max(sizes), PAGE) if size > len(synced)}
    size = chance.choice(sorted(sizes))
    kept = bytearray()
    for start in range(0, size, piece):
        version = chance.choice(versions)
        kept += version[start : start + piece].ljust(piece, b"\0")
    return bytes(kept[:size])


Way = Callable[[bytes, Sequence[Change], random.Random], bytes]

WAYS: dict[str, Way] = {
    "nothing": nothing,
    "everything": everything,
    "earlier": earlier,
    "torn": torn,
    "sectors": sectors,
    "pages": pages,
}
"""By what `Disk.cut` calls them and counts."""

OFTEN = ("torn", "torn", "sectors", "sectors", "pages", "nothing", "everything", "earlier")
"""How often a cut leaves a file in which way: what leaves less to be told apart comes more rarely."""
