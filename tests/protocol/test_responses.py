"""Responses: what each says on the wire; a client passes over what it does not know."""

import msgspec
import pytest
from support.strict_msgpack import read

from relayd.protocol import messages
from relayd.protocol.cursor import Cursor
from relayd.protocol.errors import ErrorResponse, InternalError
from relayd.protocol.frame import LENGTH_BYTES, encode_frame
from relayd.protocol.kinds import RetentionBytes
from relayd.protocol.parse import parse_response

pack = msgspec.msgpack.encode
DIGEST = bytes(range(16))
CURSOR = [5, DIGEST]
LIMITS = {
    "frame_bytes": 1, "page_bytes": 2, "event_bytes": 3, "command_bytes": 4, "in_flight": 5, "in_flight_bytes": 6,
}  # fmt: skip
STATUS = {
    "relay": "r", "store": DIGEST, "execution": "idle", "execution_since": 1, "latest": CURSOR, "acknowledged": CURSOR,
    "retained": CURSOR, "evicted": CURSOR, "retention": {"bytes": 9}, "max_active": 1, "consumers": {"c": CURSOR},
    "readers": 0, "last_event_at": 2, "disk_bytes": 3, "journal_bytes": 4,
}  # fmt: skip
AT = Cursor(5, DIGEST)


def status() -> messages.RelayStatus:
    return messages.RelayStatus(
        relay="r",
        store=DIGEST,
        execution="idle",
        execution_since=1,
        latest=AT,
        acknowledged=AT,
        retained=AT,
        evicted=AT,
        retention=RetentionBytes(9),
        max_active=1,
        consumers={"c": AT},
        readers=0,
        last_event_at=2,
        disk_bytes=3,
        journal_bytes=4,
    )


def res(re: str, /, **fields) -> dict:
    return {"re": re, "id": 7, **fields}


WHOLE = {
    "welcome": (
        res("welcome", version=1, daemon="d", limits=LIMITS, attended=[["r", 3]]),
        messages.Welcome(7, 1, "d", messages.Limits(1, 2, 3, 4, 5, 6), [("r", 3)]),
    ),
    "relays": (
        res("relays", relays=[{"relay": "r", "open": True, "latest": 5, "execution": "idle", "disk_bytes": 9}]),
        messages.RelayList(7, [messages.RelayEntry("r", True, 5, "idle", 9)]),
    ),
    "a closed relay": (
        res("relays", relays=[{"relay": "r", "open": False}]),
        messages.RelayList(7, [messages.RelayEntry("r", False)]),
    ),
    "no relay": (res("relays", relays=[]), messages.RelayList(7, [])),
    "opened": (
        res("opened", relay="r", store=DIGEST, latest=CURSOR, created=False),
        messages.Opened(7, "r", DIGEST, AT, False),
    ),
    "done": (res("done"), messages.Done(7)),
    "recorded": (
        res("recorded", first=4, through=CURSOR, sequence=8),
        messages.Recorded(7, 4, AT, sequence=8),
    ),
    "a duplicate": (
        res("recorded", through=CURSOR, duplicate=True, sequence=8),
        messages.Recorded(7, None, AT, True, 8),
    ),
    "an unknown producer": (res("recorded"), messages.Recorded(7)),
    "page": (
        res("page", records=b"abc", count=1, through=CURSOR, latest=CURSOR, verified=True, gap={"first": 1, "last": 2}),
        messages.Page(7, b"abc", 1, AT, AT, True, messages.LostSpan(1, 2)),
    ),
    "an empty page": (
        res("page", records=b"", count=0, through=CURSOR, latest=[5, None], verified=False),
        messages.Page(7, b"", 0, AT, Cursor(5), False),
    ),
    "acknowledged": (res("acknowledged", through=CURSOR, retained=CURSOR), messages.Acknowledged(7, AT, AT)),
    "error": (
        res("error", code="x", message="m", retryable=True, detail={"a": 1}),
        ErrorResponse(7, "x", "m", True, msgspec.Raw(pack({"a": 1}))),
    ),
    "an error without detail": (
        res("error", code="x", message="m", retryable=False),
        ErrorResponse(7, "x", "m", False),
    ),
}


