import base64
import json
import struct
from pathlib import Path

import msgspec
import pytest
from fake_daemon import record_bytes
from hypothesis import given
from hypothesis import strategies as st

from relayd.client.errors import ProtocolViolationError
from relayd.client.events import Event, Gap, verify_events, verify_page
from relayd.protocol.cursor import Cursor, Span
from relayd.protocol.messages import ConsumerPosition, LostSpan, Page

VECTORS = json.loads((Path(__file__).parents[1] / "vectors/records.json").read_text())["records"]


def records(first, last):
    made = [record_bytes(ordinal, "output", {"n": ordinal}) for ordinal in range(first, last + 1)]
    return b"".join(record for record, _ in made), Cursor(last, made[-1][1])


def page(first, last, **changes):
    packed, through = records(first, last)
    fields = {"id": 1, "records": packed, "count": last - first + 1, "through": through, "latest": through}
    return Page(**fields | {"verified": True} | changes)


def empty(through, latest=None, **changes):
    return Page(1, b"", 0, through, latest or through, True, **changes)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: str(vector["ordinal"]))
def test_a_record_of_the_format_is_read_as_what_it_says(vector):
    (event,) = verify_events(bytes.fromhex(vector["record_hex"]), vector["ordinal"] - 1)
    assert event.cursor == Cursor(vector["ordinal"], bytes.fromhex(vector["digest_hex"]))
    said = vector["event"]
    assert (event.at, event.kind) == (said["recorded_at_ms"], said["kind"])
    assert event.command_id == said.get("command_id")
    assert event.producer == (tuple(said["producer"]) if "producer" in said else None)
    data = said.get("data")
    if isinstance(data, dict) and "$base64" in data:
        data = base64.b64decode(data["$base64"])
    assert event.data == data


def test_a_body_is_decoded_once_and_only_when_looked_at():
    record, _ = record_bytes(1, "k", [1, 2], "command-1")
    (event,) = verify_events(record, 0)
    assert event._read is None
    assert event.data is event.data
    assert event.data == [1, 2]
    assert msgspec.msgpack.decode(event.data_bytes) == [1, 2]
    assert event.command_id == "command-1"


def test_events_are_equal_by_ordinal_and_digest():
    packed, _ = records(1, 2)
    one, two = verify_events(packed, 0)
    again = verify_events(packed, 0)[0]
    again.data  # noqa: B018 - what was looked at makes no difference
    assert one == again
    assert hash(one) == hash(again)
    assert one != two
    assert one != "1"
    assert repr(one) == f"<Event 1-{one.digest.hex()} output>"


def test_a_body_of_a_later_version_is_told():
    event = Event(7, bytes(16), msgspec.msgpack.encode([1, "k", None, None, None, "later"]))
    with pytest.raises(ProtocolViolationError, match="event 7 has a body that this version"):
        event.kind  # noqa: B018


@given(st.integers(1, 5), st.integers(0, 10_000), st.integers(0, 7))
def test_one_flipped_bit_anywhere_is_found(count, position, bit):
    packed, _ = records(1, count)
    broken = bytearray(packed)
    broken[position % len(packed)] ^= 1 << bit
    with pytest.raises(ProtocolViolationError, match="does not verify"):
        verify_events(bytes(broken), 0)


@given(st.integers(1, 4), st.integers(1, 10_000))
def test_a_page_cut_anywhere_is_found(count, cut):
    packed, _ = records(1, count)
    ends = {len(records(1, last)[0]) for last in range(1, count + 1)}
    cut %= len(packed)
    if cut in ends or cut == 0:
        assert len(verify_events(packed[:cut], 0)) < count
    else:
        with pytest.raises(ProtocolViolationError):
            verify_events(packed[:cut], 0)


@pytest.mark.parametrize(
    ("packed", "complaint"),
    [
        (records(1, 1)[0] + records(3, 3)[0], "ordinal 3 stands where 2 belongs"),
        (records(2, 2)[0], "ordinal 2 stands where 1 belongs"),
        (records(1, 1)[0] + records(1, 1)[0], "ordinal 1 stands where 2 belongs"),
        (struct.pack("<IQ16s", 0, 1, bytes(16)), "a record says its body has 0 bytes"),
        (struct.pack("<IQ16s", 3 << 20, 1, bytes(16)) + bytes(3 << 20), "a record says its body has 3145728 bytes"),
        (records(1, 1)[0] + b"1234", "a record's header is cut short"),
    ],
    ids=["gap", "late", "twice", "empty body", "large body", "scraps"],
)
def test_what_is_wrong_is_named(packed, complaint):
    with pytest.raises(ProtocolViolationError, match=complaint):
        verify_events(packed, 0)


CURSOR_2 = records(1, 2)[1]
OTHER_2 = Cursor(2, b"other" + bytes(11))


@pytest.mark.parametrize(
    ("after", "answer", "ordinals", "gap"),
    [
        (CURSOR_2, page(3, 5), [3, 4, 5], None),
        (Cursor(2), page(3, 5), [3, 4, 5], None),
        ("earliest", page(1, 3), [1, 2, 3], None),
        ("earliest", page(4, 5, gap=LostSpan(1, 3)), [4, 5], Gap("evicted", Span(1, 3), Cursor(3))),
        ("earliest", empty(CURSOR_2, gap=LostSpan(1, 2)), [], Gap("evicted", Span(1, 2), Cursor(2))),
        ("earliest", empty(Cursor(0, bytes(16))), [], None),
        ("latest", empty(CURSOR_2), [], None),
        ("latest", page(8, 9), [8, 9], None),
        (ConsumerPosition("c"), page(8, 9), [8, 9], None),
        (CURSOR_2, empty(CURSOR_2), [], None),
        (Cursor(2), empty(CURSOR_2), [], None),
        (CURSOR_2, empty(Cursor(2)), [], None),
    ],
)
def test_pages_that_are_as_they_say(after, answer, ordinals, gap):
    proven = verify_page(after, answer)
    assert [event.ordinal for event in proven.events] == ordinals
    assert proven.gap == gap
    assert proven.through.ordinal == answer.through.ordinal
    assert proven.through.digest is not None
    assert proven.latest == answer.latest


@pytest.mark.parametrize(
    ("after", "answer"),
    [
        (Cursor(1), page(3, 5)),
        ("earliest", page(2, 3)),
        ("earliest", page(3, 4, gap=LostSpan(1, 3))),
        (CURSOR_2, page(3, 5, count=2)),
        (CURSOR_2, page(3, 5, through=Cursor(4))),
        (CURSOR_2, page(3, 5, through=Cursor(5, bytes(16)))),
        (CURSOR_2, page(3, 5, latest=Cursor(4))),
        (CURSOR_2, empty(Cursor(3))),
        (CURSOR_2, empty(OTHER_2)),
        ("latest", page(8, 9, count=3)),
        ("latest", page(8, 9, count=12)),
    ],
)
def test_pages_that_say_what_is_not_so(after, answer):
    with pytest.raises(ProtocolViolationError):
        verify_page(after, answer)
