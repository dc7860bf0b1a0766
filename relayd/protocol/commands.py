"""Commands as they travel, and the one form in which two are compared (docs/reference/protocol.md, "Commands").

A command is a map with its `type`. `null` means absent, unknown fields are refused. `payload` and `value` are the
application's: any MessagePack value with a JSON form.
"""

import hashlib
from collections.abc import Callable
from typing import Final, Literal, cast

import msgspec

from relayd.protocol.cursor import Cursor
from relayd.protocol.errors import FieldDetail, InvalidRequestError, SizeDetail, TooLargeError
from relayd.protocol.event import NIL
from relayd.protocol.limits import COMMAND_BYTES_MAX
from relayd.protocol.names import is_command_id
from relayd.protocol.value import Value

CommandType = Literal[
    "task",
    "configure",
    "side_task",
    "cancel",
    "remove_queued",
    "clear_queue",
    "begin_checkpoint",
    "complete_checkpoint",
    "release_checkpoint",
    "advance_floor",
    "close",
    "notice",
]
OnLoss = Literal["interrupt", "requeue"]
OutcomeWord = Literal["completed", "rejected", "interrupted"]
CommandState = Literal["queued", "pending", "in_flight", "completed", "rejected", "interrupted"]
Reason = Literal["by_worker", "cancelled", "removed", "lease_expired", "owner_lost", "expired", "relay_closed", "lost"]


class Command(msgspec.Struct, tag_field="type", forbid_unknown_fields=True, omit_defaults=True, frozen=True):
    """What a controller wants done."""


class Task(Command, tag="task", frozen=True):
    """Work for a worker; `on_loss` says what becomes of it when its worker is lost."""

    payload: msgspec.Raw = NIL
    on_loss: OnLoss = "interrupt"


class Configure(Command, tag="configure", frozen=True):
    """A setting of the relay, in order with tasks."""

    key: str
    value: msgspec.Raw


class SideTask(Command, tag="side_task", frozen=True):
    """Work beside the queue."""

    payload: msgspec.Raw = NIL


class Cancel(Command, tag="cancel", frozen=True):
    """Ends another command."""

    target: str


class RemoveQueued(Command, tag="remove_queued", frozen=True):
    """Takes one command out of the queue."""

    command_id: str


class ClearQueue(Command, tag="clear_queue", frozen=True):
    """Takes everything out of the queue."""


class BeginCheckpoint(Command, tag="begin_checkpoint", frozen=True):
    """Asks for a cut: what was started ends, and nothing new starts."""


class CompleteCheckpoint(Command, tag="complete_checkpoint", frozen=True):
    """The floor becomes the cut, and work goes on."""

    barrier: str


class ReleaseCheckpoint(Command, tag="release_checkpoint", frozen=True):
    """Work goes on; the floor stays."""

    barrier: str


class AdvanceFloor(Command, tag="advance_floor", frozen=True):
    """Moves the floor up."""

    cursor: Cursor


class Close(Command, tag="close", frozen=True):
    """Seals the relay at exactly `cut`."""

    barrier: str
    cut: Cursor


class Notice(Command, tag="notice", frozen=True):
    """A line in the history."""

    text: str


AnyCommand = (
    Task
    | Configure
    | SideTask
    | Cancel
    | RemoveQueued
    | ClearQueue
    | BeginCheckpoint
    | CompleteCheckpoint
    | ReleaseCheckpoint
    | AdvanceFloor
    | Close
    | Notice
)

_decode_command: Final = msgspec.msgpack.Decoder(AnyCommand).decode
_decode_fields: Final = msgspec.msgpack.Decoder(dict[str, msgspec.Raw]).decode
_encode: Final = msgspec.msgpack.Encoder().encode
_decode_value: Final = cast("Callable[[msgspec.Raw], Value]", msgspec.msgpack.Decoder().decode)
_encode_canonical: Final = msgspec.msgpack.Encoder(order="deterministic").encode
_NIL_BYTE: Final = b"\xc0"
_DIGEST_BYTES: Final = 16
_ID_EXPECTED: Final = "8 to 128 of A-Z a-z 0-9 _ -"


