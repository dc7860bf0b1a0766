"""The demo's account: what a program printed, against what a reader got. Pure; believes nobody's numbers."""

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from relayd.client.events import Event

OUTPUT: Final = "output"
"""The kind of a line's event, as `relayd record` makes them."""


class Comparison(NamedTuple):
    """Lines that a reader got, against those that were printed.

    `lost` were printed and not read, `twice` read more often than printed, `altered` read and never printed;
    `in_order`: what was read is what was printed, with lines left out at most.
    """

    read: int
    lost: int
    twice: int
    altered: int
    in_order: bool

    @property
    def exact(self) -> bool:
        """Whether the reader got just what was printed."""
        return self.in_order and not (self.lost or self.twice or self.altered)


def compare(printed: Sequence[bytes], read: Sequence[bytes]) -> Comparison:
    """Counts each difference between the lines printed and the lines read."""
    missing = Counter(printed)
    missing.subtract(read)
    known = set(printed)
    beyond = [(line, -count) for line, count in missing.items() if count < 0]
    return Comparison(
        read=len(read),
        lost=sum(count for count in missing.values() if count > 0),
        twice=sum(count for line, count in beyond if line in known),
        altered=sum(count for line, count in beyond if line not in known),
        in_order=_is_within(read, printed),
    )


def _is_within(some: Sequence[bytes], every: Sequence[bytes]) -> bool:
    rest = iter(every)
    return all(line in rest for line in some)


def lines_of(content: bytes) -> list[bytes]:
    """What was printed as lines; what follows the last line end is one too, where it is not empty."""
    *lines, rest = content.split(b"\n")
    return [*lines, rest] if rest else lines


def data_of(line: bytes) -> dict[str, object]:
    """The data of a line's event: its text, or its bytes where it is no UTF-8."""
    try:
        return {"stream": "stdout", "text": line.decode()}
    except UnicodeDecodeError:
        return {"stream": "stdout", "bytes": line}


def line_of(event: Event) -> bytes | None:
    """The line that an event holds; None for an event that is no line."""
    if event.kind != OUTPUT:
        return None
    match event.data:
        case {"text": str(text)}:
            return text.encode()
        case {"bytes": bytes(line)}:
            return line
        case _:
            return None
