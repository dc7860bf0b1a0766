"""Requests: what each operation says on the wire, and what is refused with which field."""

import msgspec
import pytest

from relayd.protocol import messages
from relayd.protocol.cursor import Cursor
from relayd.protocol.frame import LENGTH_BYTES, encode_frame
from relayd.protocol.kinds import RetentionBytes
from relayd.protocol.messages import ConsumerPosition, NewEvent
from relayd.protocol.parse import BadRequestError, parse_request

pack = msgspec.msgpack.encode
DIGEST = bytes(range(16))
NIL = msgspec.Raw(b"\xc0")


def raw(value) -> msgspec.Raw:
    return msgspec.Raw(pack(value))


def req(op: str, /, **fields) -> dict:
    return {"op": op, "id": 7, **fields}


WHOLE = {
    "hello": (
        req("hello", versions=[1], client="c", asker="a", author="b", worker="w"),
        messages.Hello(7, [1], "c", "a", "b", "w"),
    ),
    "hello, least": (req("hello", versions=[], client="c"), messages.Hello(7, [], "c")),
    "relays": (req("relays"), messages.Relays(7)),
    "open": (
        req("open", relay="r", create=True, retention="acknowledged", max_active=2),
        messages.Open(7, "r", True, "acknowledged", 2),
    ),
    "open, bounded": (
        req("open", relay="r", retention={"bytes": 5}),
        messages.Open(7, "r", False, RetentionBytes(5)),
    ),
    "open, least": (req("open", relay="0.-_z"), messages.Open(7, "0.-_z")),
    "delete_relay": (req("delete_relay", relay="r", store=DIGEST), messages.DeleteRelay(7, "r", DIGEST)),
    "status": (req("status", relay="r"), messages.Status(7, "r")),
    "record": (
        req(
            "record",
            relay="r",
            events=[["x", {"a": 1}, "command-1"], ["y", 5], ["z"], ["x", None, "command-1"]],
            producer="p",
            sequence=2**63,
            oversize="clamp",
        ),
        messages.Record(
            7,
            "r",
            [
                NewEvent("x", raw({"a": 1}), "command-1"),
                NewEvent("y", raw(5)),
                NewEvent("z"),
                NewEvent("x", NIL, "command-1"),
            ],
            "p",
            2**63,
            "clamp",
        ),
    ),
    "record, least": (req("record", relay="r"), messages.Record(7, "r")),
    "attach": (
        req("attach", relay="r", after=[5, DIGEST], wait_ms=60_000, max_bytes=4_194_304, status=True),
        messages.Attach(7, "r", Cursor(5, DIGEST), 60_000, 4_194_304, True),
    ),
    "attach without a digest": (req("attach", relay="r", after=[5, None]), messages.Attach(7, "r", Cursor(5))),
    "attach earliest": (req("attach", relay="r", after="earliest"), messages.Attach(7, "r", "earliest")),
    "attach latest": (req("attach", relay="r", after="latest"), messages.Attach(7, "r", "latest")),
    "attach of a consumer": (
        req("attach", relay="r", after={"consumer": "c"}),
        messages.Attach(7, "r", ConsumerPosition("c")),
    ),
    "acknowledge": (
        req("acknowledge", relay="r", through=[5, DIGEST], consumer="c"),
        messages.Acknowledge(7, "r", Cursor(5, DIGEST), "c"),
    ),
    "acknowledge, least": (
        req("acknowledge", relay="r", through=[5, DIGEST]),
        messages.Acknowledge(7, "r", Cursor(5, DIGEST), "controller"),
    ),
    "await_acknowledged": (
        req("await_acknowledged", relay="r", consumer="c", through=[5, None], wait_ms=0),
        messages.AwaitAcknowledged(7, "r", "c", Cursor(5), 0),
    ),
    "forget_consumer": (req("forget_consumer", relay="r", consumer="c"), messages.ForgetConsumer(7, "r", "c")),
    "cancel_request": (req("cancel_request", request=2**32 - 1), messages.CancelRequest(7, 2**32 - 1)),
    "leave": (req("leave"), messages.Leave(7)),
}


@pytest.mark.parametrize(("wire", "request_"), WHOLE.values(), ids=WHOLE.keys())
def test_a_request_is_read_from_its_map(wire, request_):
    assert parse_request(pack(wire)) == request_
    assert type(parse_request(pack(wire))) is type(request_)


