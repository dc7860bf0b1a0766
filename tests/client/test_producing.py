"""The idempotent producer, without I/O: numbering, batches, order, and what is sent again."""

import datetime as dt

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relayd.client.errors import ProtocolViolationError
from relayd.client.producing import Producing
from relayd.protocol.cursor import Cursor
from relayd.protocol.errors import (
    ConflictError,
    InvalidRequestError,
    InvalidStateError,
    NotFoundError,
    StateDetail,
    StorageFailedError,
    TooLargeError,
)
from relayd.protocol.frame import encode_frame
from relayd.protocol.limits import FRAME_BYTES_MAX, MIB
from relayd.protocol.messages import Record, Recorded
from relayd.protocol.parse import parse_request


def producing(stood=7, **settings):
    stream = Producing("r", "p", **settings)
    stream.stands(Recorded(1, sequence=stood))
    return stream


def as_sent(batch):
    """The batch as a daemon reads it."""
    batch.call.request.id = 1
    frame = encode_frame(batch.call.request)
    assert len(frame) <= FRAME_BYTES_MAX
    return parse_request(bytes(frame[4:]))


def answer(batch, ordinal=100):
    return Recorded(1, ordinal, Cursor(ordinal + batch.count - 1, bytes(16)), sequence=batch.last)


def fill(stream, batches, events=2):
    for _ in range(batches):
        for _ in range(events):
            stream.add("k", 1)
        stream.cut()


def drain(stream):
    return [batch.sequence for batch in iter(stream.next_batch, None)]


def test_it_asks_where_it_stands():
    call = Producing("r", "p").where()
    assert call.request == Record(0, "r", [], "p")
    assert call.repeatable


@pytest.mark.parametrize(("stood", "first"), [(None, 1), (1, 2), (41, 42)])
def test_numbering_goes_on_after_what_is_there(stood, first):
    stream = producing(stood)
    assert stream.position == (stood or 0)
    assert [stream.add("k"), stream.add("k")] == [first, first + 1]


def test_a_batch_is_one_record_request_with_the_events_as_given():
    stream = producing(7, oversize="refuse")
    stream.add("output", {"text": "a"})
    stream.add("note")
    stream.add("note", None, "command-1")
    stream.cut()
    request = as_sent(stream.next_batch())
    assert (request.relay, request.producer, request.sequence, request.oversize) == ("r", "p", 8, "refuse")
    assert [(one.kind, msgspec.msgpack.decode(one.data), one.command_id) for one in request.events] == [
        ("output", {"text": "a"}, None),
        ("note", None, None),
        ("note", None, "command-1"),
    ]


def test_batches_are_bounded_by_events_and_bytes():
    by_events = producing(batch_events=3)
    fill_until = [by_events.add("k") and by_events.complete for _ in range(3)]
    assert fill_until == [False, False, True]
    by_bytes = producing(batch_bytes=1000)
    by_bytes.add("k", "x" * 998)
    assert by_bytes.complete


@pytest.mark.parametrize("batch_bytes", [1000, 100 * MIB])
def test_large_events_still_fit_a_frame(batch_bytes):
    stream = producing(batch_bytes=batch_bytes, in_flight=9)
    sizes = [10, 7 * MIB, 10, 2 * MIB, 2 * MIB, 7 * MIB]
    for size in sizes:
        stream.add("k", bytes(size))
        if stream.complete:
            stream.cut()
    stream.cut()
    sent = [as_sent(batch) for batch in iter(stream.next_batch, None)]
    assert [len(event.data) for request in sent for event in request.events] == pytest.approx(sizes, abs=10)


@pytest.mark.parametrize(("oversize", "size"), [("refuse", 2 * MIB), ("clamp", 8 * MIB)])
def test_an_event_that_no_frame_or_record_takes_is_refused_alone(oversize, size):
    stream = producing(oversize=oversize)
    stream.add("k", "before")
    with pytest.raises(TooLargeError, match="record it in pieces"):
        stream.add("k", bytes(size))
    assert stream.add("k", "after") == 9
    stream.cut()
    assert [msgspec.msgpack.decode(one.data) for one in as_sent(stream.next_batch()).events] == ["before", "after"]


def nested(depth):
    value = 1
    for _ in range(depth):
        value = [value]
    return value


class Odd:
    pass


@pytest.mark.parametrize(
    "data",
    [
        {1: "integer key"},
        {"deep": {b"bytes": 1}},
        dt.datetime.now(dt.UTC),
        [dt.datetime.now(dt.UTC)],
        msgspec.msgpack.Ext(5, b""),
        2**64,
        {"n": 2**64},
        {"s": "\ud800"},
        Odd(),
        nested(62),
        nested(5000),
    ],
    ids=lambda data: type(data).__name__,
)
def test_data_that_a_daemon_would_refuse_is_refused_at_once_and_alone(data):
    stream = producing()
    stream.add("k", "before")
    with pytest.raises(InvalidRequestError):
        stream.add("k", data)
    assert stream.add("k", nested(61)) == 9
    stream.cut()
    assert len(as_sent(stream.next_batch()).events) == 2


@pytest.mark.parametrize("data", [(1, 2), {"t": (1, {"x": None})}, {"s": {1, 2}}, True, 1.5, "x", b"x", []])
def test_what_becomes_messagepack_is_taken(data):
    stream = producing()
    stream.add("k", data)
    stream.cut()
    as_sent(stream.next_batch())


@pytest.mark.parametrize("kind", ["", "Output", "relay.created", "command.x", "a b", "x" * 65])
def test_kinds_are_checked(kind):
    with pytest.raises(InvalidRequestError, match="cannot be an event's kind"):
        producing().add(kind)


