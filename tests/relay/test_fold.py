"""What each event does to a relay's state."""

import copy

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relayd.protocol.cursor import GENESIS, Cursor
from relayd.protocol.event import Body, Producer
from relayd.protocol.kinds import RetentionBytes
from relayd.relay.fold import FoldError, Run, fold, fold_run, new_state
from relayd.relay.state import ProducerMark, RelayState, decode_state, encode_state

BRISK = settings(max_examples=100, derandomize=True, deadline=None)
STORE = bytes(range(16))
OTHER = bytes(range(16, 32))


def at(ordinal: int) -> Cursor:
    return Cursor(ordinal, bytes([ordinal % 256]) * 16)


def body(kind: str, data: object = None, *, ms: int = 50, producer: tuple[str, int] | None = None) -> Body:
    return Body(ms, kind, msgspec.Raw(msgspec.msgpack.encode(data)), None, producer and Producer(*producer))


def folded(*bodies: Body, state: RelayState | None = None) -> RelayState:
    state = state or new_state(STORE)
    for ordinal, each in enumerate(bodies, state.frontier.ordinal + 1):
        fold(state, at(ordinal), each)
    return state


CREATED = body("relay.created", {"store": OTHER, "retention": "acknowledged", "max_active": 3}, ms=40)


def test_the_state_before_any_event_stands_at_genesis():
    state = new_state(STORE)
    assert (state.store, state.frontier, state.evicted, state.floor, state.producers) == (
        STORE,
        GENESIS,
        GENESIS,
        None,
        {},
    )
    assert (state.retention, state.max_active, state.seed) == ("checkpointed", 1, None)


def test_created_says_what_the_relay_is():
    state = folded(CREATED)
    assert (state.store, state.retention, state.max_active, state.seed) == (OTHER, "acknowledged", 3, None)
    assert (state.frontier, state.execution_since, state.last_event_at) == (at(1), 40, 40)


def test_created_with_bounded_retention():
    state = folded(body("relay.created", {"store": OTHER, "retention": {"bytes": 9}, "max_active": 1}))
    assert state.retention == RetentionBytes(9)


def test_restored_says_what_the_relay_is_and_keeps_what_the_seed_gave():
    seeded = RelayState(store=STORE, frontier=at(20), producers={"p": ProducerMark(7, at(19))}, evicted=at(20))
    data = {"store": OTHER, "seed": bytes(32), "retention": "checkpointed", "max_active": 2}
    state = folded(body("relay.restored", data, ms=60), state=seeded)
    assert (state.store, state.retention, state.max_active, state.seed) == (OTHER, "checkpointed", 2, bytes(32))
    assert (state.frontier, state.execution_since) == (at(21), 60)
    assert (state.producers, state.evicted) == ({"p": ProducerMark(7, at(19))}, at(20))


def test_evicted_moves_evicted_and_nothing_else():
    state = folded(CREATED, body("x", producer=("p", 1)))
    before = copy.deepcopy(state)
    fold(state, at(3), body("relay.evicted", {"through": [2, at(2).digest]}, ms=70))
    assert state.evicted == at(2)
    before.evicted, before.frontier, before.last_event_at = at(2), at(3), 70
    assert state == before


def test_lost_forgets_every_producer():
    state = folded(CREATED, body("x", producer=("p", 1)), body("x", producer=("q", 5)))
    fold(state, at(9), body("relay.lost", {"first": 4, "last": 8, "reason": "salvage"}))
    assert state.producers == {}
    assert state.frontier == at(9)


def test_clamped_carries_the_sequence_of_what_it_replaces():
    state = folded(CREATED, body("relay.clamped", {"kind": "output", "bytes": 3_000_000}, producer=("p", 8)))
    assert state.producers == {"p": ProducerMark(8, at(2))}


def test_an_applications_event_moves_the_frontier_and_its_producer():
    state = folded(CREATED)
    before = copy.deepcopy(state)
    fold(state, at(2), body("output", {"text": "x"}, ms=55, producer=("p", 4)))
    before.frontier, before.last_event_at, before.producers = at(2), 55, {"p": ProducerMark(4, at(2))}
    assert state == before


def test_an_applications_event_without_a_producer_moves_the_frontier_alone():
    state = folded(CREATED, body("output", [1, 2, 3], ms=55))
    assert (state.frontier, state.last_event_at, state.producers) == (at(2), 55, {})


@pytest.mark.parametrize(
    "kind", ["relay.later", "command.queued", "checkpoint.x", "surface.queued", "reply.kept", "edits.x"]
)
def test_a_reserved_kind_that_is_not_known_is_of_a_later_format(kind):
    state = folded(CREATED, body("x", producer=("p", 1)))
    if kind in ("command.queued", "surface.queued", "reply.kept"):
        kind += ".later"
    before = copy.deepcopy(state)
    with pytest.raises(FoldError) as refusal:
        fold(state, at(3), body(kind, {}))
    assert (refusal.value.reason, refusal.value.ordinal) == ("later_format", 3)
    assert state == before


