import pytest
from hypothesis import given
from hypothesis import strategies as st

from relayd.journal.names import SegmentKind, SegmentName, parse_segment_name, segment_name
from relayd.protocol.names import is_command_id, is_identity, is_relay_name

SPAN = "00000000000000000001-00000000000000000042"


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("active.log", SegmentName(SegmentKind.ACTIVE, 0, 0)),
        (SPAN + ".log", SegmentName(SegmentKind.ROTATED, 1, 42)),
        (SPAN + ".log.zst", SegmentName(SegmentKind.SEALED, 1, 42)),
        (SPAN + ".lost", SegmentName(SegmentKind.LOST, 1, 42)),
        ("00000000000000000007-00000000000000000007.log", SegmentName(SegmentKind.ROTATED, 7, 7)),
        (f"{1:020}-{2**64 - 2}.log", SegmentName(SegmentKind.ROTATED, 1, 2**64 - 2)),
    ],
)
def test_a_segment_is_named_by_its_ordinals_in_20_digits(name, parsed):
    assert parse_segment_name(name) == parsed
    assert parsed.text == name
    assert segment_name(*parsed) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "active.log.new",
        "active.log~",
        SPAN,
        SPAN + ".log.new",
        SPAN + ".log.zst.new",
        SPAN + ".zst",
        SPAN + ".log\n",
        "1-42.log",
        "0" + SPAN + ".log",
        f"{0:020}-{42:020}.log",
        f"{42:020}-{1:020}.log",
        f"{1:020}-{2**64 - 1}.log",
        f"{1:020}-{10**20 - 1}.log",
        SPAN.replace("1", "١") + ".log",
    ],
)
def test_unfinished_and_unknown_names_and_impossible_spans_are_no_segments(name):
    assert parse_segment_name(name) is None


@given(st.sampled_from(list(SegmentKind)[1:]), st.integers(1, 2**64 - 2), st.integers(0, 2**40))
def test_every_possible_span_comes_back_from_its_name(kind, first, more):
    last = min(first + more, 2**64 - 2)
    assert parse_segment_name(segment_name(kind, first, last)) == SegmentName(kind, first, last)


@pytest.mark.parametrize("name", ["a", "0", "demo", "a.b_c-d", "9" * 64, "a..b"])
def test_relay_names(name):
    assert is_relay_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", ".new", "-a", "_a", "A", "a" * 65, "a/b", "a b", "a\n", "ä", "a\0"])
def test_no_relay_names(name):
    assert not is_relay_name(name)


@pytest.mark.parametrize("text", ["a", "x" * 128, "Anna Müller", "漢字", " a "])
def test_identities(text):
    assert is_identity(text)


@pytest.mark.parametrize("text", ["", " ", "   ", "x" * 129, "a\n", "a\0", "\x7f", "a\u2028b"])
def test_no_identities(text):
    assert not is_identity(text)


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("cmd-00001", True),
        ("A" * 128, True),
        ("a_b-C9x0", True),
        ("short12", False),
        ("A" * 129, False),
        ("cmd 00001", False),
        ("cmd-00001\n", False),
        ("cmd.00001", False),
        ("cmd-0000ä", False),
    ],
)
def test_command_ids(text, good):
    assert is_command_id(text) is good