@pytest.mark.parametrize(("wire", "request_"), WHOLE.values(), ids=WHOLE.keys())
def test_the_order_of_fields_does_not_matter(wire, request_):
    assert parse_request(pack(dict(reversed(wire.items())))) == request_


@pytest.mark.parametrize("request_", [request for _, request in WHOLE.values()], ids=WHOLE.keys())
def test_what_a_client_frames_the_daemon_reads(request_):
    assert parse_request(bytes(encode_frame(request_)[LENGTH_BYTES:])) == request_


def without(wire: dict, field: str) -> dict:
    return {name: value for name, value in wire.items() if name != field}


OPTIONAL = {
    "asker", "author", "worker", "create", "retention", "max_active", "events", "producer", "sequence", "oversize",
    "wait_ms", "max_bytes", "status",
}  # fmt: skip
FIELDS = [
    (op, field) for op, (wire, _) in WHOLE.items() if "," not in op for field in wire if field not in ("op", "id")
]


@pytest.mark.parametrize(("op", "field"), [at for at in FIELDS if at[1] in OPTIONAL and at[0] != "await_acknowledged"])
def test_nil_means_absent_in_every_optional_field(op, field):
    wire = WHOLE[op][0]
    assert parse_request(pack({**wire, field: None})) == parse_request(pack(without(wire, field)))


def test_nil_in_all_optional_fields_at_once_leaves_the_events_as_their_bytes():
    odd = b"\x82\xa1f\xca\x3f\xc0\x00\x00\xa1n\xcd\x00\x01"
    fields = {"op": "record", "id": 7, "relay": "r", "events": [["x", msgspec.Raw(odd)]]}
    fields |= dict.fromkeys(("producer", "sequence", "oversize"))
    found = parse_request(pack(fields))
    assert bytes(found.events[0].data) == odd
    assert (found.producer, found.sequence, found.oversize) == (None, None, "refuse")


def refusal_of(frame: bytes) -> tuple[int, str, str]:
    with pytest.raises(BadRequestError) as bad:
        parse_request(frame)
    error = bad.value.error
    assert (error.code, error.retryable) == ("invalid_request", False)
    assert error.message
    return bad.value.request, error.detail.field, error.detail.expected


REQUIRED = [
    (op, field)
    for op, field in FIELDS
    if (field not in OPTIONAL and (op, field) != ("acknowledge", "consumer")) or op == "await_acknowledged"
]


@pytest.mark.parametrize(("op", "field"), REQUIRED)
@pytest.mark.parametrize("form", ["left out", "nil"])
def test_a_required_field_that_is_missing_is_named(op, field, form):
    wire = WHOLE[op][0]
    sent = without(wire, field) if form == "left out" else {**wire, field: None}
    assert refusal_of(pack(sent)) == (7, field, "this field")


@pytest.mark.parametrize("op", [op for op in WHOLE if "," not in op])
@pytest.mark.parametrize("field", ["unknown", "re", "ID", "relay ", ""])
def test_an_unknown_field_is_refused_and_named(op, field):
    assert refusal_of(pack({**WHOLE[op][0], field: 1})) == (7, field, "no such field")


def test_an_unknown_field_inside_a_position_is_refused():
    wire = req("attach", relay="r", after={"consumer": "c", "more": 1})
    assert refusal_of(pack(wire)) == (7, "after.more", "no such field")


def test_an_unknown_field_inside_a_retention_is_refused():
    wire = req("open", relay="r", retention={"bytes": 1, "files": 2})
    assert refusal_of(pack(wire)) == (7, "retention.files", "no such field")


RELAY = "1 to 64 of a-z 0-9 . _ -, beginning with a letter or digit"
RETENTION = "`checkpointed`, `acknowledged` or {bytes: n}"
AFTER = "a cursor, `earliest`, `latest` or {consumer: name}"
OVERSIZE = "`refuse` or `clamp`"
EVENT = {"relay": "r"}