WRONG = {
    "relay.created": {"store": b"short", "retention": "checkpointed", "max_active": 1},
    "relay.restored": {"store": STORE, "seed": b"short", "retention": "checkpointed", "max_active": 1},
    "relay.evicted": {"through": 5},
    "relay.lost": None,
    "relay.clamped": [1, 2],
}


@pytest.mark.parametrize("kind", WRONG)
def test_data_that_is_not_its_kinds_is_corrupt_and_changes_nothing(kind):
    state = folded(CREATED, body("x", producer=("p", 1)))
    before = copy.deepcopy(state)
    with pytest.raises(FoldError) as refusal:
        fold(state, at(3), body(kind, WRONG[kind], producer=("p", 2)))
    assert (refusal.value.reason, refusal.value.ordinal) == ("journal_corrupt", 3)
    assert state == before


NAMES = st.sampled_from(["p", "q", "r"])


@given(st.lists(st.tuples(st.integers(1, 6), st.one_of(st.none(), NAMES), st.integers(0, 99)), max_size=8))
@BRISK
def test_a_run_folds_as_its_events_do_one_by_one(runs):
    one_by_one, at_once = folded(CREATED), folded(CREATED)
    ordinal = 1
    for length, name, ms in runs:
        for sequence in range(1, length + 1):
            ordinal += 1
            fold(one_by_one, at(ordinal), body("output", ms=ms, producer=name and (name, ordinal * 10 + sequence)))
        producer = Producer(name, ordinal * 10 + length) if name else None
        fold_run(at_once, at(ordinal), Run(ms, producer))
    assert at_once == one_by_one
    assert list(at_once.producers) == list(one_by_one.producers)


def test_a_captured_state_is_left_alone_by_what_follows():
    state = folded(CREATED, body("x", producer=("p", 1)))
    captured = state.capture()
    same = copy.deepcopy(state)
    folded(
        body("x", producer=("p", 2)),
        body("x", producer=("q", 1)),
        body("relay.evicted", {"through": [2, at(2).digest]}),
        body("relay.lost", {"first": 9, "last": 9, "reason": "r"}),
        state=state,
    )
    assert captured == same
    assert state != captured


def test_what_is_done_to_a_captured_state_does_not_come_back():
    state = folded(CREATED, body("x", producer=("p", 1)))
    same = copy.deepcopy(state)
    folded(body("x", producer=("q", 1)), state=state.capture())
    assert state == same


def test_two_new_states_share_nothing():
    folded(body("x", producer=("p", 1)))
    assert new_state(STORE).producers == {}


RETENTIONS = st.one_of(st.sampled_from(["checkpointed", "acknowledged"]), st.integers(1, 2**40).map(RetentionBytes))
CURSORS = st.builds(Cursor, st.integers(0, 2**64 - 2), st.binary(min_size=16, max_size=16))
MARKS = st.builds(ProducerMark, st.integers(1, 2**63), CURSORS)


@given(
    st.builds(
        RelayState,
        store=st.binary(min_size=16, max_size=16),
        retention=RETENTIONS,
        max_active=st.integers(1, 100),
        frontier=CURSORS,
        evicted=CURSORS,
        floor=st.one_of(st.none(), CURSORS),
        seed=st.one_of(st.none(), st.binary(min_size=32, max_size=32)),
        execution_since=st.integers(0, 2**50),
        last_event_at=st.integers(-5, 2**50),
        producers=st.dictionaries(st.text(min_size=1, max_size=3), MARKS, max_size=4),
    )
)
@BRISK
def test_a_state_comes_back_from_its_encoding_with_its_producers_in_their_order(state):
    found = decode_state(encode_state(state))
    assert found == state
    assert list(found.producers) == list(state.producers)
    assert encode_state(found) == encode_state(state)


@pytest.mark.parametrize(
    "encoded", [b"", b"\x80", b"\xc0", encode_state(new_state(STORE)) + b"\x00", encode_state(new_state(STORE))[:-1]]
)
def test_bytes_that_are_no_state_are_refused(encoded):
    with pytest.raises(msgspec.DecodeError):
        decode_state(encoded)


def test_a_state_with_a_field_that_this_version_does_not_know_is_refused():
    fields = msgspec.msgpack.decode(encode_state(new_state(STORE)))
    with pytest.raises(msgspec.DecodeError):
        decode_state(msgspec.msgpack.encode({**fields, "later": 1}))
