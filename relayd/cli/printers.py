"""How `relayd follow` and `cat` print events: lines for people, or JSON lines (docs/reference/cli.md, "Events")."""

from typing import Final, Protocol

import msgspec

from relayd.cli.json_form import EventLine, ProducerLine, to_json
from relayd.cli.output import format_time, printable
from relayd.client.events import Event, Gap
from relayd.protocol.cursor import format_cursor

_json_encode: Final = msgspec.json.Encoder().encode


class GapDocument(msgspec.Struct):
    """Events `first_ordinal` to `last_ordinal` are lost to this reader; it goes on after `cursor`."""

    reason: str
    first_ordinal: int
    last_ordinal: int
    cursor: str


class GapLine(msgspec.Struct):
    """The JSON line that stands for a gap: no event has the key `gap`."""

    gap: GapDocument


class Printer(Protocol):
    """Turns what a reader gets into lines of bytes."""

    def event(self, event: Event) -> bytes:
        """The line of an event."""
        ...

    def gap(self, gap: Gap) -> bytes:
        """The line of a gap; empty where only standard error tells of it."""
        ...


class TextPrinter:
    """Lines for people: ordinal, time, kind, and the text of what has one."""

    def event(self, event: Event) -> bytes:
        """`4312  2026-01-31 12:00:00.123  output  Compiling`."""
        match event.data:
            case {"text": str(text)}:
                shown = printable(text)
            case None:
                shown = ""
            case data:
                shown = printable(_json_encode(to_json(data)).decode())
        return f"{event.ordinal}  {format_time(event.at)}  {event.kind}  {shown}".rstrip().encode() + b"\n"

    def gap(self, gap: Gap) -> bytes:  # noqa: ARG002 - a Printer's
        """Nothing."""
        return b""


class JsonPrinter:
    """One JSON document a line."""

    def event(self, event: Event) -> bytes:
        """An EventLine."""
        producer = None if event.producer is None else ProducerLine(*event.producer)
        data = to_json(event.data)
        cursor = format_cursor(event.cursor)
        line = EventLine(event.ordinal, cursor, event.at, event.kind, data, event.command_id, producer)
        return _json_encode(line) + b"\n"

    def gap(self, gap: Gap) -> bytes:
        """A GapLine."""
        document = GapDocument(gap.reason, gap.lost.first, gap.lost.last, format_cursor(gap.resume))
        return _json_encode(GapLine(document)) + b"\n"


def sentence_of(gap: Gap) -> str:
    """A gap told to a person."""
    what = f"events {gap.lost.first} to {gap.lost.last}"
    why = "are no longer kept" if gap.reason == "evicted" else "cannot be read (`relayd verify` says more)"
    return f"gap: {what} {why}; going on after {gap.resume.ordinal}"
