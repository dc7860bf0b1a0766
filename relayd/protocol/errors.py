"""The one tree of errors that daemon, clients and command line share (docs/reference/errors.md).

Every error has a `code` for programs, a `message` for people (what was wrong, what is true, what to do), `retryable`
(whether sending the same again can help) and, for most codes, a `detail` struct. `to_wire` and `from_wire` are the only
way between an error and its `error` response.
"""

from typing import ClassVar, Final

import msgspec

from relayd.protocol.cursor import Cursor


class Detail(msgspec.Struct, frozen=True, omit_defaults=True):
    """Facts beside a message; a client passes over fields that it does not know."""


class FieldDetail(Detail, frozen=True, omit_defaults=True):
    """Which field of the request was wrong, and what belongs there."""

    field: str
    expected: str


class VersionsDetail(Detail, frozen=True, omit_defaults=True):
    """The protocol versions that the daemon speaks."""

    supported: list[int]


class NameDetail(Detail, frozen=True, omit_defaults=True):
    """What kind of thing was looked for or is there already, and its name; `differs`: its own settings."""

    what: str
    name: str
    differs: dict[str, msgspec.Raw] | None = None


class StateDetail(Detail, frozen=True, omit_defaults=True):
    """What the state is; `expected`: the sequence that a producer would have to send."""

    state: str | None = None
    expected: int | None = None


class PositionDetail(Detail, frozen=True, omit_defaults=True):
    """Where a reader asked for, and what there is."""

    reason: str
    requested: Cursor
    earliest: Cursor
    latest: Cursor
    lost: tuple[int, int] | None = None


class SizeDetail(Detail, frozen=True, omit_defaults=True):
    """A size over its bound, in bytes."""

    limit_bytes: int
    size_bytes: int


class BoundDetail(Detail, frozen=True, omit_defaults=True):
    """Which bound was met; docs/reference/settings.md says what each is."""

    bound: str


class UnavailableDetail(Detail, frozen=True, omit_defaults=True):
    """Why a relay did not open, where, and what to run."""

    reason: str
    hint: str
    file: str | None = None
    offset: int | None = None


class RelaydError(Exception):
    """The root of the tree; raised only as one of its subclasses."""

    code: ClassVar[str] = "internal"
    retryable: bool = False
    detail_type: ClassVar[type[Detail] | None] = None

    def __init__(self, message: str, detail: Detail | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail

    def __str__(self) -> str:
        return self.message


class InvalidRequestError(RelaydError):
    """Not a request that this version knows, or a field is wrong."""

    code = "invalid_request"
    detail_type = FieldDetail


class HelloRequiredError(RelaydError):
    """Something else than `hello` came first."""

    code = "hello_required"


class IncompatibleProtocolError(RelaydError):
    """No protocol version in common."""

    code = "incompatible_protocol"
    detail_type = VersionsDetail


class ForbiddenError(RelaydError):
    """An identity or op that this peer is not granted."""

    code = "forbidden"


class NotFoundError(RelaydError):
    """No such relay."""

    code = "not_found"
    detail_type = NameDetail


class AlreadyExistsError(RelaydError):
    """The name is taken, with other settings."""

    code = "already_exists"
    detail_type = NameDetail


class InvalidStateError(RelaydError):
    """Well formed, but the relay's state forbids it."""

    code = "invalid_state"
    detail_type = StateDetail


class ConflictError(RelaydError):
    """An id or key was used with other content."""

    code = "conflict"


class DesynchronizedError(RelaydError):
    """A reader's cursor is not served: `evicted`, `ahead`, `digest_mismatch` or `unreadable`."""

    code = "desynchronized"
    detail_type = PositionDetail


class TooLargeError(RelaydError):
    """Over a size bound."""

    code = "too_large"
    detail_type = SizeDetail


class OverloadedError(RelaydError):
    """A bound was met that time or draining lifts."""

    code = "overloaded"
    retryable = True
    detail_type = BoundDetail


class StorageFullError(RelaydError):
    """Not answered as done, there or not: the disk has no room."""

    code = "storage_full"
    retryable = True


class StorageFailedError(RelaydError):
    """Not answered as done, there or not: the disk failed."""

    code = "storage_failed"
    retryable = True


class UnavailableError(RelaydError):
    """The relay did not open; the others serve."""

    code = "unavailable"
    detail_type = UnavailableDetail


class RelayRemovedError(RelaydError):
    """The relay was deleted, or its directory is no longer where it was."""

    code = "relay_removed"


class ShuttingDownError(RelaydError):
    """The daemon stops."""

    code = "shutting_down"
    retryable = True


class WaitTimeoutError(RelaydError):
    """What was waited for did not come in time."""

    code = "timeout"
    retryable = True


class RequestCancelledError(RelaydError):
    """The client took the request back."""

    code = "cancelled"
    retryable = True


class InternalError(RelaydError):
    """A bug of relayd; its log has the traceback."""

    code = "internal"
    retryable = True


ERRORS: Final[dict[str, type[RelaydError]]] = {error.code: error for error in RelaydError.__subclasses__()}


class ErrorResponse(msgspec.Struct, tag_field="re", tag="error", omit_defaults=True, frozen=True):
    """An error as it travels."""

    id: int
    code: str
    message: str
    retryable: bool
    detail: msgspec.Raw = msgspec.Raw(b"\xc0")


_encode: Final = msgspec.msgpack.Encoder().encode


def to_wire(error: RelaydError, request: int) -> ErrorResponse:
    """The response that answers `request` with `error`."""
    detail = msgspec.Raw(b"\xc0" if error.detail is None else _encode(error.detail))
    return ErrorResponse(request, error.code, error.message, error.retryable, detail)


def from_wire(response: ErrorResponse) -> RelaydError:
    """The error that a response tells of. A code of a later version is an InternalError that names it.

    Whether sending again can help is what the response says.
    """
    kind = ERRORS.get(response.code)
    if kind is None:
        error = InternalError(f"{response.message} (code `{response.code}`, which this client does not know)")
    else:
        error = kind(response.message, _read_detail(kind.detail_type, response.detail))
    error.retryable = response.retryable
    return error


def _read_detail(detail_type: type[Detail] | None, detail: msgspec.Raw) -> Detail | None:
    """The detail, None where there is none or it is not that code's."""
    if detail_type is None or bytes(detail) == b"\xc0":
        return None
    try:
        return msgspec.msgpack.decode(detail, type=detail_type)
    except msgspec.DecodeError:
        return None
