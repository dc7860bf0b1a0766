"""What `record` refuses by its schema, before any relay is asked, and with which field."""

import pytest

from relayd.protocol.cursor import Cursor
from relayd.protocol.errors import InvalidRequestError, InvalidStateError
from relayd.protocol.messages import NewEvent, Record
from relayd.relay.decide import decide
from relayd.relay.fold import new_state
from relayd.relay.recording import check_record
from relayd.relay.state import ProducerMark

STORE = bytes(range(16))
EVENT = NewEvent("output")
LAST_ORDINAL = 2**64 - 2


def record(events=(), producer=None, sequence=None) -> Record:
    return Record(1, "r", list(events), producer, sequence)


WRONG = {
    "no events and no producer": (record(), "events"),
    "a producer's events without their sequence": (record([EVENT], "p"), "sequence"),
    "a sequence without a producer": (record([EVENT], None, 1), "sequence"),
    "a sequence without events": (record([], "p", 1), "sequence"),
    "a sequence alone": (record([], None, 1), "sequence"),
    "sequence 0": (record([EVENT], "p", 0), "sequence"),
    "a negative sequence": (record([EVENT], "p", -1), "sequence"),
    "sequence 2**63 + 1": (record([EVENT], "p", 2**63 + 1), "sequence"),
    "a second event past 2**63": (record([EVENT, EVENT], "p", 2**63), "sequence"),
    "a kind that is none": (record([EVENT, NewEvent("Output")]), "events[1][0]"),
    "an empty kind": (record([NewEvent("")]), "events[0][0]"),
    "a kind of 65 characters": (record([NewEvent("x" * 65)]), "events[0][0]"),
    "a kind with a line break": (record([NewEvent("output\n")]), "events[0][0]"),
    "a kind of relayd's own": (record([NewEvent("relay.lost")]), "events[0][0]"),
    "one that no version knows": (record([NewEvent("edits.later")]), "events[0][0]"),
    "an empty command id": (record([NewEvent("output", command_id="")]), "events[0][2]"),
    "a command id of 7 characters": (record([EVENT, NewEvent("output", command_id="1234567")]), "events[1][2]"),
    "a command id of 129 characters": (record([NewEvent("output", command_id="x" * 129)]), "events[0][2]"),
    "a command id with a space": (record([NewEvent("output", command_id="command 1")]), "events[0][2]"),
}


@pytest.mark.parametrize(("request_", "field"), WRONG.values(), ids=WRONG.keys())
def test_a_request_that_no_relay_would_take_is_refused_with_its_field(request_, field):
    with pytest.raises(InvalidRequestError) as refusal:
        check_record(request_)
    assert refusal.value.detail.field == field
    assert refusal.value.detail.expected
    assert len(refusal.value.message) < 500


@pytest.mark.parametrize("prefix", ["relay.", "command.", "checkpoint.", "surface.", "reply.", "edits."])
def test_a_kind_with_a_prefix_of_relayds_is_refused_every_time(prefix):
    for _ in range(2):
        with pytest.raises(InvalidRequestError):
            check_record(record([NewEvent(prefix + "x")]))


def test_a_good_kind_does_not_make_a_bad_one_good():
    check_record(record([EVENT]))
    for kind in ("output ", "outpuT", "output.\n"):
        with pytest.raises(InvalidRequestError):
            check_record(record([NewEvent(kind)]))


GOOD = {
    "an event": record([EVENT]),
    "asking where a producer stands": record([], "p"),
    "sequence 1": record([EVENT], "p", 1),
    "sequence 2**63": record([EVENT], "p", 2**63),
    "two events up to 2**63": record([EVENT, EVENT], "p", 2**63 - 1),
    "a kind of 64 characters": record([NewEvent("x" * 64)]),
    "a kind like relayd's": record([NewEvent("relays.x"), NewEvent("relay")]),
    "command ids of 8 and of 128": record([NewEvent("x", command_id="x" * 8), NewEvent("x", command_id="_" * 128)]),
}


@pytest.mark.parametrize("request_", GOOD.values(), ids=GOOD.keys())
def test_a_request_at_the_bounds_is_taken(request_):
    check_record(request_)


@pytest.mark.parametrize(("left", "count"), [(0, 1), (1, 2), (2, 3), (5, 900)])
def test_a_relay_that_has_given_out_its_last_ordinal_is_exhausted(left, count):
    state = new_state(STORE)
    state.frontier = Cursor(LAST_ORDINAL - left, STORE)
    with pytest.raises(InvalidStateError) as refusal:
        decide(state, record([EVENT] * count), 5)
    assert refusal.value.detail.state == "exhausted"


@pytest.mark.parametrize("left", [1, 2, 5])
def test_the_last_ordinal_is_given_out(left):
    state = new_state(STORE)
    state.frontier = Cursor(LAST_ORDINAL - left, STORE)
    assert len(decide(state, record([EVENT] * left), 5).bodies) == left


def test_an_exhausted_relay_still_answers_what_records_nothing():
    state = new_state(STORE)
    state.frontier = Cursor(LAST_ORDINAL, STORE)
    state.producers["p"] = ProducerMark(7, Cursor(3, STORE))
    duplicate = decide(state, record([EVENT, EVENT], "p", 6), 5)
    assert duplicate.bodies == []
    assert duplicate.respond(0, state.frontier).duplicate
    assert decide(state, record([], "p"), 5).respond(0, state.frontier).sequence == 7
    with pytest.raises(InvalidStateError):
        decide(state, record([EVENT, EVENT], "p", 7), 5)


def test_decide_changes_no_state():
    state = new_state(STORE)
    state.producers["p"] = ProducerMark(7, Cursor(3, STORE))
    before = state.capture()
    decide(state, record([EVENT, EVENT], "p", 7), 5)
    decide(state, record([EVENT], "q", 1), 5)
    assert state == before


def test_the_time_of_an_event_is_the_one_that_was_given():
    for ms in (0, 5, 1_700_000_000_000):
        (body,) = decide(new_state(STORE), record([EVENT]), ms).bodies
        assert (
            body
            == {0: b"\x92\x00", 5: b"\x92\x05"}.get(ms, b"\x92\xcf\x00\x00\x01\x8b\xcf\xe5\x68\x00") + b"\xa6output"
        )