WRONG = [
    (req("hello", versions=1, client="c"), "versions", "`array`"),
    (req("hello", versions=["1"], client="c"), "versions[0]", "`int`"),
    (req("hello", versions=[1], client=b"c"), "client", "`str`"),
    (req("hello", versions=[1], client=""), "client", "`str` of length >= 1"),
    (req("hello", versions=[1], client="c" * 129), "client", "`str` of length <= 128"),
    (req("hello", versions=[1], client="c", asker=5), "asker", "`str | null`"),
    (req("open", relay=5), "relay", RELAY),
    (req("open", relay="r", create=1), "create", "`bool`"),
    (req("open", relay="r", create="true"), "create", "`bool`"),
    (req("open", relay="r", max_active=0), "max_active", "`int` >= 1"),
    (req("open", relay="r", max_active=1.0), "max_active", "`int | null`"),
    (req("open", relay="r", retention="forever"), "retention", RETENTION),
    (req("open", relay="r", retention="acknowledged\n"), "retention", RETENTION),
    (req("open", relay="r", retention=" checkpointed"), "retention", RETENTION),
    (req("open", relay="r", retention=5), "retention", RETENTION),
    (req("open", relay="r", retention={"bytes": 0}), "retention.bytes", "`int` >= 1"),
    (req("open", relay="r", retention={}), "retention.bytes", "this field"),
    (req("delete_relay", relay="r", store=b"short"), "store", "`bytes` of length >= 16"),
    (req("delete_relay", relay="r", store=bytes(17)), "store", "`bytes` of length <= 16"),
    (req("delete_relay", relay="r", store="0" * 16), "store", "`bytes`"),
    (req("record", relay="r", events={}), "events", "`array`"),
    (req("record", relay="r", events=["x"]), "events[0]", "`array`"),
    (req("record", relay="r", events=[["x"], []]), "events[1]", "`array` of at least length 1"),
    (req("record", relay="r", events=[["x", 1, None, 1]]), "events[0]", "`array` of at most length 3"),
    (req("record", relay="r", events=[[5]]), "events[0][0]", "`str`"),
    (req("record", relay="r", events=[["x", 1], ["x", 1, 5]]), "events[1][2]", "`str | null`"),
    (req("record", relay="r", producer=5), "producer", "`str | null`"),
    (req("record", relay="r", sequence="1"), "sequence", "`int | null`"),
    (req("record", relay="r", sequence=1.0), "sequence", "`int | null`"),
    (req("record", relay="r", oversize="shrink"), "oversize", OVERSIZE),
    (req("record", relay="r", oversize=1), "oversize", OVERSIZE),
    (req("attach", relay="r", after="soon"), "after", AFTER),
    (req("attach", relay="r", after="5"), "after", AFTER),
    (req("attach", relay="r", after=5), "after", AFTER),
    (req("attach", relay="r", after=[]), "after", AFTER),
    (req("attach", relay="r", after=[1, None, 2]), "after", AFTER),
    (req("attach", relay="r", after=[-1, None]), "after[0]", "`int` >= 0"),
    (req("attach", relay="r", after=["1", None]), "after[0]", "`int`"),
    (req("attach", relay="r", after=[1, DIGEST[:15]]), "after[1]", "`bytes` of length >= 16"),
    (req("attach", relay="r", after=[1, DIGEST.hex()]), "after[1]", "`bytes | null`"),
    (req("attach", relay="r", after={"consumer": ""}), "after.consumer", "`str` of length >= 1"),
    (req("attach", relay="r", after="latest", wait_ms=60_001), "wait_ms", "`int` <= 60000"),
    (req("attach", relay="r", after="latest", wait_ms=-1), "wait_ms", "`int` >= 0"),
    (req("attach", relay="r", after="latest", max_bytes=0), "max_bytes", "`int` >= 1"),
    (req("attach", relay="r", after="latest", max_bytes=4_194_305), "max_bytes", "`int` <= 4194304"),
    (req("attach", relay="r", after="latest", status=0), "status", "`bool`"),
    (req("acknowledge", relay="r", through="earliest"), "through", "`array`"),
    (req("await_acknowledged", relay="r", consumer="c", through=[1, None], wait_ms="0"), "wait_ms", "`int`"),
    (req("cancel_request", request=0), "request", "`int` >= 1"),
    (req("cancel_request", request=2**32), "request", "`int` <= 4294967295"),
]


