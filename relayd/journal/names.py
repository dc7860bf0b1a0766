"""Names in a relay's directory (docs/reference/journal.md, "Layout")."""

import re
from enum import StrEnum
from typing import Final, NamedTuple

from relayd.protocol.limits import ORDINAL_MAX

JOURNAL: Final = "journal"
QUARANTINE: Final = "quarantine"

ACTIVE: Final = "active.log"
SNAPSHOT: Final = "snapshot"
SNAPSHOT_PREVIOUS: Final = "snapshot.previous"
ACKNOWLEDGED: Final = "acknowledged"
WATERMARK: Final = "watermark"
SEED: Final = "seed"
IDLE: Final = "idle"

NEW: Final = ".new"
"""What the name of an unfinished file ends with; opening removes it."""
PROBE: Final = "probe" + NEW


class SegmentKind(StrEnum):
    """What stands under a name in `journal/`."""

    ACTIVE = "active"
    ROTATED = "rotated"
    SEALED = "sealed"
    LOST = "lost"


_SUFFIXES: Final = {SegmentKind.ROTATED: ".log", SegmentKind.SEALED: ".log.zst", SegmentKind.LOST: ".lost"}
_KINDS: Final = {suffix: kind for kind, suffix in _SUFFIXES.items()}
_SPAN: Final = re.compile(r"([0-9]{20})-([0-9]{20})(\.log|\.log\.zst|\.lost)", re.ASCII)


class SegmentName(NamedTuple):
    """A segment's kind, and its first and last ordinal; both are 0 for active.log, whose name does not tell them."""

    kind: SegmentKind
    first: int
    last: int

    @property
    def text(self) -> str:
        """The file's name."""
        return segment_name(self.kind, self.first, self.last)


def segment_name(kind: SegmentKind, first: int, last: int) -> str:
    """The file's name of the segment that holds, or lost, `first` to `last`."""
    return ACTIVE if kind is SegmentKind.ACTIVE else f"{first:020}-{last:020}{_SUFFIXES[kind]}"


def parse_segment_name(name: str) -> SegmentName | None:
    """What `name` names; None where it is no segment's name (an unfinished or unknown file, a span that cannot be)."""
    if name == ACTIVE:
        return SegmentName(SegmentKind.ACTIVE, 0, 0)
    found = _SPAN.fullmatch(name)
    if found is None:
        return None
    first, last = int(found[1]), int(found[2])
    if not 1 <= first <= last <= ORDINAL_MAX:
        return None
    return SegmentName(_KINDS[found[3]], first, last)
