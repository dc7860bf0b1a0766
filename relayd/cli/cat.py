"""`relayd cat`: the events of files, without a daemon."""

from typing import Final, Literal, assert_never

import click
import msgspec

from relayd.cli.json_form import line_of_body
from relayd.cli.options import InputPath, cursor
from relayd.cli.output import closed_after, data_stream, printable, say
from relayd.cli.printers import GapDocument, GapLine
from relayd.journal.sealed import LaterSealedFormatError
from relayd.protocol.cursor import Cursor, Span, format_cursor
from relayd.recovery.cat import Collected, InFlight, Shown, StoredEvent, Unreadable, iter_path

DATA: Final = 65
_json_encode: Final = msgspec.json.Encoder().encode


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=InputPath())
@click.option("--after", type=cursor, default="0", metavar="CURSOR", help="Begin after this cursor's ordinal.")
def cat(paths: tuple[str, ...], *, after: Cursor) -> int:
    """Print the events of segments, journals, relays' directories or backups as JSON lines, without a daemon.

    What cannot be read is told on standard error, and stands as a line with the key `gap` where ordinals are missed;
    the exit code is 65 then. Events that are no longer kept are a gap too, and no damage. On a relay that a daemon has
    open, it ends where events are known to be on disk.

    \b
    $ relayd cat /var/lib/relayd/relays/build | jq -r 'select(.kind == "output").data.text'
    Compiling relay v0.1.0
    """  # noqa: D301
    missed = False
    stream = data_stream()
    for path in paths:
        try:
            with closed_after(iter_path(path, after=after.ordinal)) as found:
                for shown in found:
                    line, is_missed = _line(shown)
                    stream.write(line)
                    missed = missed or is_missed
        except LaterSealedFormatError as error:
            say(printable(f"{path}: {error}; a later version of relayd reads it"))
            missed = True
    stream.flush()
    return DATA if missed else 0


def _line(shown: Shown) -> tuple[bytes, bool]:
    """What is printed, and whether something that should be there is not; what is no event is told as well."""
    match shown:
        case StoredEvent():
            try:
                body = shown.decode()
            except msgspec.DecodeError as error:
                say(printable(f"event {shown.cursor.ordinal} is intact and no event of this version: {error}"))
                return _gap("unreadable", Span(shown.cursor.ordinal, shown.cursor.ordinal), shown.cursor), True
            return _json_encode(line_of_body(shown.cursor, body)) + b"\n", False
        case Unreadable(file=file, offset=offset, lost=lost, what=what, at_most=at_most):
            place = file if offset is None else f"{file} at byte {offset}"
            say(printable(f"{place}: {_missed(lost, at_most=at_most)}{what}"))
            return (b"", False) if lost is None else (_gap("unreadable", lost, Cursor(lost.last)), True)
        case Collected(file=file, gone=gone):
            say(printable(f"{file}: events {gone.first} to {gone.last} are no longer kept"))
            return _gap("evicted", gone, Cursor(gone.last)), False
        case InFlight(file=file, offset=offset, bytes=size_bytes):
            say(printable(f"{file} at byte {offset}: {size_bytes} bytes in flight, which a daemon is writing"))
            return b"", False
        case _:
            assert_never(shown)


def _missed(lost: Span | None, *, at_most: bool) -> str:
    if lost is None:
        return ""
    if at_most:
        return f"ordinals {lost.first} to {lost.last}, some of which may never have been used, are missed: "
    return f"events {lost.first} to {lost.last} are missed: "


def _gap(reason: Literal["unreadable", "evicted"], lost: Span, resume: Cursor) -> bytes:
    document = GapDocument(reason, lost.first, lost.last, format_cursor(resume))
    return _json_encode(GapLine(document)) + b"\n"
