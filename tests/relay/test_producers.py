"""Producers: each event of a sequence at most once, whatever is sent again, against a model that keeps every event."""

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from relayd.protocol.cursor import Cursor
from relayd.protocol.errors import InvalidStateError
from relayd.protocol.event import decode_body
from relayd.protocol.messages import NewEvent, Record, Recorded
from relayd.relay.decide import decide
from relayd.relay.fold import fold, fold_run, new_state
from relayd.relay.recording import check_record
from relayd.relay.state import RelayState, decode_state, encode_state

STORE = bytes(range(16))
REMEMBERED = 1024


def at(ordinal: int) -> Cursor:
    return Cursor(ordinal, ordinal.to_bytes(16, "big"))


def event(number: int) -> NewEvent:
    return NewEvent("output", msgspec.Raw(msgspec.msgpack.encode(number)))


class Relay:
    """Decides and folds as a relay does, with digests made up."""

    def __init__(self) -> None:
        self.state: RelayState = new_state(STORE)
        self.events: list[list] = []

    def send(self, request: Record, *, one_by_one: bool = False) -> Recorded:
        check_record(request)
        decision = decide(self.state, request, 50)
        first = self.state.frontier.ordinal + 1
        through = at(self.state.frontier.ordinal + len(decision.bodies))
        self.events += [msgspec.msgpack.decode(body) for body in decision.bodies]
        if decision.run is not None and not one_by_one:
            if decision.bodies:
                fold_run(self.state, through, decision.run)
        else:
            for ordinal, body in enumerate(decision.bodies, first):
                fold(self.state, at(ordinal), decode_body(body))
        return decision.respond(first, through)

    def record(self, name: str, sequence: int, count: int = 1) -> Recorded:
        return self.send(Record(1, "r", [event(at) for at in range(sequence, sequence + count)], name, sequence))

    def ask(self, name: str) -> Recorded:
        return self.send(Record(1, "r", [], name))


def test_an_unknown_producer_may_begin_anywhere():
    for sequence in (1, 2, 77, 2**63):
        assert Relay().record("p", sequence) == Recorded(1, 1, at(1), False, sequence)


def test_events_of_a_batch_are_numbered_from_its_sequence():
    relay = Relay()
    assert relay.record("p", 5, 3) == Recorded(1, 1, at(3), False, 7)
    assert [row[4] for row in relay.events] == [["p", 5], ["p", 6], ["p", 7]]
    assert [row[2] for row in relay.events] == [5, 6, 7]


def test_a_repeat_is_a_duplicate_with_the_cursor_of_the_producers_last_event():
    relay = Relay()
    relay.record("p", 5, 3)
    relay.record("q", 1, 2)
    for sequence, count in [(5, 3), (5, 1), (6, 1), (7, 1), (1, 2), (1, 7)]:
        assert relay.record("p", sequence, count) == Recorded(1, None, at(3), True, 7)
    assert len(relay.events) == 5


def test_of_an_overlap_the_rest_is_recorded():
    relay = Relay()
    relay.record("p", 5, 3)
    assert relay.record("p", 6, 4) == Recorded(1, 4, at(5), False, 9)
    assert [row[4][1] for row in relay.events] == [5, 6, 7, 8, 9]
    assert [row[2] for row in relay.events] == [5, 6, 7, 8, 9]


def test_the_content_of_a_repeat_is_not_compared():
    relay = Relay()
    relay.record("p", 5)
    other = Record(1, "r", [NewEvent("status"), NewEvent("exit")], "p", 5)
    assert relay.send(other) == Recorded(1, 2, at(2), False, 6)
    assert [row[1] for row in relay.events] == ["output", "exit"]


@pytest.mark.parametrize("sequence", [9, 10, 2**63])
def test_a_hole_in_a_sequence_is_refused_with_the_one_expected(sequence):
    relay = Relay()
    relay.record("p", 5, 3)
    with pytest.raises(InvalidStateError) as refusal:
        relay.record("p", sequence)
    assert refusal.value.detail.expected == 8
    assert "`p` stands at sequence 7" in refusal.value.message
    assert len(relay.events) == 3


def test_asking_answers_the_sequence_and_records_nothing():
    relay = Relay()
    relay.record("p", 5, 3)
    answer = relay.ask("p")
    assert (answer.sequence, answer.first, answer.duplicate) == (7, None, False)
    assert relay.ask("unknown") == Recorded(1)
    assert len(relay.events) == 3