def type_of(command: AnyCommand) -> CommandType:
    """The word in its field `type`."""
    return cast("CommandType", command.__struct_config__.tag)


def read_command(encoded: msgspec.Raw) -> AnyCommand:
    """The command that a request carries. Raises InvalidRequestError, TooLargeError."""
    size = len(bytes(encoded))
    if size > COMMAND_BYTES_MAX:
        message = f"a command has {size} bytes; one may have {COMMAND_BYTES_MAX}: keep large payloads elsewhere"
        raise TooLargeError(message, SizeDetail(COMMAND_BYTES_MAX, size))
    try:
        fields = {name: value for name, value in _decode_fields(encoded).items() if bytes(value) != _NIL_BYTE}
        command = _decode_command(_encode(fields))
    except msgspec.DecodeError as error:
        raise _wrong("command", "a map with a known `type` and that type's fields", str(error)) from None
    _check(command)
    return command


def read_stored(encoded: msgspec.Raw) -> AnyCommand:
    """The command that relayd stored. Raises msgspec.DecodeError."""
    return _decode_command(encoded)


def store_command(command: AnyCommand) -> msgspec.Raw:
    """A command as events keep it: defaults left out."""
    return msgspec.Raw(_encode(command))


def check_command_id(field: str, command_id: str) -> None:
    """Raises InvalidRequestError where it is none."""
    if not is_command_id(command_id):
        raise _wrong(field, _ID_EXPECTED, f"`{command_id[:130]}` is no command id")


def _check(command: AnyCommand) -> None:
    """What the types do not say."""
    match command:
        case Configure():
            _check_configure(command)
        case Notice():
            if not command.text.strip():
                raise _wrong("command.text", "a text that is not blank", "a notice has a blank text")
        case Cancel():
            check_command_id("command.target", command.target)
        case RemoveQueued():
            check_command_id("command.command_id", command.command_id)
        case CompleteCheckpoint() | ReleaseCheckpoint():
            check_command_id("command.barrier", command.barrier)
        case Close():
            check_command_id("command.barrier", command.barrier)
            _check_digest("command.cut", command.cut)
        case AdvanceFloor():
            _check_digest("command.cursor", command.cursor)
        case _:
            pass


def _check_configure(command: Configure) -> None:
    if not command.key.strip():
        raise _wrong("command.key", "a word that is not blank", "a configure has a blank key")
    value = _decode_value(command.value)
    if value is None or (isinstance(value, str) and not value.strip()):
        raise _wrong("command.value", "a value that is not blank", "a configure has a blank value")


def _check_digest(field: str, cursor: Cursor) -> None:
    if cursor.digest is None:
        raise _wrong(field, "a cursor with its digest", f"cursor {cursor.ordinal} comes without a digest")


def _wrong(field: str, expected: str, what: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"`submit` is not possible so: {what}; `{field}` takes {expected}", FieldDetail(field, expected)
    )


# Comparing


def command_digest(command: AnyCommand) -> bytes:
    """16 bytes that two commands share where they say the same."""
    fields = {name: _decode_value(value) for name, value in _decode_fields(store_command(command)).items()}
    return _digest(fields)


def outcome_digest(outcome: OutcomeWord, message: str | None, result: msgspec.Raw) -> bytes:
    """16 bytes that two outcomes share where they say the same."""
    said: dict[str, Value] = {"outcome": outcome}
    if message is not None:
        said["message"] = message
    if bytes(result) != _NIL_BYTE:
        said["result"] = _decode_value(result)
    return _digest(said)


def _digest(fields: dict[str, Value]) -> bytes:
    return hashlib.blake2b(_encode_canonical(fields), digest_size=_DIGEST_BYTES).digest()
