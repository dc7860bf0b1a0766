"""A relay comes to be, and goes (docs/reference/journal.md, "Layout").

It is made under a name that counts for nothing, and gets its own when its first event is on disk; it goes by losing its
name before its bytes. A crash anywhere leaves it there whole, or not there, and leftovers that the next start removes.
"""

import contextlib
import errno
import os
import re
from collections.abc import Callable
from typing import Final

import msgspec

from relayd.journal.names import ACTIVE, JOURNAL, NEW, SEED
from relayd.journal.segment import SEGMENT_HEADER_BYTES, SegmentHeader, encode_group_header, encode_segment_header
from relayd.journal.storage import Directory
from relayd.protocol.errors import FieldDetail, InvalidRequestError
from relayd.protocol.event import encode_body, encode_records
from relayd.protocol.kinds import EventData, RelayCreated, RelayRestored, Retention
from relayd.protocol.names import is_relay_name
from relayd.recovery.checked_map import file_digest
from relayd.recovery.seed import SeedError, decode_seed

_DELETED: Final = ".deleted"
_LEFTOVER: Final = re.compile(r"\.(.+)(?:\.new|\.[0-9a-f]{32}\.deleted)", re.ASCII)


def make_relay(
    relays: Directory,
    name: str,
    *,
    store: bytes,
    retention: Retention,
    max_active: int,
    now_ms: int,
    new_id: Callable[[], bytes],
) -> None:
    """Makes the relay `name`, its `relay.created` synced; it is there for good when this returns.

    `store`, and what `new_id` gives, are 16 random bytes. Raises FileExistsError where the name is taken, OSError; then
    the relay is not there, or it is there whole.
    """
    created = RelayCreated(store=store, retention=retention, max_active=max_active)
    _make(relays, name, _first_segment(SegmentHeader(store, new_id()), 1, "relay.created", created, now_ms), seed=None)


def restore_relay(
    relays: Directory,
    name: str,
    *,
    seed: bytes,
    store: bytes,
    retention: Retention,
    max_active: int,
    now_ms: int,
    new_id: Callable[[], bytes],
) -> None:
    """Makes the relay `name` from the bytes of a seed, which is kept beside its journal. Otherwise as `make_relay`.

    Raises InvalidRequestError where `seed` is none; nothing is written.
    """
    first = _prove_seed(seed) + 1
    restored = RelayRestored(store=store, seed=file_digest(seed), retention=retention, max_active=max_active)
    _make(
        relays,
        name,
        _first_segment(SegmentHeader(store, new_id()), first, "relay.restored", restored, now_ms),
        seed=seed,
    )


def _prove_seed(content: bytes) -> int:
    """The ordinal of the seed's frontier."""
    try:
        seed = decode_seed(content)
    except SeedError as error:
        raise InvalidRequestError(f"the seed cannot be used: {error}", FieldDetail("seed", "a seed")) from error
    return seed.frontier.ordinal


def _first_segment(ids: SegmentHeader, first: int, kind: str, data: EventData, now_ms: int) -> bytes:
    """active.log with one group of one event."""
    body = encode_body(now_ms, kind, msgspec.Raw(msgspec.msgpack.encode(data)))
    record, _ = encode_records(first, [body])
    return (
        encode_segment_header(ids)
        + encode_group_header(ids.segment, SEGMENT_HEADER_BYTES, first, 1, (record,))
        + record
    )


def _make(relays: Directory, name: str, active: bytes, seed: bytes | None) -> None:
    if not is_relay_name(name):
        raise ValueError(f"{name!r} is no relay's name")
    if relays.stat(name) is not None:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
    unfinished = f".{name}{NEW}"
    if relays.stat(unfinished) is not None:
        relays.remove_tree(unfinished)
    try:
        relays.make_directory(unfinished)
        with contextlib.closing(relays.directory(unfinished)) as relay:
            _fill(relay, active, seed)
        relays.replace(unfinished, name)
    except OSError:
        with contextlib.suppress(OSError):
            relays.remove_tree(unfinished)
        raise
    relays.sync()


def _fill(relay: Directory, active: bytes, seed: bytes | None) -> None:
    relay.make_directory(JOURNAL)
    with contextlib.closing(relay.directory(JOURNAL)) as journal:
        _write(journal, ACTIVE, active)
        journal.sync()
    if seed is not None:
        _write(relay, SEED, seed)
    relay.sync()


def _write(directory: Directory, name: str, content: bytes) -> None:
    with contextlib.closing(directory.open(name, "create")) as file:
        file.write((content,), 0)
        file.sync()


def remove_relay(relays: Directory, name: str, store: bytes) -> None:
    """Takes the relay `name` out of sight; it is gone for good when this returns. `delete_removed` frees its room.

    Nobody has it open. Raises FileNotFoundError where there is none, OSError.
    """
    removed = _removed_name(name, store)
    if relays.stat(removed) is not None:
        relays.remove_tree(removed)
    relays.replace(name, removed)
    relays.sync()


def delete_removed(relays: Directory, name: str, store: bytes) -> None:
    """Deletes what `remove_relay` took out of sight; a crash leaves the rest to `clear_leftovers`. Raises OSError."""
    relays.remove_tree(_removed_name(name, store))
    relays.sync()


def clear_leftovers(relays: Directory) -> list[str]:
    """Removes what making and removing relays left unfinished; at start, before any relay is opened. Gives the names.

    The names that stay are synced: an earlier process may have died before it did that. Raises OSError.
    """
    names = [entry.name for entry in relays.entries() if entry.kind == "directory" and _is_leftover(entry.name)]
    for name in names:
        relays.remove_tree(name)
    relays.sync()
    return names


def _removed_name(name: str, store: bytes) -> str:
    return f".{name}.{store.hex()}{_DELETED}"


def _is_leftover(name: str) -> bool:
    found = _LEFTOVER.fullmatch(name)
    return found is not None and is_relay_name(found[1])
