import msgspec
import pytest

from relayd.client.errors import ProtocolViolationError
from relayd.client.session import Identities, Session, identities, welcome_of
from relayd.protocol.errors import (
    ErrorResponse,
    IncompatibleProtocolError,
    InternalError,
    OverloadedError,
    TooLargeError,
    to_wire,
)
from relayd.protocol.frame import encode_frame
from relayd.protocol.messages import Done, Limits, NewEvent, Record, RelayList, Relays, Status, Welcome

LIMITS = Limits(1, 1, 1, 1, 1, 1)


def decode(frame):
    assert int.from_bytes(frame[:4]) == len(frame) - 4
    return msgspec.msgpack.decode(frame[4:])


def frames(*responses):
    return b"".join(bytes(encode_frame(response)) for response in responses)


def test_hello_says_who_and_which_versions():
    assert decode(Session().hello(Identities("c", worker="w"))) == {
        "op": "hello",
        "id": 1,
        "versions": [1],
        "client": "c",
        "worker": "w",
    }


def test_identities_come_from_arguments_then_the_environment():
    environ = {"RELAYD_CLIENT": "env", "RELAYD_ASKER": "ask", "RELAYD_AUTHOR": "", "RELAYD_WORKER": "work"}
    assert identities(worker="mine", environ=environ) == Identities("env", "ask", None, "mine")
    assert identities(environ={}).client
    assert identities(environ={})[1:] == (None, None, None)


def test_ids_are_fresh_and_never_one_in_flight():
    session = Session()
    asked = [Relays(0) for _ in range(3)]
    for request in asked:
        session.send(request)
    assert [request.id for request in asked] == [1, 2, 3]
    session._last_id = 2**32 - 2
    wrapped = [Relays(0) for _ in range(2)]
    for request in wrapped:
        session.send(request)
    assert [request.id for request in wrapped] == [2**32 - 1, 4]


def test_answers_come_in_any_order_and_any_pieces():
    session = Session()
    for _ in range(3):
        session.send(Relays(0))
    data = frames(Done(3), RelayList(1, []), Done(2))
    found = [answer for at in range(len(data)) for answer in session.receive(data[at : at + 1])]
    assert [answer.id for answer in found] == [3, 1, 2]
    assert session.in_flight == 0
    assert session.ended is None


def test_what_nobody_waits_for_is_dropped():
    session = Session()
    session.send(Relays(0))
    session.forget(1)
    session.forget(99)
    assert session.receive(frames(RelayList(1, []))) == []
    assert session.ended is None


def test_taking_back_drops_both_answers():
    session = Session()
    session.send(Relays(0))
    assert decode(session.take_back(1)) == {"op": "cancel_request", "id": 2, "request": 1}
    assert session.receive(frames(Done(2), RelayList(1, []))) == []
    assert session.in_flight == 0


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (frames(Done(7)), "answered request 7, which nobody asked"),
        (b"\0\0\0\0", "its length is 0"),
        (b"HTTP/1.1 400", "speaks to the wrong socket"),
        (b"\0\0\0\1\xc1", "no response of this protocol"),
        (b"\0\0\0\1\x80", "no response of this protocol"),
    ],
)
def test_what_no_daemon_sends_ends_it(data, message):
    session = Session()
    session.send(Relays(0))
    answers = session.receive(frames(RelayList(1, [])) + data)
    assert [answer.id for answer in answers] == [1], "what came before still counts"
    assert isinstance(session.ended, ProtocolViolationError)
    assert message in str(session.ended)
    assert session.receive(frames(Done(1))) == []


@pytest.mark.parametrize("error", [OverloadedError("full"), InternalError("bug")])
def test_an_error_under_id_0_ends_it_with_that_error(error):
    session = Session()
    session.send(Relays(0))
    session.receive(frames(to_wire(error, 0)))
    assert type(session.ended) is type(error)


def test_a_frame_too_large_is_not_in_flight():
    session = Session()
    request = Record(0, "r", [NewEvent("k", msgspec.Raw(msgspec.msgpack.encode(bytes(9 << 20))))])
    with pytest.raises(TooLargeError):
        session.send(request)
    assert session.in_flight == 0


def test_a_welcome_is_what_answers_hello():
    welcome = Welcome(1, 1, "d", LIMITS)
    assert welcome_of(welcome) is welcome
    with pytest.raises(IncompatibleProtocolError):
        welcome_of(to_wire(IncompatibleProtocolError("no"), 1))
    for other in (Done(1), Welcome(1, 2, "d", LIMITS)):
        with pytest.raises(ProtocolViolationError):
            welcome_of(other)


def test_a_request_keeps_its_fields():
    request = Status(0, "r")
    assert decode(Session().send(request)) == {"op": "status", "id": 1, "relay": "r"}
    assert isinstance(to_wire(OverloadedError("x"), 1), ErrorResponse)
