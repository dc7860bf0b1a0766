"""The two generations of the folded state on disk (docs/reference/journal.md, "Snapshots").

A snapshot is a checkpoint of the fold and never a second truth. It takes three steps: `encode_snapshot` (any thread,
from a captured state), `write_new` (under a name that opening removes), and `install`, once its frontier is synced.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Literal, NamedTuple

import msgspec

from relayd.journal.active import open_fresh
from relayd.journal.names import NEW, SNAPSHOT, SNAPSHOT_PREVIOUS
from relayd.journal.storage import Directory
from relayd.protocol.cursor import Cursor
from relayd.protocol.event import Buffer
from relayd.protocol.kinds import StoreId
from relayd.recovery.checked_map import (
    FORMAT,
    CheckedMapError,
    LaterFormatError,
    frame_map,
    read_bounded,
    unframe_map,
)
from relayd.relay.state import RelayState, decode_state, encode_state

MAGIC: Final = b"RLYSNAP1"
SNAPSHOT_NEW: Final = SNAPSHOT + NEW

GenerationName = Literal["snapshot", "snapshot.previous"]
GENERATIONS: Final[tuple[GenerationName, GenerationName]] = (SNAPSHOT, SNAPSHOT_PREVIOUS)


class Snapshot(msgspec.Struct, frozen=True):
    """`state` is the fold of everything up to `frontier`; no event up to `base` is needed any more."""

    format: int
    relay: str
    store: StoreId
    frontier: Cursor
    base: Cursor
    state: msgspec.Raw


class Format(msgspec.Struct, frozen=True):
    """What every format of every file has."""

    format: int


class Generation(NamedTuple):
    """One usable snapshot: its name, and what it holds."""

    name: GenerationName
    snapshot: Snapshot
    state: RelayState


class Generations(NamedTuple):
    """What stands under the two names: what can be used, newest name first, and the names of what cannot, with why."""

    usable: tuple[Generation, ...]
    damaged: tuple[tuple[GenerationName, str], ...]


_decode: Final = msgspec.msgpack.Decoder(Snapshot).decode
_decode_format: Final = msgspec.msgpack.Decoder(Format).decode


def encode_snapshot(relay: str, state: RelayState, base: Cursor) -> bytes:
    """The whole file for `state`, which nothing changes meanwhile."""
    snapshot = Snapshot(FORMAT, relay, state.store, state.frontier, base, msgspec.Raw(encode_state(state)))
    return frame_map(MAGIC, msgspec.msgpack.encode(snapshot))


def decode_snapshot(content: Buffer) -> Snapshot:
    """Reads the whole file. Raises CheckedMapError, and LaterFormatError where it is intact and of a later format."""
    encoded = unframe_map(MAGIC, content)
    try:
        check_format(encoded)
        return _decode(encoded)
    except msgspec.DecodeError as error:
        raise CheckedMapError(f"its map is no snapshot's: {error}") from error


def check_format(encoded: Buffer) -> None:
    """Raises LaterFormatError where the map says a later format than this version's, msgspec.DecodeError where none."""
    said = _decode_format(encoded).format
    if said > FORMAT:
        raise LaterFormatError(f"its format is {said}; this version of relayd knows {FORMAT}")
    if said != FORMAT:
        raise CheckedMapError(f"its format is {said}, which never was")


def load_generation(name: GenerationName, content: Buffer) -> Generation:
    """The snapshot in `content` with its state. Raises CheckedMapError, LaterFormatError."""
    snapshot = decode_snapshot(content)
    try:
        state = decode_state(snapshot.state)
    except msgspec.DecodeError as error:
        raise CheckedMapError(f"its state cannot be read: {error}") from error
    if (state.store, state.frontier) != (snapshot.store, snapshot.frontier):
        raise CheckedMapError("its state is that of another store or frontier than it says")
    if snapshot.frontier.digest is None or snapshot.base.ordinal > snapshot.frontier.ordinal:
        raise CheckedMapError("its frontier and base cannot be")
    return Generation(name, snapshot, state)


def read_generations(
    relay: Directory, reading: Callable[[GenerationName], AbstractContextManager[None]] = nullcontext
) -> Generations:
    """Both generations, read and checked one by one, each within `reading` of its name.

    Raises LaterFormatError (its text names the file), OSError.
    """
    usable: list[Generation] = []
    damaged: list[tuple[GenerationName, str]] = []
    for name in GENERATIONS:
        with reading(name):
            content = read_bounded(relay, name)
            if content is None:
                continue
            try:
                usable.append(load_generation(name, content))
            except CheckedMapError as error:
                damaged.append((name, str(error)))
            except LaterFormatError as error:
                raise LaterFormatError(f"{name}: {error}") from error
    return Generations(tuple(usable), tuple(damaged))


def write_new(relay: Directory, content: bytes) -> None:
    """Writes and syncs `snapshot.new`. Raises OSError; what then stands under that name counts for nothing."""
    file = open_fresh(relay, SNAPSHOT_NEW)
    try:
        file.write((content,), 0)
        file.sync()
    finally:
        file.close()


def install(relay: Directory) -> None:
    """Makes `snapshot.new` the newest generation, and the newest the previous one. Raises OSError.

    The caller knows its frontier synced: a snapshot that is ahead of its journal refuses every later opening.
    """
    if relay.stat(SNAPSHOT) is not None:
        relay.replace(SNAPSHOT, SNAPSHOT_PREVIOUS)
    relay.replace(SNAPSHOT_NEW, SNAPSHOT)
    relay.sync()
