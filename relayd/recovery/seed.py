"""A seed: the state a restored relay began from (docs/reference/journal.md, "Offline tools").

Two encodings of one closed map: framed as a snapshot is, with MessagePack and 16-byte digests, or JSON with digests of
32 hex digits. The file is kept as it came: `relay.restored` names the digest of its bytes.
"""

from typing import Annotated, Final, NamedTuple

import msgspec

from relayd.journal.names import SEED
from relayd.journal.storage import Directory
from relayd.protocol.commands import CommandType, OutcomeWord, Reason, read_command, store_command, type_of
from relayd.protocol.cursor import ZERO_DIGEST, Cursor
from relayd.protocol.errors import RelaydError
from relayd.protocol.event import Buffer
from relayd.protocol.limits import (
    ORDINAL_MAX,
    PRODUCERS_REMEMBERED,
    SEQUENCE_MAX,
    STATE_BYTES_MAX,
    TERMINAL_IDS_REMEMBERED,
)
from relayd.protocol.names import is_command_id, is_identity
from relayd.recovery import snapshot
from relayd.recovery.checked_map import CheckedMapError, file_digest, frame_map, read_bounded, unframe_map
from relayd.relay.fold_commands import configure, take_up
from relayd.relay.ledger import Lane, Terminal
from relayd.relay.state import ProducerMark, RelayState
from relayd.relay.submitting import state_bytes

_QUEUED_TYPES: Final = ("task", "configure", "side_task")

Digest = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
HexDigest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]


class SeedError(ValueError):
    """A file that is no seed; the text says what is wrong and what belongs there."""


class SeedCommand(NamedTuple):
    """A queued command: `command` is one MessagePack value."""

    command_id: str
    ordinal: int
    command: msgspec.Raw


class SeedTerminal(NamedTuple):
    """A command id whose outcome is remembered."""

    command_id: str
    entry: "SeedEntry"


class SeedEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How a command ended; as relayd/relay/ledger.py, "Terminal"."""

    type: CommandType
    digest: Digest
    ordinal: Annotated[int, msgspec.Meta(ge=1)]
    state: OutcomeWord
    terminal: Annotated[int, msgspec.Meta(ge=1)]
    outcome: Digest
    reason: Reason | None = None


class Seed(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Everything a relay needs to go on after `frontier` without the events before it.

    `commands` are in the order of the queue; values of `config` are MessagePack.
    """

    frontier: Cursor
    commands: list[SeedCommand]
    config: dict[str, msgspec.Raw]
    terminal_ids: list[SeedTerminal]
    producers: dict[str, ProducerMark]
    floor: Cursor | None = None


class _JsonCursor(NamedTuple):
    ordinal: Annotated[int, msgspec.Meta(ge=0)]
    digest: HexDigest

    @property
    def binary(self) -> Cursor:
        return Cursor(self.ordinal, bytes.fromhex(self.digest))


class _JsonProducer(NamedTuple):
    sequence: int
    cursor: _JsonCursor


class _JsonEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    type: CommandType
    digest: HexDigest
    ordinal: Annotated[int, msgspec.Meta(ge=1)]
    state: OutcomeWord
    terminal: Annotated[int, msgspec.Meta(ge=1)]
    outcome: HexDigest
    reason: Reason | None = None

    @property
    def binary(self) -> SeedEntry:
        return SeedEntry(
            self.type,
            bytes.fromhex(self.digest),
            self.ordinal,
            self.state,
            self.terminal,
            bytes.fromhex(self.outcome),
            self.reason,
        )


class _JsonSeed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    frontier: _JsonCursor
    commands: list[tuple[str, int, msgspec.Raw]]
    config: dict[str, msgspec.Raw]
    terminal_ids: list[tuple[str, _JsonEntry]]
    producers: dict[str, _JsonProducer]
    floor: _JsonCursor | None = None


_decode_binary: Final = msgspec.msgpack.Decoder(Seed).decode
_decode_json: Final = msgspec.json.Decoder(_JsonSeed).decode


def encode_seed(seed: Seed) -> bytes:
    """The binary form."""
    return frame_map(snapshot.MAGIC, msgspec.msgpack.encode(seed))


def decode_seed(content: Buffer) -> Seed:
    """Reads either form. Raises SeedError."""
    try:
        seed = _read(content)
    except (CheckedMapError, msgspec.DecodeError) as error:
        raise SeedError(f"it is no seed: {error}") from error
    _check(seed)
    return seed


def _read(content: Buffer) -> Seed:
    if bytes(content[: len(snapshot.MAGIC)]) == snapshot.MAGIC:
        return _decode_binary(unframe_map(snapshot.MAGIC, content))
    said = _decode_json(content)
    return Seed(
        frontier=said.frontier.binary,
        commands=[SeedCommand(name, ordinal, _from_json(command)) for name, ordinal, command in said.commands],
        config={key: _from_json(value) for key, value in said.config.items()},
        terminal_ids=[SeedTerminal(name, entry.binary) for name, entry in said.terminal_ids],
        producers={name: ProducerMark(mark.sequence, mark.cursor.binary) for name, mark in said.producers.items()},
        floor=None if said.floor is None else said.floor.binary,
    )


