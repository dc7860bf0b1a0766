"""The text form of a cursor."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relayd.protocol.cursor import Cursor, format_cursor, parse_cursor

BRISK = settings(max_examples=200, derandomize=True, deadline=None)
VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "cursors.json").read_text())


@pytest.mark.parametrize("text", VECTORS["good"], ids=ascii)
def test_a_good_cursor_is_read_and_written_as_it_was(text):
    found = parse_cursor(text)
    assert found is not None
    ordinal, dash, digest = text.partition("-")
    assert found == Cursor(int(ordinal), bytes.fromhex(digest) if dash else None)
    assert format_cursor(found) == text


@pytest.mark.parametrize("text", VECTORS["malformed"], ids=ascii)
def test_a_malformed_cursor_is_none(text):
    assert parse_cursor(text) is None


HEX = "8b4d2ab5a1a01dd8ff1a90a06c6b2ed6"
MORE = [
    "1-" + HEX + "\n", "1-" + HEX + " ", " 1-" + HEX, "1--" + HEX, "1 -" + HEX, "1- " + HEX, "-" + HEX, HEX,
    "01-" + HEX, "1-" + HEX + "-" + HEX, "1-0x" + HEX[2:], "1-" + "\u0661" * 32, "18446744073709551616-" + HEX,
    "\uff11", "²", "1e3", "1,000", "0000000000000000000", "1\x00", "\x001", "1\u2028", "latest", "earliest", "null",
]  # fmt: skip


@pytest.mark.parametrize("text", MORE, ids=ascii)
def test_nothing_else_is_read_as_a_cursor(text):
    assert parse_cursor(text) is None


def test_the_greatest_number_of_64_bits_is_read():
    assert parse_cursor("18446744073709551615") == Cursor(2**64 - 1)


@given(st.integers(0, 2**64 - 1), st.one_of(st.none(), st.binary(min_size=16, max_size=16)))
@BRISK
def test_every_cursor_comes_back_from_its_text(ordinal, digest):
    text = f"{ordinal}" if digest is None else f"{ordinal}-{digest.hex()}"
    assert format_cursor(Cursor(ordinal, digest)) == text
    assert parse_cursor(text) == Cursor(ordinal, digest)


def naive(text: str) -> bool:
    number, dash, digest = text.partition("-")
    if not number or any(letter not in "0123456789" for letter in number) or len(number) > 20:
        return False
    if (number[0] == "0" and number != "0") or int(number) >= 2**64:
        return False
    return not dash or (len(digest) == 32 and all(letter in "0123456789abcdef" for letter in digest))


@given(st.text(st.sampled_from("0019af-A \n+"), max_size=36))
@BRISK
def test_text_near_the_grammar_is_judged_letter_by_letter(text):
    assert (parse_cursor(text) is not None) == naive(text)


@given(st.text(max_size=8))
@BRISK
def test_any_text_is_judged_letter_by_letter(text):
    assert (parse_cursor(text) is not None) == naive(text)
