"""Standard input cut into lines: the same input gives the same lines, however it arrives."""

import io
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relayd.cli import input_lines
from relayd.cli.input_lines import read_lines


class Chunks(io.RawIOBase):
    """A stream without a descriptor that gives the chunks one by one."""

    def __init__(self, chunks):
        self.chunks = [chunk for chunk in chunks if chunk]

    def read(self, size=-1):  # noqa: ARG002 - a stream's
        return self.chunks.pop(0) if self.chunks else b""


def lines_of(*chunks):
    return list(read_lines(Chunks(chunks), lambda: None))


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (b"", []),
        (b"\n", [b""]),
        (b"a\nb\n", [b"a", b"b"]),
        (b"a\n\nb", [b"a", b"", b"b"]),
        (b"a\r\n", [b"a\r"]),
        (b"\x00\xff\n", [b"\x00\xff"]),
    ],
)
def test_a_line_is_what_stands_before_a_line_end_and_what_is_left_at_the_end(text, lines):
    assert lines_of(text) == lines


@settings(max_examples=200)
@given(st.text(alphabet="aé€😀\n", max_size=60), st.lists(st.integers(0, 200), max_size=6))
def test_lines_do_not_depend_on_how_the_input_arrives_and_lose_nothing(text, cuts):
    whole = text.encode()
    places = sorted({cut for cut in cuts if cut < len(whole)})
    chunks = [whole[a:b] for a, b in zip([0, *places], [*places, len(whole)], strict=True)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(input_lines, "LINE_BYTES_MAX", 8)
        lines = lines_of(*chunks)
        assert lines == lines_of(whole)
    assert all(len(line) <= 8 for line in lines)
    assert b"".join(lines) == whole.replace(b"\n", b"")
    for line in lines:
        line.decode()  # no character is ever cut


def test_a_line_as_long_as_the_bound_is_one_line(monkeypatch):
    monkeypatch.setattr(input_lines, "LINE_BYTES_MAX", 8)
    assert lines_of(b"12345678\n12345678") == [b"12345678", b"12345678"]
    assert lines_of(b"123456789\n") == [b"12345678", b"9"]


def test_bytes_that_are_no_text_are_cut_at_the_bound(monkeypatch):
    monkeypatch.setattr(input_lines, "LINE_BYTES_MAX", 8)
    assert lines_of(b"\x80" * 9) == [b"\x80" * 8, b"\x80"]


def test_idle_is_called_when_no_input_is_there_and_not_while_there_is():
    read, write = os.pipe()
    calls = []

    def idle():
        calls.append("idle")
        if len(calls) == 1:
            os.write(write, b"late\n")
        else:
            os.close(write)

    os.write(write, b"early\nhalf")
    with os.fdopen(read, "rb", buffering=0) as stream:
        seen = [(line, len(calls)) for line in read_lines(stream, idle)]
    assert seen == [(b"early", 0), (b"halflate", 1)]
    assert len(calls) == 2
