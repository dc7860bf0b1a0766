"""Errors travel and come back as what they were; what a client does not know of one costs it nothing else."""

import msgspec
import pytest
from support.strict_msgpack import read

from relayd.protocol import errors
from relayd.protocol.cursor import Cursor
from relayd.protocol.errors import ErrorResponse, from_wire, to_wire
from relayd.protocol.frame import LENGTH_BYTES, encode_frame
from relayd.protocol.parse import parse_response

pack = msgspec.msgpack.encode
DIGEST = bytes(range(16))
AT = Cursor(5, DIGEST)
WIRE_AT = [5, DIGEST]

# code, class, retryable, a detail, and that detail as it travels
CODES = [
    (
        "invalid_request",
        errors.InvalidRequestError,
        False,
        errors.FieldDetail("relay", "a name"),
        {"field": "relay", "expected": "a name"},
    ),
    ("hello_required", errors.HelloRequiredError, False, None, None),
    (
        "incompatible_protocol",
        errors.IncompatibleProtocolError,
        False,
        errors.VersionsDetail([1]),
        {"supported": [1]},
    ),
    ("forbidden", errors.ForbiddenError, False, None, None),
    (
        "not_found",
        errors.NotFoundError,
        False,
        errors.NameDetail("relay", "r"),
        {"what": "relay", "name": "r"},
    ),
    (
        "already_exists",
        errors.AlreadyExistsError,
        False,
        errors.NameDetail("relay", "r", {"max_active": msgspec.Raw(b"\x02")}),
        {"what": "relay", "name": "r", "differs": {"max_active": 2}},
    ),
    ("invalid_state", errors.InvalidStateError, False, errors.StateDetail(expected=5), {"expected": 5}),
    ("conflict", errors.ConflictError, False, None, None),
    (
        "desynchronized",
        errors.DesynchronizedError,
        False,
        errors.PositionDetail("evicted", Cursor(1), AT, AT, (2, 5)),
        {"reason": "evicted", "requested": [1, None], "earliest": WIRE_AT, "latest": WIRE_AT, "lost": [2, 5]},
    ),
    (
        "too_large",
        errors.TooLargeError,
        False,
        errors.SizeDetail(1, 2),
        {"limit_bytes": 1, "size_bytes": 2},
    ),
    ("overloaded", errors.OverloadedError, True, errors.BoundDetail("waiting"), {"bound": "waiting"}),
    ("storage_full", errors.StorageFullError, True, None, None),
    ("storage_failed", errors.StorageFailedError, True, None, None),
    (
        "unavailable",
        errors.UnavailableError,
        False,
        errors.UnavailableDetail("journal_corrupt", "relayd verify", "active.log", 48),
        {"reason": "journal_corrupt", "hint": "relayd verify", "file": "active.log", "offset": 48},
    ),
    ("relay_removed", errors.RelayRemovedError, False, None, None),
    ("shutting_down", errors.ShuttingDownError, True, None, None),
    ("timeout", errors.WaitTimeoutError, True, None, None),
    ("cancelled", errors.RequestCancelledError, True, None, None),
    ("internal", errors.InternalError, True, None, None),
]
IDS = [row[0] for row in CODES]


def test_every_code_of_the_table_has_one_class_and_no_class_has_another():
    assert {error.code: error for error in errors.ERRORS.values()} == {row[0]: row[1] for row in CODES}
    assert list(errors.ERRORS) == IDS


def sent(response) -> dict:
    return read(bytes(encode_frame(response)[LENGTH_BYTES:]))


@pytest.mark.parametrize(("code", "kind", "retryable", "detail", "wire"), CODES, ids=IDS)
def test_an_error_travels_as_its_table_says(code, kind, retryable, detail, wire):
    said = sent(to_wire(kind("what was wrong", detail), 7))
    expected = {"re": "error", "id": 7, "code": code, "message": "what was wrong", "retryable": retryable}
    assert {name: value for name, value in said.items() if value is not None} == (
        expected if wire is None else {**expected, "detail": wire}
    )


@pytest.mark.parametrize(("code", "kind", "retryable", "detail", "wire"), CODES, ids=IDS)
def test_an_error_comes_back_as_what_it_was(code, kind, retryable, detail, wire):
    frame = bytes(encode_frame(to_wire(kind("what was wrong", detail), 7))[LENGTH_BYTES:])
    error = from_wire(parse_response(frame))
    assert type(error) is kind
    assert (error.code, error.message, str(error), error.retryable) == (
        code,
        "what was wrong",
        error.message,
        retryable,
    )
    assert error.detail == detail


def wire_error(code: str, detail: object, *, retryable: bool = False) -> errors.RelaydError:
    response = parse_response(
        pack({"re": "error", "id": 7, "code": code, "message": "m", "retryable": retryable, "detail": detail})
    )
    assert isinstance(response, ErrorResponse)
    return from_wire(response)


DETAILED = [row for row in CODES if row[3] is not None]


@pytest.mark.parametrize(("code", "kind", "retryable", "detail", "wire"), DETAILED, ids=[row[0] for row in DETAILED])
def test_unknown_fields_of_a_detail_are_passed_over(code, kind, retryable, detail, wire):
    error = wire_error(code, {"later": [{"x": 1}], **wire})
    assert (type(error), error.detail) == (kind, detail)


@pytest.mark.parametrize(("code", "kind"), [row[:2] for row in CODES], ids=IDS)
@pytest.mark.parametrize("odd", [{}, [], 5, "text", {"field": 5, "reason": 5, "limit_bytes": "x"}, {"what": None}])
def test_a_detail_that_is_not_its_codes_is_passed_over_and_the_error_stands(code, kind, odd):
    error = wire_error(code, odd)
    assert type(error) is kind
    assert error.detail is None or isinstance(error.detail, kind.detail_type)


@pytest.mark.parametrize("code", ["hello_required", "conflict", "timeout"])
def test_a_code_without_details_has_none_even_where_one_is_sent(code):
    assert wire_error(code, {"field": "x", "expected": "y"}).detail is None


@pytest.mark.parametrize("retryable", [True, False])
def test_a_code_of_a_later_version_is_named_and_as_retryable_as_it_says(retryable):
    error = wire_error("quota_exceeded", {"later": 1}, retryable=retryable)
    assert type(error) is errors.InternalError
    assert error.message == "m (code `quota_exceeded`, which this client does not know)"
    assert (error.detail, error.retryable) == (None, retryable)


def test_what_one_response_says_of_sending_again_changes_no_other_error():
    assert not wire_error("later", None, retryable=False).retryable
    assert errors.InternalError("x").retryable
    assert wire_error("internal", None, retryable=True).retryable