def test_other_names_are_checked():
    with pytest.raises(InvalidRequestError):
        producing().add("k", None, "short")
    with pytest.raises(InvalidRequestError):
        Producing("r", " ")
    with pytest.raises(InvalidRequestError):
        Producing("/r", "p")
    with pytest.raises(InvalidRequestError):
        Producing("r", "p", in_flight=0)


def test_as_many_batches_are_in_flight_as_allowed():
    stream = producing(in_flight=3)
    fill(stream, 5)
    assert stream.full
    sent = [stream.next_batch() for _ in range(3)]
    assert [batch.sequence for batch in sent] == [8, 10, 12]
    assert stream.next_batch() is None
    stream.recorded(sent[0], answer(sent[0]))
    assert stream.position == 9
    assert stream.through == Cursor(101, bytes(16))
    assert drain(stream) == [14]


@pytest.mark.parametrize("stood", [None, 7], ids=["unknown producer", "after a disconnect"])
def test_the_oldest_goes_alone_until_the_daemon_knows_the_stream(stood):
    stream = producing(stood)
    fill(stream, 3)
    if stood is not None:
        drain(stream)
        stream.disconnected()
    first = stream.next_batch()
    assert stream.next_batch() is None
    stream.recorded(first, answer(first))
    assert len(drain(stream)) == 2


def test_after_a_refusal_nothing_is_sent_until_all_are_answered_and_then_all_again():
    stream = producing()
    fill(stream, 3)
    drain(stream)
    stream.refused(StorageFailedError("disk"))
    assert stream.next_batch() is None
    assert not stream.may_resume
    stream.refused(InvalidStateError("order", StateDetail(expected=8)))
    stream.refused(InvalidStateError("order", StateDetail(expected=8)))
    assert stream.failed is None
    assert stream.may_resume
    stream.resume()
    first = stream.next_batch()
    assert first.sequence == 8
    stream.recorded(first, Recorded(1, None, Cursor(101, bytes(16)), duplicate=True, sequence=9))
    assert stream.failed is None, "it was there after all"
    assert drain(stream) == [10, 12]


@pytest.mark.parametrize(
    "error", [NotFoundError("x"), InvalidStateError("x", StateDetail(expected=3)), ConflictError("x")]
)
def test_what_a_repetition_cannot_help_ends_the_stream(error):
    stream = producing()
    fill(stream, 2)
    drain(stream)
    stream.refused(error)
    assert stream.failed is error
    stream.refused(NotFoundError("later"))
    assert stream.failed is error
    assert stream.next_batch() is None


@pytest.mark.parametrize(
    "said",
    [
        Recorded(1, None, Cursor(5, bytes(16)), duplicate=True, sequence=9),
        Recorded(1, 100, Cursor(100, bytes(16)), sequence=9),
    ],
    ids=["all", "the first of two"],
)
def test_events_that_were_there_before_they_were_sent_betray_a_second_producer(said):
    stream = producing()
    fill(stream, 1)
    batch = stream.next_batch()
    stream.recorded(batch, said)
    assert isinstance(stream.failed, ConflictError)


def test_an_answer_without_a_cursor_is_no_answer():
    stream = producing()
    fill(stream, 1)
    stream.recorded(stream.next_batch(), Recorded(1, 5))
    assert isinstance(stream.failed, ProtocolViolationError)


class Model:
    """A daemon that knows one producer: what is recorded, and the last sequence, forgotten by nothing."""

    def __init__(self):
        self.sequences = []

    def record(self, batch, *, fails, stays):
        """What becomes of a batch: an answer, or an error with the events there or not."""
        last = self.sequences[-1] if self.sequences else None
        if last is not None and batch.sequence > last + 1:
            return InvalidStateError("order", StateDetail(expected=last + 1))
        new = [number for number in range(batch.sequence, batch.last + 1) if last is None or number > last]
        if not fails or stays:
            self.sequences += new
        if fails:
            return StorageFailedError("disk")
        through = Cursor(len(self.sequences), bytes(16))
        if not new:
            return Recorded(1, None, through, duplicate=True, sequence=last)
        return Recorded(1, through.ordinal - len(new) + 1, through, sequence=new[-1])


STEP = st.sampled_from(["add", "add", "cut", "send", "send", "answer", "answer", "fail", "fail but stay", "cut off"])


@settings(max_examples=300)
@given(st.lists(STEP, max_size=80), st.integers(1, 4))
def test_whatever_fails_each_event_is_there_once_and_in_order(steps, in_flight):  # noqa: C901 - one arm an action
    stream = Producing("r", "p", in_flight=in_flight, batch_events=3)
    stream.stands(Recorded(1))
    model, wire, added = Model(), [], 0

    def step(action):
        nonlocal added
        match action:
            case "add":
                added = stream.add("k", added)
            case "cut":
                stream.cut()
            case "send":
                if stream.may_resume:
                    stream.resume()
                batch = stream.next_batch()
                wire.extend([batch] if batch else [])
            case "cut off":
                # What was in flight is decided or not; its answers are gone either way.
                for batch in wire[: len(wire) // 2]:
                    model.record(batch, fails=False, stays=True)
                wire.clear()
                stream.disconnected()
            case _ if wire:
                batch = wire.pop(0)
                said = model.record(batch, fails=action != "answer", stays=action == "fail but stay")
                if isinstance(said, Recorded):
                    stream.recorded(batch, said)
                else:
                    stream.refused(said)
        assert stream.failed is None
        assert stream.position <= len(model.sequences), "nothing is called durable before it is"

    for action in steps:
        step(action)
    stream.cut()
    while not stream.settled:
        step("send")
        step("answer")
    assert model.sequences == list(range(1, added + 1))
    assert stream.position == added
