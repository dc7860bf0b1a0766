"""Small relays of every sort, as files by path: what damage begins from.

All hold the events of support/relays.py, so that any two of them agree on every record.
"""

from support import oracle
from support.relays import OTHER_SEGMENT, acknowledged, event, events, name, pack, sealed, segment, snapshot

THIRD_SEGMENT = b"T" * 16
ACTIVE = "journal/active.log"

ALONE = segment(1, 2, 1)
LAYERED = segment(2, 1, 2, first=12)
SEALED, ROTATED = f"journal/{name(1, 7, '.log.zst')}", f"journal/{name(8, 11)}"
LATE_SEALED = f"journal/{name(5, 7, '.log.zst')}"


def alone() -> dict[str, bytes]:
    """active.log with ordinals 1 to 4 in three groups, and its watermark."""
    return {ACTIVE: ALONE, "watermark": oracle.watermark(oracle.SEGMENT, len(ALONE))}


def snapshotted() -> dict[str, bytes]:
    """The same with both generations, and a consumer."""
    small = {"snapshot": snapshot(3), "snapshot.previous": snapshot(2), "acknowledged": acknowledged(2)}
    return alone() | small


def layered() -> dict[str, bytes]:
    """1 to 7 sealed, 8 to 11 rotated, 12 to 16 in active.log; the state at 14."""
    return {
        SEALED: sealed(1, 7, segment=THIRD_SEGMENT),
        ROTATED: segment(3, 1, first=8, segment=OTHER_SEGMENT),
        ACTIVE: LAYERED,
        "watermark": oracle.watermark(oracle.SEGMENT, len(LAYERED)),
        "snapshot": snapshot(14),
        "snapshot.previous": snapshot(12),
        "acknowledged": acknowledged(3),
    }


def collected() -> dict[str, bytes]:
    """As layered, but 1 to 4 were acknowledged by everybody and are gone."""
    files = layered()
    del files[SEALED]
    return files | {
        LATE_SEALED: sealed(5, 7, segment=THIRD_SEGMENT),
        "snapshot": snapshot(14, base=4, retention="acknowledged"),
        "snapshot.previous": snapshot(12, base=4, retention="acknowledged"),
        "acknowledged": acknowledged(4),
    }


def rotating() -> dict[str, bytes]:
    """As layered, killed right after active.log got its new name: 12 to 16 are the newest file."""
    files = layered()
    files[f"journal/{name(12, 16)}"] = files.pop(ACTIVE)
    return files


def sealing() -> dict[str, bytes]:
    """As layered, killed before the rotated file's name was removed: 8 to 11 are there sealed too."""
    return layered() | {f"{ROTATED}.zst": sealed(8, 11, segment=OTHER_SEGMENT)}


def spacious() -> dict[str, bytes]:
    """1 to 7 sealed, 8 to 11 rotated, 12 to 14 in active.log with whole pieces of zeros in each; the state at 7."""
    active = oracle.segment_header()
    for ordinal in (12, 13, 14):
        active += oracle.group(len(active), ordinal, [pack([9, "output", bytes(1600), None, ["p", ordinal]])])
    rotated = segment(1, first=8, segment=OTHER_SEGMENT)
    rotated += oracle.group(len(rotated), 9, [event(9, 500), *events(10, 11)], OTHER_SEGMENT)
    return layered() | {
        ROTATED: rotated,
        ACTIVE: active,
        "watermark": oracle.watermark(oracle.SEGMENT, len(active)),
        "snapshot": snapshot(7),
        "snapshot.previous": snapshot(7),
    }


SHAPES = {shape.__name__: shape for shape in (alone, snapshotted, layered, collected, rotating, sealing, spacious)}
LASTS = dict.fromkeys(SHAPES, 16) | {"alone": 4, "snapshotted": 4, "spacious": 14}
"""The last ordinal of each."""
