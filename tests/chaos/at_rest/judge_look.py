"""What each of a relay's files says on its own, and whose files they are.

Part of the judge (judge.py). Imports nothing of relayd.
"""

from collections.abc import Mapping
from typing import NamedTuple

from chaos.at_rest import judge_files as files_
from chaos.at_rest.judge_files import SegmentHeader, Span, Watermark

ACTIVE = "journal/active.log"
GENERATIONS = ("snapshot", "snapshot.previous")


class ConflictError(Exception):
    """Nothing tells whose files these are."""


class State(NamedTuple):
    """What a fold begins from."""

    source: str
    base: int
    frontier: tuple[int, bytes]
    producers: dict


NOTHING = State("nothing", 0, (0, bytes(16)), {})


class Looked(NamedTuple):
    """Everything that stands on its own. `states`: the usable snapshots, newest first."""

    files: Mapping[str, bytes]
    store: bytes | None
    spans: list[Span]
    header: SegmentHeader | None
    rotated: dict[Span, SegmentHeader]
    sealed: dict[Span, files_.Sealed]
    watermark: Watermark | None
    states: list[State]
    acknowledged: list[tuple[int, bytes]]
    passed_over: frozenset[str]


def look(files: Mapping[str, bytes]) -> Looked:
    """Reads every file. Raises LaterFormatError, ConflictError."""
    spans = sorted(span for span in map(files_.span_of, files) if span is not None)
    header = files_.segment_header(files.get(ACTIVE, b""))
    rotated, sealed = {}, {}
    for span in spans:
        if span.suffix == ".log" and (found := files_.segment_header(files[span.name])) is not None:
            rotated[span] = found
        elif span.suffix == ".log.zst" and (index := files_.sealed(files[span.name], span)) is not None:
            sealed[span] = index
    said = {name: files_.checked_map(b"RLYSNAP1", files[name]) for name in GENERATIONS if name in files}
    usable = {name: one for name, one in said.items() if one is not None}
    acknowledged = files_.checked_map(b"RLYACKD1", files.get("acknowledged", b""))
    store = _store(header, rotated, sealed, [one["store"] for one in usable.values()], acknowledged)
    states = [_state(name, one) for name, one in usable.items() if one["store"] == store]
    cursors = []
    if acknowledged is not None and acknowledged["store"] == store:
        cursors = [tuple(each) for each in [acknowledged["acknowledged"], *acknowledged["consumers"].values()]]
    passed_over = said.keys() - {state.source for state in states}
    passed_over |= {"acknowledged"} if "acknowledged" in files and not cursors else set()
    return Looked(
        files=files,
        store=store,
        spans=spans,
        header=header,
        rotated=rotated,
        sealed=sealed,
        watermark=files_.watermark(files.get("watermark", b"")),
        states=states,
        acknowledged=cursors,
        passed_over=frozenset(passed_over),
    )


def _state(name: str, said: dict) -> State:
    return State(name, said["base"][0], tuple(said["frontier"]), said["state"].get("producers", {}))


def _store(
    header: SegmentHeader | None,
    rotated: dict[Span, SegmentHeader],
    sealed: dict[Span, files_.Sealed],
    snapshots: list[bytes],
    acknowledged: dict | None,
) -> bytes | None:
    """Whose files these are. A file of another relay is told by standing alone."""
    newest_sealed = sealed[max(sealed)].store if sealed else None
    newest_rotated = rotated[max(rotated)].store if rotated else None
    by_acknowledged = None if acknowledged is None else acknowledged["store"]
    by_segments = header.store if header is not None else newest_rotated
    if by_segments is None:
        if len(set(snapshots)) == 1:
            return snapshots[0]
        if snapshots and newest_sealed is None:
            raise ConflictError
        return newest_sealed or by_acknowledged
    beside = {newest_sealed, by_acknowledged}
    beside |= {one.store for one in rotated.values()} if header is not None else set()
    if snapshots and by_segments not in snapshots and by_segments not in beside:
        raise ConflictError
    return by_segments
