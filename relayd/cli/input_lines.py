"""Standard input as lines that become events, without waiting longer than there is something to do."""

import os
import select
from collections.abc import Callable, Iterator
from typing import BinaryIO, Final

READ_BYTES: Final = 256 * 1024
LINE_BYTES_MAX: Final = 1024 * 1024
"""A longer line becomes several events, cut at the same places whenever the same input is read again."""


def read_lines(stream: BinaryIO, idle: Callable[[], None]) -> Iterator[bytes]:
    """Lines of `stream` without their ends; what follows the last line end is a line too, where it is not empty.

    `idle` is called whenever no more input is there for now: what is recorded so far need not wait for it.
    """
    pending = bytearray()
    for chunk in _chunks(stream, idle):
        pending += chunk
        start = 0
        while True:
            end = pending.find(b"\n", start, start + LINE_BYTES_MAX + 1)
            if end >= 0:
                yield bytes(pending[start:end])
                start = end + 1
            elif len(pending) - start > LINE_BYTES_MAX:
                cut = _character_end(pending, start + LINE_BYTES_MAX)
                yield bytes(pending[start:cut])
                start = cut
            else:
                break
        del pending[:start]
    if pending:
        yield bytes(pending)


def _chunks(stream: BinaryIO, idle: Callable[[], None]) -> Iterator[bytes]:
    try:
        descriptor = stream.fileno()
    except OSError:
        # No descriptor: everything is there already.
        while chunk := stream.read(READ_BYTES):
            yield chunk
        return
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN | select.POLLHUP)
    while True:
        if not waiting.poll(0):
            idle()
        chunk = os.read(descriptor, READ_BYTES)
        if not chunk:
            return
        yield chunk


def _character_end(text: bytearray, cut: int) -> int:
    """The last place at or before `cut` where a UTF-8 character begins; `cut` where the bytes are no UTF-8."""
    for place in range(cut, cut - 4, -1):
        if text[place] & 0xC0 != 0x80:  # noqa: PLR2004 - the mark of a byte that continues a character
            return place
    return cut
