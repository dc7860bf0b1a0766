"""Standard input as lines that become events, without waiting longer than there is something to do."""

import fcntl
import os
import select
from collections.abc import Callable, Iterator
from typing import BinaryIO, Final

READ_BYTES: Final = 256 * 1024
LINE_BYTES_MAX: Final = 1024 * 1024
"""A longer line becomes several events, cut at the same places whenever the same input is read again."""


class LineTooLongError(Exception):
    """A line longer than the bound, where none may be cut."""


def is_closed(stream: BinaryIO) -> bool:
    """Whether a standard stream was closed by whoever started the process, so that nothing can be read from it."""
    try:
        return fcntl.fcntl(stream.fileno(), fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY
    except OSError:
        # No descriptor: everything is there already.
        return False


def read_lines(
    stream: BinaryIO, idle: Callable[[], None], *, line_bytes_max: int | None = None, cut: bool = True
) -> Iterator[bytes]:
    """Lines of `stream` without their ends; what follows the last line end is a line too, where it is not empty.

    `idle` is called whenever no more input is there for now: what is recorded so far need not wait for it. Without
    `cut`, a line over `line_bytes_max` raises LineTooLongError.
    """
    line_bytes_max = line_bytes_max or LINE_BYTES_MAX
    pending = bytearray()
    searched = 0
    for chunk in _chunks(stream, idle):
        pending += chunk
        start = 0
        while True:
            end = pending.find(b"\n", max(start, searched), start + line_bytes_max + 1)
            if end >= 0:
                yield bytes(pending[start:end])
                start = end + 1
            elif len(pending) - start <= line_bytes_max:
                break
            elif cut:
                place = _character_end(pending, start + line_bytes_max)
                yield bytes(pending[start:place])
                start = place
            else:
                raise LineTooLongError
        del pending[:start]
        searched = len(pending)
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
