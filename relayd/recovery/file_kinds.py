"""What a file that is named by itself is: by its first bytes, and where those are damaged by its name."""

import contextlib
from pathlib import PurePath
from typing import Final, Literal, NamedTuple

from relayd.journal.names import WATERMARK, SegmentKind, SegmentName, parse_segment_name
from relayd.journal.segment import SEGMENT_MAGIC, find_group_headers, is_later_segment
from relayd.journal.storage import File
from relayd.journal.watermark import WATERMARK_BYTES, decode_watermark
from relayd.recovery import acknowledged, snapshot
from relayd.recovery.backup_format import is_backup
from relayd.recovery.checked_map import HEADER_BYTES, MAP_BYTES_MAX
from relayd.recovery.seed import SeedError, decode_seed

_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_SNIFF_BYTES: Final = 64
_BEGIN_BYTES: Final = HEADER_BYTES + MAP_BYTES_MAX + 1
"""A seed is no larger, and a group header stands in so much of any segment."""

Kind = Literal["groups", "sealed", "lost", "backup", "map", "watermark", "none"]
"""`groups`: active.log or a rotated segment. `map`: a snapshot, an `acknowledged` or a seed."""


class FileKind(NamedTuple):
    """`name`: its name where that is a segment's, but active.log's. `what`: of one that is none, in words."""

    kind: Kind
    name: SegmentName | None = None
    what: str = ""


def file_kind(path: str, file: File) -> FileKind:
    """Tells. Raises OSError."""
    name = parse_segment_name(PurePath(path).name)
    begin = file.read(_SNIFF_BYTES, 0)
    if is_backup(begin):
        return FileKind("backup")
    if name is not None and name.kind is not SegmentKind.ACTIVE:
        kinds: dict[SegmentKind, Kind] = {SegmentKind.SEALED: "sealed", SegmentKind.LOST: "lost"}
        return FileKind(kinds.get(name.kind, "groups"), name)
    if begin.startswith(_ZSTD) or path.endswith(".log.zst"):
        return FileKind("sealed")
    if begin.startswith((acknowledged.MAGIC, snapshot.MAGIC)):
        return FileKind("map")
    if name is not None or begin.startswith(SEGMENT_MAGIC) or is_later_segment(begin):
        return FileKind("groups")
    return _by_content(path, file)


def _by_content(path: str, file: File) -> FileKind:
    """Of a file that begins as none of relayd's does."""
    if file.size() == 0:
        return FileKind("none", what="empty")
    content = file.read(_BEGIN_BYTES, 0)
    if PurePath(path).name == WATERMARK or decode_watermark(content[: WATERMARK_BYTES + 1]) is not None:
        return FileKind("watermark")
    if next(iter(find_group_headers(content, 0, None)), None) is not None:
        return FileKind("groups")
    with contextlib.suppress(SeedError):
        decode_seed(content)
        return FileKind("map")
    return FileKind("none", what="no segment, snapshot, acknowledged, seed or backup")