@pytest.mark.parametrize(("wire", "field", "expected"), WRONG, ids=lambda at: str(at)[:60])
def test_a_field_of_a_wrong_type_is_named_with_what_belongs_there(wire, field, expected):
    assert refusal_of(pack(wire)) == (7, field, expected)


BAD_NAMES = ["", "A", ".a", "-a", "_a", "a/b", "..", "a b", "a\n", "ä", "a" * 65, "a\x00", "../a"]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_relay_is_named_by_1_to_64_characters_of_the_grammar(name):
    assert refusal_of(pack(req("status", relay=name))) == (7, "relay", RELAY)


@pytest.mark.parametrize("name", ["a", "0", "a" * 64, "a.b_c-d", "a..", "0-"])
def test_a_relay_name_of_the_grammar_is_taken(name):
    assert parse_request(pack(req("status", relay=name))).relay == name


UNPRINTABLE = [
    " ",
    "   ",
    "\u00a0",
    "a\n",
    "\ta",
    "a\x00b",
    "a\x7f",
    "\u200b",
    "a\u2028b",
    "\ufeffa",
    "\ue000",
    "\u3000",
]
IDENTITIES = [
    (req("hello", versions=[1], client="c"), "client"),
    (req("hello", versions=[1], client="c"), "asker"),
    (req("hello", versions=[1], client="c"), "author"),
    (req("hello", versions=[1], client="c"), "worker"),
    (req("record", relay="r"), "producer"),
    (req("acknowledge", relay="r", through=[1, DIGEST]), "consumer"),
    (req("await_acknowledged", relay="r", through=[1, None], wait_ms=0), "consumer"),
    (req("forget_consumer", relay="r"), "consumer"),
    (req("attach", relay="r"), "after.consumer"),
]


def with_identity(wire: dict, field: str, name: str) -> bytes:
    return pack({**wire, "after": {"consumer": name}} if field == "after.consumer" else {**wire, field: name})


@pytest.mark.parametrize("name", UNPRINTABLE, ids=ascii)
@pytest.mark.parametrize(("wire", "field"), IDENTITIES, ids=lambda at: at["op"] if isinstance(at, dict) else at)
def test_an_identity_is_printable_and_not_blank(wire, field, name):
    expected = "1 to 128 printable characters, not blank"
    assert refusal_of(with_identity(wire, field, name)) == (7, field, expected)


@pytest.mark.parametrize("name", ["a" * 129, "漢" * 129, ""])
@pytest.mark.parametrize(("wire", "field"), IDENTITIES, ids=lambda at: at["op"] if isinstance(at, dict) else at)
def test_an_identity_has_1_to_128_characters(wire, field, name):
    assert refusal_of(with_identity(wire, field, name))[:2] == (7, field)


@pytest.mark.parametrize("name", ["a", "a b", "漢" * 128, "ci/build #7", "🙂", "é"])
@pytest.mark.parametrize(("wire", "field"), IDENTITIES, ids=lambda at: at["op"] if isinstance(at, dict) else at)
def test_an_identity_in_any_script_is_taken(wire, field, name):
    parse_request(with_identity(wire, field, name))


NO_REQUEST = {
    "nil": pack(None),
    "an array": pack(["relays", 7]),
    "an integer": pack(7),
    "a string": pack("relays"),
    "an empty map": pack({}),
}


@pytest.mark.parametrize("frame", NO_REQUEST.values(), ids=NO_REQUEST.keys())
def test_a_frame_that_is_no_map_with_op_and_id_is_refused_under_id_0(frame):
    assert refusal_of(frame)[0] == 0


OPERATIONS = {
    "acknowledge", "attach", "await_acknowledged", "cancel_request", "delete_relay", "forget_consumer", "hello",
    "leave", "open", "record", "relays", "status",
}  # fmt: skip


@pytest.mark.parametrize("op", ["nope", "", "Relays", "relays ", 5, None, b"relays", ["relays"], "welcome"])
def test_an_unknown_operation_is_refused_with_those_there_are(op):
    request, field, expected = refusal_of(pack({"op": op, "id": 7}))
    assert (request, field) == (7, "op")
    assert set(expected.removeprefix("one of ").split(", ")) >= OPERATIONS


def test_a_missing_operation_is_refused_under_its_id():
    assert refusal_of(pack({"id": 7}))[:2] == (7, "op")


