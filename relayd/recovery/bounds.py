"""How far a journal has to reach, by what stands beside it (docs/reference/journal.md, "Opening", 4).

For the tools that read single records: a hole in the ordinals is damage only where something was answered, and not
where it may have been collected, or was given up.
"""

import contextlib
from typing import NamedTuple

import msgspec

from relayd.journal.names import ACKNOWLEDGED, ACTIVE, SegmentKind, parse_segment_name
from relayd.journal.segment import SEGMENT_HEADER_BYTES, decode_segment_header
from relayd.journal.storage import Directory
from relayd.protocol.cursor import Span
from relayd.protocol.event import decode_body
from relayd.protocol.kinds import RelayLost
from relayd.recovery.acknowledged import decode_acknowledged
from relayd.recovery.checked_map import CheckedMapError, LaterFormatError, read_bounded
from relayd.recovery.places import JournalPlace, segment_names
from relayd.recovery.seed import SeedError, load_seed
from relayd.recovery.snapshot import Snapshot, read_generations
from relayd.recovery.survey import peek_sealed


class Bounds(NamedTuple):
    """What is known from outside of the segments.

    Events up to `base` may be gone; None: nothing tells. The newest usable snapshot stands at `frontier`, 0 without
    one. Everything up to `answered` was. `store`: whose journal it is, where anything tells.
    """

    base: int | None
    frontier: int
    answered: int
    store: bytes | None


def read_bounds(place: JournalPlace) -> Bounds:
    """Reads it. What cannot be read tells nothing: that the small files are damaged is said of them."""
    relay = place.relay
    snapshot = None if relay is None else _newest_snapshot(relay)
    store = _store_in_segments(place.journal) if snapshot is None else snapshot.store
    if relay is None:
        return Bounds(None, 0, 0, store)
    if snapshot is None:
        base, frontier = _seed_frontier(relay), 0
    else:
        base, frontier = snapshot.base.ordinal, snapshot.frontier.ordinal
    return Bounds(base, frontier, max(base or 0, frontier, _acknowledged(relay, store)), store)


def _newest_snapshot(relay: Directory) -> Snapshot | None:
    with contextlib.suppress(LaterFormatError, OSError):
        usable = read_generations(relay).usable
        return usable[0].snapshot if usable else None
    return None


def _seed_frontier(relay: Directory) -> int | None:
    """Where a relay without a snapshot begins: behind its seed, or with the first event of all."""
    with contextlib.suppress(SeedError, OSError):
        file = load_seed(relay)
        return 0 if file is None else file.seed.frontier.ordinal
    return None


def _acknowledged(relay: Directory, store: bytes | None) -> int:
    with contextlib.suppress(CheckedMapError, LaterFormatError, OSError):
        content = read_bounded(relay, ACKNOWLEDGED)
        said = None if content is None else decode_acknowledged(content)
        if said is not None and store in (None, said.store):
            return max(cursor.ordinal for cursor in said.cursors)
    return 0


def _store_in_segments(journal: Directory) -> bytes | None:
    """By active.log, else by the newest segment that tells."""
    texts = (ACTIVE, *(name.text for name in reversed(segment_names(journal))))
    return next((store for store in (_store_in(journal, text) for text in texts) if store is not None), None)


def _store_in(journal: Directory, text: str) -> bytes | None:
    name = parse_segment_name(text)
    if name is None or name.kind is SegmentKind.LOST:
        return None
    if name.kind is SegmentKind.SEALED:
        index = peek_sealed(journal, name)
        return None if index is None else index.store
    with contextlib.suppress(OSError), contextlib.closing(journal.open(text, "read")) as file:
        header = decode_segment_header(file.read(SEGMENT_HEADER_BYTES, 0))
        return None if header is None else header.store
    return None


def gave_up(ordinal: int, stored: bytes, hole: Span) -> bool:
    """Whether the event right behind `hole` is the `relay.lost` that gave it up."""
    try:
        body = decode_body(stored)
        said = msgspec.msgpack.decode(body.data, type=RelayLost) if body.kind == "relay.lost" else None
    except msgspec.DecodeError:
        return False
    return said is not None and said.first <= hole.first and said.last == hole.last == ordinal - 1
