"""Whatever a peer sends: one typed answer each, and the right end (docs/reference/protocol.md, "Frames")."""

import struct

import msgspec
import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.daemon import short_place
from support.inside import inside, run_virtually
from support.wire import frame

HELLO = {"op": "hello", "id": 1, "versions": [1], "client": "me"}


async def answers(daemon, *pieces, hello=True):
    """What a client that sends these bytes, and then no more, is answered until its connection ends."""
    client = await daemon.connect() if hello else daemon.connect_silent()
    for piece in pieces:
        client.stream.feed(piece)
    client.stream.half_close()
    await client.closed()
    return client.stream.answers


FRAMING_LOST = {
    "length 0": (struct.pack(">I", 0), "invalid_request"),
    "one over the limit": (struct.pack(">I", (8 << 20) + 1), "too_large"),
    "2**31": (struct.pack(">I", 2**31), "too_large"),
    "2**32 - 1": (struct.pack(">I", 2**32 - 1), "too_large"),
    "HTTP": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "too_large"),
    "TLS": (bytes.fromhex("1603010200010001fc0303") + bytes(500), "too_large"),
}


@pytest.mark.parametrize(("sent", "code"), FRAMING_LOST.values(), ids=FRAMING_LOST)
async def test_where_framing_is_lost_it_is_answered_under_id_0_and_the_connection_ends(daemon, sent, code):
    client = await daemon.connect()
    client.stream.feed(sent)
    await client.closed()
    (answer,) = client.stream.answers
    assert (answer["re"], answer["id"], answer["code"]) == ("error", 0, code)


NO_REQUEST = {
    "0xc1": b"\xc1",
    "nil": b"\xc0",
    "an array": msgspec.msgpack.encode(["relays", 5]),
    "an empty map": b"\x80",
    "no op": msgspec.msgpack.encode({"id": 5}),
    "no id": msgspec.msgpack.encode({"op": "relays"}),
    "id 0": msgspec.msgpack.encode({"op": "relays", "id": 0}),
    "id 2**32": msgspec.msgpack.encode({"op": "relays", "id": 2**32}),
    "id as text": msgspec.msgpack.encode({"op": "relays", "id": "5"}),
    "bytes after the map": msgspec.msgpack.encode({"op": "relays", "id": 5}) + b"\xc0",
    "a cut map": msgspec.msgpack.encode({"op": "relays", "id": 5})[:-1],
    "a duplicate key": b"\x83\xa2op\xa6relays\xa2id\x05\xa2id\x06",
    "a key that is no string": b"\x83\xa2op\xa6relays\xa2id\x05\x01\x02",
    "an unknown extension": b"\x83\xa2op\xa6relays\xa2id\x05\xa1x"
    + msgspec.msgpack.encode(msgspec.msgpack.Ext(9, b"x")),
    "a time stamp": b"\x83\xa2op\xa6relays\xa2id\x05\xa1x" + msgspec.msgpack.encode(msgspec.msgpack.Ext(-1, bytes(4))),
    "nesting 100,000 deep": b"\x83\xa2op\xa6relays\xa2id\x05\xa1x" + b"\x91" * 100_000 + b"\xc0",
    "nesting of 65": b"\x83\xa2op\xa6relays\xa2id\x05\xa1x" + b"\x91" * 64 + b"\xc0",
    "array32 that claims 2**32 - 1": b"\x83\xa2op\xa6relays\xa2id\x05\xa1x\xdd\xff\xff\xff\xff",
    "map32 that claims 2**32 - 1": b"\xdf\xff\xff\xff\xff",
    "bin32 that claims 2**32 - 1": b"\x83\xa2op\xa6relays\xa2id\x05\xa1x\xc6\xff\xff\xff\xff",
    "invalid UTF-8": b"\x83\xa2op\xa6relays\xa2id\x05\xa1x\xa2\xff\xfe",
    "an unknown op": msgspec.msgpack.encode({"op": "reboot", "id": 5}),
    "an unknown field": msgspec.msgpack.encode({"op": "relays", "id": 5, "all": True}),
    "a missing field": msgspec.msgpack.encode({"op": "status", "id": 5}),
}
WITHOUT_ID = {"0xc1", "nil", "an array", "an empty map", "no id", "id 0", "id 2**32", "id as text"}
EITHER = {
    "bytes after the map", "a cut map", "a duplicate key", "a key that is no string", "map32 that claims 2**32 - 1",
    "array32 that claims 2**32 - 1", "bin32 that claims 2**32 - 1", "invalid UTF-8", "nesting 100,000 deep",
}  # fmt: skip


@pytest.mark.parametrize("name", NO_REQUEST)
async def test_a_frame_that_is_no_request_is_answered_and_the_connection_lives(daemon, name):
    client = await daemon.connect()
    client.stream.feed(frame(NO_REQUEST[name]))
    client.stream.feed(frame({"op": "relays", "id": 77}))
    await client.answer(77)
    (answer,) = client.stream.answers
    assert (answer["re"], answer["code"], answer["retryable"]) == ("error", "invalid_request", False)
    assert answer["id"] in ({0} if name in WITHOUT_ID else {0, 5} if name in EITHER else {5})
    assert answer["message"]


async def test_nan_infinities_and_integers_of_64_bits_are_data(daemon):
    client = await daemon.relay()
    values = [float("inf"), -float("inf"), 2**64 - 1, -(2**63)]
    await client.done("record", relay="a", events=[["x", values], ["y", float("nan")]])
    stored = await client.read_all("a")
    assert stored[1].data == values
    assert stored[2].data != stored[2].data