@pytest.mark.parametrize(("wire", "response"), WHOLE.values(), ids=WHOLE.keys())
def test_a_response_is_read_from_its_map(wire, response):
    assert parse_response(pack(wire)) == response
    assert type(parse_response(pack(wire))) is type(response)


@pytest.mark.parametrize(("wire", "response"), WHOLE.values(), ids=WHOLE.keys())
def test_a_response_is_the_map_that_the_page_of_the_protocol_shows(wire, response):
    assert read(bytes(encode_frame(response)[LENGTH_BYTES:])) == wire


def test_status_has_its_fields_beside_the_id():
    response = messages.StatusResponse(id=7, **msgspec.structs.asdict(status()))
    assert read(bytes(encode_frame(response)[LENGTH_BYTES:])) == res("status", **STATUS)
    assert parse_response(pack(res("status", **STATUS))) == response


def test_a_page_carries_status_as_a_map_of_its_own():
    wire = res("page", records=b"", count=0, through=CURSOR, latest=CURSOR, verified=True, status=STATUS)
    response = messages.Page(7, b"", 0, AT, AT, True, None, status())
    assert parse_response(pack(wire)) == response
    assert read(bytes(encode_frame(response)[LENGTH_BYTES:])) == wire


@pytest.mark.parametrize(("wire", "response"), WHOLE.values(), ids=WHOLE.keys())
def test_unknown_fields_of_a_response_are_passed_over(wire, response):
    later = {"later": {"deep": [1, {"x": b"y"}]}, **wire, "more": None}
    assert parse_response(pack(later)) == response


def test_unknown_fields_inside_a_response_are_passed_over():
    found = parse_response(
        pack(
            res(
                "relays",
                relays=[{"relay": "r", "open": True, "unread": {"finding": 2}, "outstanding": 1}],
            )
        )
    )
    assert found == messages.RelayList(7, [messages.RelayEntry("r", True)])
    assert parse_response(pack(res("status", **STATUS, active=[], queued=["command-1"], edits={"queued": 0})))
    limits = res("welcome", version=1, daemon="d", limits={**LIMITS, "later": 1})
    assert parse_response(pack(limits)).limits == messages.Limits(1, 2, 3, 4, 5, 6)


ABSENT = [
    ("recorded", "first"), ("recorded", "through"), ("recorded", "sequence"), ("a duplicate", "duplicate"),
    ("page", "gap"), ("welcome", "attended"),
]  # fmt: skip


@pytest.mark.parametrize(("response", "field"), ABSENT)
def test_nil_means_absent_in_a_response(response, field):
    wire = WHOLE[response][0]
    absent = {name: value for name, value in wire.items() if name != field}
    assert parse_response(pack({**wire, field: None})) == parse_response(pack(absent))


NONE = {
    "no map": pack([1]),
    "no MessagePack": b"\xc1",
    "cut short": b"\x82\xa2re\xa4done\xa2id",
    "nothing": b"",
    "bytes after the map": pack(res("done")) + b"\xc0",
    "an unknown type": pack(res("later")),
    "a request": pack({"op": "relays", "id": 7}),
    "no type": pack({"id": 7}),
    "no id": pack({"re": "done"}),
    "a field of a wrong type": pack(res("opened", relay=5, store=DIGEST, latest=CURSOR, created=True)),
    "a field missing": pack(res("page", records=b"")),
}


@pytest.mark.parametrize("frame", NONE.values(), ids=NONE.keys())
def test_what_is_no_response_is_an_internal_error_of_the_daemon(frame):
    with pytest.raises(InternalError, match="no response of this protocol"):
        parse_response(frame)
