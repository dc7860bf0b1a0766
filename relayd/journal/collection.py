"""Which files of a journal may go, and letting them go (docs/reference/journal.md, "Retention and collection")."""

import contextlib
from collections.abc import Iterable
from itertools import takewhile

from relayd.journal.catalogue import Segment, View
from relayd.journal.names import WATERMARK, SegmentKind
from relayd.journal.storage import Directory
from relayd.journal.watermark import Watermark, encode_watermark


def newest_with_records(view: View) -> Segment | None:
    """The newest file that holds a record: it is never unlinked."""
    return next((segment for segment in reversed(view.segments()) if _holds_records(segment)), None)


def collectable(view: View, base: int) -> list[str]:
    """The names of the files that lie at or below the ordinal `base` as a whole, oldest first.

    `base`: the smaller base of the two snapshot generations on disk; genesis, where one of them is missing. The newest
    file that holds a record stays, and so does what lies behind it.
    """
    newest = newest_with_records(view)
    going = takewhile(lambda segment: segment.last <= base and segment is not newest, view.settled)
    return [segment.name for segment in going]


def evictable(view: View, bytes_max: int) -> int | None:
    """The ordinal through which bounded retention drops the oldest files, so that `bytes_max` bytes or fewer are left.

    Only whole files go, and never the active one or the newest that holds a record, so that more may be left. None:
    nothing goes.
    """
    newest = newest_with_records(view)
    over = sum(segment.size for segment in view.segments()) - bytes_max
    through: int | None = None
    for segment in view.settled:
        if over <= 0 or segment is newest:
            break
        over -= segment.size
        through = segment.last
    return through


def sync_watermark(relay: Directory, watermark: Watermark) -> None:
    """Brings the watermark to the disk before files go, so that what is there names none of them.

    Where a power cut finds active.log without a name, in the middle of a rotation, a watermark that names no file that
    is there would be taken for that of a lost one. It is written again first: where an earlier sync of it failed, a
    second one alone would succeed and write nothing. Raises OSError.
    """
    with contextlib.suppress(FileNotFoundError), contextlib.closing(relay.open(WATERMARK, "update")) as file:
        file.write((encode_watermark(watermark),), 0)
        file.sync()


def unlink_segments(journal: Directory, names: Iterable[str]) -> None:
    """Unlinks files in the order given, oldest first, then syncs the directory. One that is gone is passed over.

    Raises OSError; then a beginning of `names` may be gone.
    """
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            journal.unlink(name)
    journal.sync()


def _holds_records(segment: Segment) -> bool:
    return segment.kind is not SegmentKind.LOST and segment.first <= segment.last