async def test_nesting_of_64_is_data(daemon):
    client = await daemon.relay()
    # The frame's map is level 1, its events 2, one event 3.
    deep = 1
    for _ in range(61):
        deep = [deep]
    assert (await client.done("record", relay="a", events=[["x", deep]]))["first"] == 2
    assert (await client.refusal("record", relay="a", events=[["x", [deep]]]))[0] == "invalid_request"


async def test_frames_are_cut_wherever_the_bytes_happen_to_be_cut(daemon):
    sent = frame(HELLO) + frame({"op": "relays", "id": 2}) + frame({"op": "relays", "id": 3})
    for size in (1, 2, 3, 7):
        pieces = [sent[at : at + size] for at in range(0, len(sent), size)]
        assert [one["re"] for one in await answers(daemon, *pieces, hello=False)] == ["welcome", "relays", "relays"]


async def test_the_same_bytes_in_one_piece_are_answered_the_same(daemon):
    sent = frame(HELLO) + frame({"op": "relays", "id": 2}) + frame({"op": "relays", "id": 3})
    assert [one["re"] for one in await answers(daemon, sent, hello=False)] == ["welcome", "relays", "relays"]


async def test_an_id_in_flight_is_refused_under_id_0_and_the_first_goes_on(daemon):
    client = await daemon.relay()
    client.send("attach", id=9, relay="a", after="latest", wait_ms=60_000)
    client.send("relays", id=9)
    refused = await client.answer(0)
    assert refused["code"] == "invalid_request"
    recorded = await client.done("record", relay="a", events=[["x"]])
    page = await client.answer(9)
    assert (page["re"], page["through"]) == ("page", recorded["through"])
    client.send("relays", id=9)
    assert (await client.answer(9))["re"] == "relays", "an id may be used again once it is answered"


async def test_a_bad_frame_with_an_id_in_flight_is_answered_under_id_0(daemon):
    client = await daemon.relay()
    client.send("attach", id=9, relay="a", after="latest", wait_ms=1000)
    client.send("reboot", id=9)
    assert (await client.answer(0))["code"] == "invalid_request"
    assert (await client.answer(9))["re"] == "page"


async def test_a_frame_of_8_mib_is_taken(daemon):
    client = await daemon.relay()
    events = [["x", bytes(1 << 20)]] * 7
    last = (8 << 20) - len(
        msgspec.msgpack.encode({"op": "record", "id": 100, "relay": "a", "events": [*events, ["x", b""]]})
    )
    request = {"op": "record", "id": 100, "relay": "a", "events": [*events, ["x", bytes(last - 3)]]}
    content = msgspec.msgpack.encode(request)
    assert len(content) == 8 << 20
    client.stream.feed(frame(content))
    assert (await client.answer(100))["first"] == 2


async def test_a_bug_costs_its_request_an_internal_error_and_the_connection_lives(daemon, monkeypatch):
    client = await daemon.relay()

    def fail(*_):
        raise ZeroDivisionError

    monkeypatch.setattr("relayd.daemon.server.check_record", fail)
    assert await client.refusal("record", relay="a", events=[["x"]]) == ("internal", True, None)
    assert daemon.said("request_failed")
    monkeypatch.undo()
    assert (await client.done("record", relay="a", events=[["x"]]))["first"] == 2


REQUESTS = [
    HELLO,
    {"op": "relays", "id": 2},
    {"op": "open", "id": 3, "relay": "a", "create": True},
    {"op": "record", "id": 4, "relay": "a", "events": [["x", {"y": [1, None, "z"]}]], "producer": "p", "sequence": 1},
    {"op": "attach", "id": 5, "relay": "a", "after": [1, bytes(16)], "wait_ms": 10},
    {"op": "acknowledge", "id": 6, "relay": "a", "through": [1, bytes(16)]},
    {"op": "cancel_request", "id": 7, "request": 5},
    {"op": "status", "id": 8, "relay": "a"},
]


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(
        st.tuples(st.sampled_from(REQUESTS), st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=4)),
        max_size=12,
    )
)
def test_mutated_frames_are_each_answered_and_nothing_breaks(requests):
    """Every frame gets exactly one answer; no bug shows; the daemon serves others afterwards."""

    async def run():
        with short_place() as place:
            async with inside(place) as daemon:
                client = daemon.connect_silent()
                client.stream.feed(frame(HELLO))
                for request, changes in requests:
                    content = bytearray(msgspec.msgpack.encode(request))
                    for at, value in changes:
                        content[at % len(content)] = value
                    client.stream.feed(frame(bytes(content)))
                client.stream.half_close()
                await client.closed()
                assert len(client.stream.answers) == 1 + len(requests)
                assert not [line for line in daemon.logged if line["level"] in ("error", "exception")]
                other = await daemon.connect()
                assert (await other.call("relays"))["re"] == "relays"

    run_virtually(run)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.binary(max_size=300), max_size=5))
def test_arbitrary_bytes_break_nothing(pieces):
    async def run():
        with short_place() as place:
            async with inside(place) as daemon:
                client = await daemon.connect()
                for piece in pieces:
                    client.stream.feed(piece)
                with trio.fail_after(100):
                    client.stream.half_close()
                    await client.closed()
                assert all(one["re"] == "error" for one in client.stream.answers)
                assert not [line for line in daemon.logged if line["level"] in ("error", "exception")]

    run_virtually(run)