def _from_json(value: msgspec.Raw) -> msgspec.Raw:
    return msgspec.Raw(msgspec.msgpack.encode(msgspec.json.decode(value)))


def _check(seed: Seed) -> None:
    """What the types do not say. Raises SeedError."""
    last = seed.frontier.ordinal
    _check_cursor("frontier", seed.frontier, ORDINAL_MAX - 1)
    if seed.floor is not None:
        _check_cursor("floor", seed.floor, last)
    _check_producers(seed)
    _check_commands(seed)
    _check_terminals(seed)
    size = state_bytes(seed_state(seed, bytes(16), bytes(32)))
    if size > STATE_BYTES_MAX:
        raise SeedError(f"its commands and settings take up to {size} bytes of state; {STATE_BYTES_MAX} are possible")


def _check_commands(seed: Seed) -> None:
    before = 0
    names: set[str] = set()
    for command in seed.commands:
        name = command.command_id
        if not is_command_id(name) or name in names:
            raise SeedError(f"`commands` has {name!r}, which is no command_id, or is there twice")
        if not before < command.ordinal <= seed.frontier.ordinal:
            raise SeedError(
                f"`commands` has ordinal {command.ordinal}; they are in order, up to the frontier's "
                f"{seed.frontier.ordinal}"
            )
        try:
            kind = type_of(read_command(command.command))
        except RelaydError as error:
            raise SeedError(f"`commands` has {name!r}, which cannot be read: {error}") from error
        if kind not in _QUEUED_TYPES:
            raise SeedError(f"`commands` has {name!r}, a {kind}; only {', '.join(_QUEUED_TYPES)} can be queued")
        before = command.ordinal
        names.add(name)
    for key in seed.config:
        if not key.strip():
            raise SeedError("`config` has a blank key")


def _check_terminals(seed: Seed) -> None:
    if len(seed.terminal_ids) > TERMINAL_IDS_REMEMBERED:
        raise SeedError(f"`terminal_ids` has {len(seed.terminal_ids)} ids; {TERMINAL_IDS_REMEMBERED} are remembered")
    names = {command.command_id for command in seed.commands}
    for terminal in seed.terminal_ids:
        name = terminal.command_id
        if not is_command_id(name) or name in names:
            raise SeedError(f"`terminal_ids` has {name!r}, which is no command_id, or is there twice")
        if max(terminal.entry.ordinal, terminal.entry.terminal) > seed.frontier.ordinal:
            raise SeedError(f"`terminal_ids` has {name!r} at an ordinal past the frontier")
        if terminal.entry.terminal <= terminal.entry.ordinal:
            raise SeedError(f"`terminal_ids` has {name!r}, which ended before it was accepted")
        names.add(name)


def _check_producers(seed: Seed) -> None:
    if len(seed.producers) > PRODUCERS_REMEMBERED:
        raise SeedError(f"`producers` has {len(seed.producers)} names; {PRODUCERS_REMEMBERED} are remembered")
    for name, mark in seed.producers.items():
        if not is_identity(name):
            raise SeedError(f"`producers` has {name!r}, which no producer can be called")
        if not 0 <= mark.sequence <= SEQUENCE_MAX:
            raise SeedError(f"`producers` has {name!r} at sequence {mark.sequence}; 0 to {SEQUENCE_MAX} are possible")
        _check_cursor(f"producers.{name}", mark.cursor, seed.frontier.ordinal)


def _check_cursor(field: str, cursor: Cursor, last: int) -> None:
    if cursor.digest is None:
        raise SeedError(f"`{field}` has no digest; a cursor here is [ordinal, digest]")
    if cursor.ordinal > last:
        raise SeedError(f"`{field}` has ordinal {cursor.ordinal}; it can be at most {last}")
    if (cursor.ordinal == 0) != (cursor.digest == ZERO_DIGEST):
        raise SeedError(f"`{field}` has ordinal {cursor.ordinal}; that is 0 if and only if the digest is zero")


def seed_state(seed: Seed, store: bytes, digest: bytes) -> RelayState:
    """The state of a relay of `store` before its `relay.restored`; `digest` is that of the seed's bytes."""
    return RelayState(
        store=store,
        frontier=seed.frontier,
        floor=seed.floor,
        seed=digest,
        producers=dict(seed.producers),
        lane=_lane(seed),
    )


def _lane(seed: Seed) -> Lane:
    lane = Lane()
    for command in seed.commands:
        take_up(lane, command.ordinal, command.command_id, store_command(read_command(command.command)))
    for terminal in seed.terminal_ids:
        entry = terminal.entry
        kept = Terminal(
            entry.type, entry.digest, entry.ordinal, entry.state, entry.terminal, entry.outcome, entry.reason
        )
        lane.remember(terminal.command_id, kept)
    for key, value in seed.config.items():
        configure(lane, key, value)
    return lane


class SeedFile(NamedTuple):
    """The seed beside a journal, and the digest of its bytes."""

    seed: Seed
    digest: bytes


def load_seed(relay: Directory) -> SeedFile | None:
    """The relay's seed; None where it has none. Raises SeedError, OSError."""
    content = read_bounded(relay, SEED)
    return None if content is None else SeedFile(decode_seed(content), file_digest(content))
