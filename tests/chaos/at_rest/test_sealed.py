"""Damage to a sealed segment at rest: the relay opens, readers lose the damaged range alone, verify finds it."""

import itertools

import pytest
from chaos.at_rest.damage import bits, cuts, flipped
from chaos.at_rest.judge import judge
from chaos.at_rest.relay import Relay
from chaos.at_rest.shapes import ACTIVE, ROTATED, SEALED, SHAPES, THIRD_SEGMENT, collected, layered
from support import oracle, sealed_oracle
from support.inside import inside, run_virtually
from support.relays import OTHER_STORE, cursor, events, sealed
from support.wire import records

FRAMES = [(1, 3), (4, 6), (7, 7)]
WHOLE = layered()[SEALED]


def frame_ends():
    return [entry[1] + entry[2] for entry in sealed_oracle.read_sealed(WHOLE)[0]["frames"]]


def check(relay, files, expected):
    """Proves that readers lose exactly the ordinals of `expected`, a set of acceptable ranges; gives the lost ones."""
    whole = judge(layered()).records
    assert SEALED in relay.put(files).findings()
    assert relay.differences() == []
    served = relay.outcome
    assert served.last == 16
    assert served.unreadable in expected
    assert served.records == {ordinal: one for ordinal, one in whole.items() if ordinal not in served.unreadable}
    return served.unreadable


def test_every_bit_is_right_bytes_or_exactly_the_lost_range_and_verify_finds_each(relay):
    """In a frame: its ordinals; in the index: the file's. What zstd does not mind is found by verify all the same."""
    ends = frame_ends()
    harmless = flips = 0
    for bit, files in bits(layered(), SEALED, 7):
        struck = next((span for span, end in zip(FRAMES, ends, strict=True) if bit // 8 < end), (1, 7))
        lost = frozenset(range(struck[0], struck[1] + 1))
        in_frame = bit // 8 < ends[-1]
        harmless += not check(relay, files, {lost, frozenset()} if in_frame else {lost})
        flips += 1
    assert flips > len(WHOLE)
    assert harmless <= flips // 100


def test_truncated_anywhere_all_of_it_is_unreadable_and_verify_finds_it(relay):
    for _, files in cuts(layered(), SEALED, 5):
        check(relay, files, {frozenset(range(1, 8))})


@pytest.mark.parametrize(
    "more",
    [
        b"\0",
        b"x",
        bytes(4096),
        sealed_oracle.frame(b"more"),
        sealed_oracle.index_frame({"format": 1}),
        WHOLE,
        WHOLE[-300:],
    ],
    ids=["a zero", "a byte", "zeros", "a frame", "an index", "itself", "its end"],
)
def test_junk_or_a_second_frame_appended_makes_it_unreadable_and_verify_finds_it(relay, more):
    check(relay, layered() | {SEALED: WHOLE + more}, {frozenset(range(1, 8))})


@pytest.mark.parametrize(
    "more", [b"x", sealed_oracle.frame(b""), sealed_oracle.frame(oracle.record(8, b"\x92\x01\xa1x"))]
)
def test_a_second_frame_in_front_of_the_index_makes_it_unreadable(relay, more):
    end = frame_ends()[-1]
    check(relay, layered() | {SEALED: WHOLE[:end] + more + WHOLE[end:]}, {frozenset(range(1, 8))})


@pytest.mark.parametrize(
    "other",
    [
        b"",
        b"R",
        bytes(len(WHOLE)),
        layered()[ROTATED],
        layered()[ACTIVE],
        layered()["snapshot"],
        sealed(1, 6, segment=THIRD_SEGMENT),
        sealed(2, 8, segment=THIRD_SEGMENT),
        sealed(1, 7, store=OTHER_STORE),
        sealed_oracle.frame(b"whatever"),
    ],
    ids=[
        "nothing",
        "a byte",
        "zeros",
        "rotated",
        "active",
        "snapshot",
        "fewer",
        "shifted",
        "another relay's",
        "no index",
    ],
)
def test_replaced_by_other_bytes_all_of_it_is_unreadable_and_verify_finds_it(relay, other):
    check(relay, layered() | {SEALED: other}, {frozenset(range(1, 8))})


def test_other_records_under_a_right_index_of_their_own_are_told_by_nobody_but_a_reader_with_a_digest(relay):
    """Whoever can write a whole valid sealed segment can forge; its readers' cursors tell (`digest_mismatch`)."""
    forged = sealed_oracle.sealed_of([events(1, 6), [b"\x92\x01\xa1x"]], segment=THIRD_SEGMENT)
    assert relay.put(layered() | {SEALED: forged}).differences() == []
    assert relay.put(layered() | {SEALED: forged}).open().records[7].digest != cursor(7)[1]


def test_where_the_fold_needs_it_the_damaged_range_is_journal_corrupt(relay):
    """No snapshot is past it: nothing may be made up."""
    files = {path: content for path, content in layered().items() if not path.startswith("snapshot")}
    for bit, damaged in bits(files, SEALED, 41):
        assert relay.put(damaged).differences() == []
        got = relay.outcome
        if bit // 8 >= frame_ends()[-1]:
            assert (got.code, got.file) == ("journal_corrupt", SEALED)


def test_damage_below_the_base_fails_nothing(relay):
    """A leftover of a collection that was cut off is nobody's business."""
    leftover = f"journal/{1:020}-{4:020}.log.zst"
    for content in (b"", b"junk", sealed(1, 4), flipped(sealed(1, 4), 99), sealed(1, 4, store=OTHER_STORE)):
        served = relay.put(collected() | {leftover: content}).open()
        assert (served.last, set(served.records), served.base) == (16, set(range(5, 17)), 4)
        assert relay.files()[leftover] == content


def test_over_the_socket_it_is_unreadable_with_the_lost_range_and_a_cursor_past_it(relay):
    """And from that cursor on everything is served."""
    ends = frame_ends()
    for number, (first, last) in enumerate(FRAMES):
        damaged = flipped(WHOLE, 8 * (ends[number] - 10))
        relay.put(layered() | {SEALED: damaged})
        run_virtually(lambda first=first, last=last: _read_over_the_damage(relay, first, last))


async def _read_over_the_damage(relay: Relay, first: int, last: int) -> None:
    async with inside(relay.disk.root) as daemon:
        client = await daemon.connect()
        await client.done("open", relay="demo")
        after = cursor(first - 1)
        code, retryable, detail = await client.refusal("attach", relay="demo", after=after)
        assert (code, retryable, detail["reason"]) == ("desynchronized", False, "unreadable")
        assert (detail["lost"], detail["requested"]) == ([first, last], after)
        page = await client.done("attach", relay="demo", after=detail["earliest"])
        assert [one.ordinal for one in records(page["records"])][:1] == [last + 1]
        rest = await client.read_all("demo", detail["earliest"])
        assert [one.ordinal for one in rest] == list(range(last + 1, 17))


@pytest.mark.parametrize("shape", ["collected", "rotating", "sealing"])
def test_every_sealed_file_of_every_shape_opens_whatever_its_bytes(relay, shape):
    """Beside its rotated file a damaged copy is set aside and everything is served."""
    files = SHAPES[shape]()
    for path in [path for path in files if path.endswith(".zst")]:
        for _, damaged in itertools.chain(bits(files, path, 89), cuts(files, path, 67)):
            assert relay.put(damaged).differences() == []
            served = relay.outcome
            assert served.last == 16
            if f"{ROTATED}.zst" == path:
                assert served.unreadable == frozenset()