def test_events_without_a_producer_move_no_sequence():
    relay = Relay()
    relay.record("p", 5)
    assert relay.send(Record(1, "r", [event(1), event(2)])) == Recorded(1, 2, at(3), False, None)
    assert relay.ask("p").sequence == 5
    assert relay.record("p", 5) == Recorded(1, None, at(1), True, 5)


def test_the_last_1024_producers_are_remembered_and_the_one_longest_unused_goes_first():
    relay = Relay()
    for number in range(REMEMBERED):
        relay.record(f"p{number}", 10)
    relay.record("p0", 11)
    relay.record("one more", 1)
    assert relay.ask("p1").sequence is None
    assert relay.ask("p0").sequence == 11
    assert relay.ask("p2").sequence == 10
    assert len(relay.state.producers) == REMEMBERED
    assert relay.record("p1", 3).first is not None


def test_neither_asking_nor_a_duplicate_is_a_use():
    """What is no event cannot change what the fold of the events gives."""
    relay = Relay()
    for number in range(REMEMBERED):
        relay.record(f"p{number}", 10)
    relay.ask("p0")
    relay.record("p0", 10)
    relay.record("one more", 1)
    assert relay.ask("p0").sequence is None


NAMES = st.sampled_from(["p", "q", "r", "s"])


class Producers(RuleBasedStateMachine):
    """The model keeps every event that was recorded, and looks through all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.relay = Relay()
        self.history: list[tuple[str | None, int | None, int]] = []
        self.sent = 0

    def last_of(self, name: str) -> tuple[int, int] | None:
        found = [(sequence, at) for at, (by, sequence, _) in enumerate(self.history, 1) if by == name]
        return found[-1] if found else None

    @rule(name=NAMES, shift=st.integers(-6, 3), count=st.integers(1, 5), one_by_one=st.booleans())
    def record(self, name, shift, count, one_by_one):
        last = self.last_of(name)
        sequence = max(1, (last[0] if last else 50) + shift)
        numbers = [self.sent + number for number in range(count)]
        self.sent += count
        request = Record(1, "r", [event(number) for number in numbers], name, sequence)
        if last is not None and sequence > last[0] + 1:
            with pytest.raises(InvalidStateError) as refusal:
                self.relay.send(request)
            assert refusal.value.detail.expected == last[0] + 1
            return
        new = [
            (name, sequence + offset, number)
            for offset, number in enumerate(numbers)
            if last is None or sequence + offset > last[0]
        ]
        first = len(self.history) + 1
        self.history += new
        answer = self.relay.send(request, one_by_one=one_by_one)
        if new:
            assert answer == Recorded(1, first, at(len(self.history)), False, new[-1][1])
        else:
            assert answer == Recorded(1, None, at(last[1]), True, last[0])

    @rule(count=st.integers(1, 3))
    def record_without_a_producer(self, count):
        numbers = [self.sent + number for number in range(count)]
        self.sent += count
        first = len(self.history) + 1
        self.history += [(None, None, number) for number in numbers]
        answer = self.relay.send(Record(1, "r", [event(number) for number in numbers]))
        assert answer == Recorded(1, first, at(len(self.history)))

    @rule(name=NAMES)
    def ask(self, name):
        last = self.last_of(name)
        assert self.relay.ask(name).sequence == (last[0] if last else None)

    @precondition(lambda self: self.history)
    @rule()
    def restart_from_a_snapshot(self):
        self.relay.state = decode_state(encode_state(self.relay.state))

    @precondition(lambda self: self.history)
    @rule()
    def restart_from_the_journal(self):
        state = new_state(STORE)
        for ordinal, row in enumerate(self.relay.events, 1):
            fold(state, at(ordinal), decode_body(msgspec.msgpack.encode(row)))
        assert state == self.relay.state
        self.relay.state = state

    @invariant()
    def every_event_is_there_once_in_order(self):
        rows = [(row[4][0], row[4][1], row[2]) if len(row) > 4 else (None, None, row[2]) for row in self.relay.events]
        assert rows == self.history
        assert self.relay.state.frontier.ordinal == len(self.history)


Producers.TestCase.settings = settings(max_examples=60, stateful_step_count=25, derandomize=True, deadline=None)
TestProducersAgainstAModel = Producers.TestCase
