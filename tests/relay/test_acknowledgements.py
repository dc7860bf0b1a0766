"""How far consumers have acknowledged, what that lets go, and which acknowledgements are refused."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from relayd.protocol.cursor import GENESIS, Cursor, History
from relayd.protocol.errors import DesynchronizedError, InvalidRequestError, OverloadedError
from relayd.protocol.kinds import RetentionBytes
from relayd.protocol.messages import Acknowledge
from relayd.relay.acknowledged import Acknowledgements
from relayd.relay.acknowledging import check_acknowledgement, needs_check
from relayd.relay.retention import base, retained

FOREIGN = b"\xee" * 16


def at(ordinal: int) -> Cursor:
    return Cursor(ordinal, bytes([ordinal]) * 16)


HISTORY = History(at(2), at(9))


def test_nothing_is_acknowledged_at_first():
    nothing = Acknowledgements()
    assert (nothing.acknowledged, nothing.consumers) == (GENESIS, {})
    assert nothing.cursor_of("anyone") == GENESIS


def test_acknowledged_is_the_least_of_the_consumers():
    two = Acknowledgements().acknowledge("a", at(5)).acknowledge("b", at(7))
    assert two.acknowledged == at(5)
    assert two.acknowledge("a", at(9)).acknowledged == at(7)


def test_an_older_cursor_changes_nothing():
    stands = Acknowledgements().acknowledge("a", at(5))
    assert stands.acknowledge("a", at(4)) == stands
    assert stands.acknowledge("a", at(5)) == stands


def test_a_new_consumer_further_back_is_kept_where_it_says_and_acknowledged_does_not_move_back():
    late = Acknowledgements().acknowledge("a", at(5)).acknowledge("late", at(3))
    assert (late.acknowledged, late.cursor_of("late")) == (at(5), at(3))
    assert late.acknowledge("a", at(9)).acknowledged == at(5)
    assert late.acknowledge("a", at(9)).acknowledge("late", at(6)).acknowledged == at(6)


def test_a_consumer_that_says_genesis_pins_everything_from_there():
    pinned = Acknowledgements().acknowledge("a", GENESIS)
    assert pinned.consumers == {"a": GENESIS}
    assert pinned.acknowledge("b", at(5)).acknowledged == GENESIS


def test_forgetting_frees_what_one_alone_pinned():
    two = Acknowledgements().acknowledge("gone", at(1)).acknowledge("a", at(7))
    assert two.forget("gone").acknowledged == at(7)
    assert two.forget("a").acknowledged == at(1)
    assert two.forget("unknown") == two


def test_with_no_consumer_left_acknowledged_stays():
    none_left = Acknowledgements().acknowledge("a", at(7)).forget("a")
    assert (none_left.acknowledged, none_left.consumers) == (at(7), {})
    assert none_left.cursor_of("a") == GENESIS
    assert none_left.acknowledge("a", at(3)).acknowledged == at(7)


class AcknowledgementsModel(RuleBasedStateMachine):
    """The model keeps what each consumer said, as plain numbers, and how far acknowledged ever was."""

    def __init__(self) -> None:
        super().__init__()
        self.real = Acknowledgements()
        self.said: dict[str, int] = {}
        self.furthest = 0

    consumers = st.sampled_from("abcd")

    def settle(self) -> None:
        if self.said:
            self.furthest = max(self.furthest, min(self.said.values()))

    @rule(consumer=consumers, ordinal=st.integers(0, 20))
    def acknowledge(self, consumer, ordinal):
        self.real = self.real.acknowledge(consumer, at(ordinal))
        self.said[consumer] = max(ordinal, self.said.get(consumer, 0))
        self.settle()

    @rule(consumer=consumers)
    def forget(self, consumer):
        self.real = self.real.forget(consumer)
        self.said.pop(consumer, None)
        self.settle()

    @invariant()
    def they_agree(self):
        assert {name: cursor.ordinal for name, cursor in self.real.consumers.items()} == self.said
        assert self.real.acknowledged.ordinal == self.furthest
        for cursor in (*self.real.consumers.values(), self.real.acknowledged):
            assert cursor in (at(cursor.ordinal), GENESIS)


AcknowledgementsModel.TestCase.settings = settings(
    max_examples=50, stateful_step_count=25, derandomize=True, deadline=None
)
TestAcknowledgementsAgainstAModel = AcknowledgementsModel.TestCase


def test_an_acknowledgement_leaves_the_one_before_as_it_was():
    before = Acknowledgements().acknowledge("a", at(5))
    before.acknowledge("b", at(1))
    before.acknowledge("a", at(9))
    before.forget("a")
    assert before == Acknowledgements(at(5), {"a": at(5)})


# retention, floor, acknowledged -> retained
RETAINED = [
    ("checkpointed", None, 5, 0),
    ("checkpointed", 3, 5, 3),
    ("checkpointed", 7, 5, 5),
    ("checkpointed", 5, 5, 5),
    ("acknowledged", None, 5, 5),
    ("acknowledged", 3, 5, 5),
    (RetentionBytes(9), None, 5, 5),
    (RetentionBytes(9), 3, 5, 5),
    ("acknowledged", None, 0, 0),
]


@pytest.mark.parametrize(("retention", "floor", "acknowledged", "expected"), RETAINED)
def test_retained(retention, floor, acknowledged, expected):
    floor = None if floor is None else at(floor)
    assert retained(retention, floor, Acknowledgements(at(acknowledged))).ordinal == expected


@pytest.mark.parametrize(
    ("evicted", "acknowledged", "expected"), [(0, 5, 5), (3, 5, 5), (7, 5, 7), (7, 0, 7), (0, 0, 0)]
)
def test_the_base_rises_to_retained_or_to_an_eviction(evicted, acknowledged, expected):
    assert base(at(acknowledged), at(evicted)) == at(expected)


def acknowledge(cursor: Cursor, consumer: str = "controller") -> Acknowledge:
    return Acknowledge(1, "r", cursor, consumer)


STANDS = Acknowledgements().acknowledge("controller", at(5))


@pytest.mark.parametrize("ordinal", [0, 3, 5, 7, 99])
def test_an_acknowledgement_without_a_digest_is_refused(ordinal):
    with pytest.raises(InvalidRequestError) as refusal:
        needs_check(acknowledge(Cursor(ordinal)), STANDS)
    assert refusal.value.detail.field == "through"


NEW = {
    "further": (at(6), "controller", True),
    "its own again": (at(5), "controller", False),
    "an older one": (at(4), "controller", False),
    "an older one, whatever its digest": (Cursor(4, FOREIGN), "controller", False),
    "its own ordinal with another digest": (Cursor(5, FOREIGN), "controller", True),
    "one never heard of": (at(3), "other", True),
    "one never heard of, at genesis": (GENESIS, "other", True),
    "one never heard of, at ordinal 0 with another digest": (Cursor(0, FOREIGN), "other", True),
}


@pytest.mark.parametrize(("through", "consumer", "expected"), NEW.values(), ids=NEW.keys())
def test_what_says_something_new_is_checked(through, consumer, expected):
    assert needs_check(acknowledge(through, consumer), STANDS) is expected


def check(
    through: Cursor, found: bytes | None, *, history=HISTORY, stands=STANDS, consumers_max=64, consumer="controller"
):
    check_acknowledgement(acknowledge(through, consumer), history, found, stands, consumers_max)


@pytest.mark.parametrize("ordinal", [2, 6, 9])
def test_a_right_acknowledgement_is_taken(ordinal):
    check(at(ordinal), at(ordinal).digest)


def test_genesis_of_a_history_with_nothing_evicted_is_taken():
    check(GENESIS, GENESIS.digest, history=History(GENESIS, at(9)), consumer="other")
    check(GENESIS, GENESIS.digest, history=History(GENESIS, GENESIS), consumer="other")


# through, found -> reason, and where the reader may go on
REFUSED = {
    "ahead": (at(10), None, "ahead", at(2)),
    "far ahead": (Cursor(2**64 - 1, FOREIGN), None, "ahead", at(2)),
    "another history's": (Cursor(6, FOREIGN), at(6).digest, "digest_mismatch", at(2)),
    "another history's latest": (Cursor(9, FOREIGN), at(9).digest, "digest_mismatch", at(2)),
    "below base": (at(1), None, "evicted", at(2)),
    "genesis, below base": (GENESIS, None, "evicted", at(2)),
    "at base with another digest": (Cursor(2, FOREIGN), None, "evicted", at(2)),
    "at a place that cannot be read": (at(6), None, "unreadable", at(6)),
}


@pytest.mark.parametrize(("through", "found", "reason", "earliest"), REFUSED.values(), ids=REFUSED.keys())
def test_a_cursor_that_is_not_this_historys_is_desynchronized(through, found, reason, earliest):
    with pytest.raises(DesynchronizedError) as refusal:
        check(through, found)
    detail = refusal.value.detail
    assert (detail.reason, detail.requested, detail.earliest, detail.latest) == (reason, through, earliest, at(9))


def test_one_consumer_too_many_is_overloaded_and_one_that_is_known_is_not():
    full = Acknowledgements()
    for number in range(3):
        full = full.acknowledge(f"c{number}", at(3))
    with pytest.raises(OverloadedError) as refusal:
        check(at(6), at(6).digest, stands=full, consumers_max=3, consumer="one more")
    assert refusal.value.detail.bound == "consumers"
    check(at(6), at(6).digest, stands=full, consumers_max=3, consumer="c1")
    check(at(6), at(6).digest, stands=full.forget("c0"), consumers_max=3, consumer="one more")


def test_a_cursor_that_is_wrong_is_told_before_the_bound_on_consumers():
    with pytest.raises(DesynchronizedError):
        check(at(10), None, consumers_max=1, consumer="one more")