BAD_IDS = [0, -1, 2**32, 2**64 - 1, 1.0, True, "7", b"7", None, [7], {"id": 7}]


@pytest.mark.parametrize("value", BAD_IDS, ids=ascii)
def test_an_id_that_is_none_is_refused_under_id_0(value):
    request, field, _ = refusal_of(pack({"op": "relays", "id": value}))
    assert (request, field) == (0, "id")


def test_a_missing_id_is_refused_under_id_0():
    assert refusal_of(pack({"op": "relays"})) == (0, "id", "this field")


def test_the_greatest_id_is_taken():
    assert parse_request(pack({"op": "relays", "id": 2**32 - 1})).id == 2**32 - 1


READABLE = {
    "a byte after the map": (b"\x82\xa2op\xa6relays\xa2id\x07\xc0", 7),
    "another field no UTF-8": (b"\x83\xa2op\xa6relays\xa2id\x07\xa1\xff\x01", 7),
    "a key that is no string, before the id": (b"\x82\x01\x02\xa2id\x07", 7),
    "a key twice, after the id": (b"\x83\xa2id\x07\xa1a\x01\xa1a\x02", 7),
    "an extension, before the id": (b"\x82\xa1x\xc7\x03\x05id\x09\xa2id\x07", 7),
    "a fixext, before the id": (b"\x82\xa1x\xd6\x05abcd\xa2id\x07", 7),
    "a timestamp, before the id": (b"\x82\xa1x\xd7\xff" + bytes(8) + b"\xa2id\x07", 7),
    "0xc1 after the id": (b"\x82\xa2id\x07\xa1x\xc1", 7),
    "0xc1 before the id": (b"\x82\xa1x\xc1\xa2id\x07", 0),
    "cut short after the id": (b"\x83\xa2id\x07\xa1x", 7),
    "cut short inside the id": (b"\x82\xa2id\xcd\x01", 0),
    "an id of 16 bits": (b"\x82\xa2id\xcd\x01\x00\xa1x\xc1", 256),
    "an id of 32 bits, signed": (b"\x82\xa2id\xd2\x00\x00\x01\x00\xa1x\xc1", 256),
    "an id of 64 bits": (b"\x82\xa2id\xcf" + bytes(4) + b"\xff\xff\xff\xff\xa1x\xc1", 2**32 - 1),
    "an id too great": (b"\x82\xa2id\xcf\x00\x00\x00\x01\x00\x00\x00\x00\xa1x\xc1", 0),
    "a negative id": (b"\x82\xa2id\xff\xa1x\xc1", 0),
    "an id that is a float": (b"\x82\xa2id\xca\x3f\x80\x00\x00\xa1x\xc1", 0),
    "an id that is a string": (b"\x82\xa2id\xa17\xa1x\xc1", 0),
    "an id that is a map": (b"\x82\xa2id\x81\xa2id\x07\xa1x\xc1", 0),
    "the key as str8": (b"\x82\xd9\x02id\x07\xa1x\xc1", 7),
    "the key as a bin": (b"\x82\xc4\x02id\x07\xa1x\xc1", 0),
    "id as a value": (b"\x82\xa1x\xa2id\xa1y\xc1", 0),
    "the id of a map inside": (b"\x82\xa1x\x81\xa2id\x09\xa2id\xc1", 0),
    "a map inside, then the id": (b"\x83\xa1x\x82\xa2id\x09\xa1y\x91\x90\xa2id\x07\xa1z\xc1", 7),
    "a map32": (b"\xdf\x00\x00\x00\x02\xa2id\x07\xa1x\xc1", 7),
    "no id in a map with a byte after it": (b"\x81\xa1x\x01\xc0", 0),
    "an array": (b"\x92\xa2id\x07\xc1", 0),
}


@pytest.mark.parametrize(("frame", "request_"), READABLE.values(), ids=READABLE.keys())
def test_a_frame_that_is_refused_for_its_values_is_answered_under_its_id_where_one_can_be_read(frame, request_):
    assert refusal_of(frame)[0] == request_


def test_the_id_is_looked_for_in_the_beginning_of_a_frame_only():
    frame = b"\x82\xa1x\xdd\x00\x01\x00\x00" + b"\x00" * 0x10000 + b"\xa2id\x07\xc1"
    assert refusal_of(frame)[0] == 0
