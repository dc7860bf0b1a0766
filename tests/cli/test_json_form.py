"""The JSON form of events (docs/reference/cli.md, "Events")."""

import json
import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relayd.cli.json_form import from_json, line_of_body, to_json
from relayd.protocol.cursor import Cursor
from relayd.protocol.event import decode_body, encode_body

KEYS = st.one_of(st.sampled_from(["$base64", "$map", "a"]), st.text(max_size=4))
VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**64 - 1),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(max_size=8),
        st.binary(max_size=8),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (b"\x00\xff", {"$base64": "AP8="}),
        (b"", {"$base64": ""}),
        ({"$base64": "AP8="}, {"$map": {"$base64": "AP8="}}),
        ({"$base64": b"\x00"}, {"$map": {"$base64": {"$base64": "AA=="}}}),
        ({"$map": {"a": 1}}, {"$map": {"$map": {"a": 1}}}),
        ({"$map": b""}, {"$map": {"$map": {"$base64": ""}}}),
        ({"$map": {"$base64": 1}}, {"$map": {"$map": {"$map": {"$base64": 1}}}}),
        ([math.inf, -math.inf], ["Infinity", "-Infinity"]),
        ({"a": [1, None, True, "x"]}, {"a": [1, None, True, "x"]}),
    ],
)
def test_each_value_has_the_form_that_the_page_says(value, form):
    assert to_json(value) == form


def test_nan_is_the_word():
    assert to_json({"a": math.nan}) == {"a": "NaN"}


@given(VALUES)
def test_what_was_made_json_comes_back_through_any_json_reader(value):
    text = json.dumps(to_json(value))
    assert from_json(json.loads(text)) == value


@given(VALUES)
def test_the_encoder_takes_every_form(value):
    assert from_json(json.loads(msgspec.json.encode(to_json(value)))) == value


def test_base64_that_is_none_is_refused():
    with pytest.raises(ValueError, match="holds no base64"):
        from_json({"$base64": "*"})


def test_a_line_leaves_out_what_is_null():
    body = decode_body(encode_body(1700000000000, "tick"))
    assert json.loads(msgspec.json.encode(line_of_body(Cursor(3, bytes(16)), body))) == {
        "ordinal": 3,
        "cursor": "3-" + "0" * 32,
        "at_ms": 1700000000000,
        "kind": "tick",
    }


def test_a_line_says_command_and_producer():
    body = decode_body(encode_body(1, "tick", msgspec.Raw(b"\x01"), "command-1", ("p", 9)))
    line = json.loads(msgspec.json.encode(line_of_body(Cursor(3, bytes(16)), body)))
    assert (line["data"], line["command_id"], line["producer"]) == (1, "command-1", {"name": "p", "sequence": 9})
