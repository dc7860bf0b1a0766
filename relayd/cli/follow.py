"""`relayd follow`: what was missed, then live."""

from pathlib import Path

import click

from relayd.cli.cursor_file import read_cursor_file, write_cursor_file
from relayd.cli.options import Start, connect, cursor, json_option, relay_argument, socket_option, start_of
from relayd.cli.output import data_stream, say
from relayd.cli.printers import JsonPrinter, Printer, TextPrinter, sentence_of
from relayd.protocol.cursor import Cursor


@click.command()
@relay_argument
@click.option(
    "--from",
    "place",
    type=click.Choice(["earliest", "latest"]),
    default="earliest",
    show_default=True,
    help="Where to begin without a cursor.",
)
@click.option("--after", type=cursor, metavar="CURSOR", help="Begin after this cursor.")
@click.option(
    "--cursor-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Begin after the cursor in this file, if it is there; keep in it the cursor of what was printed.",
)
@click.option("-n", "--count", type=click.IntRange(min=1), metavar="N", help="End after N events.")
@click.option("--no-wait", is_flag=True, help="End at the latest event there is now.")
@socket_option
@json_option
def follow(
    relay: str,
    *,
    place: str,
    after: Cursor | None,
    cursor_file: Path | None,
    count: int | None,
    no_wait: bool,
    socket: str | None,
    as_json: bool,
) -> None:
    """Print the events of RELAY: first what was missed, then each as it becomes durable.

    Events that are lost to this reader are told, never passed over in silence.

    \b
    $ relayd follow build --json --cursor-file build.cursor | consume
    $ relayd follow build --from latest -n 1
    4312  2026-01-31 12:00:00.123  output  Compiling relay v0.1.0
    """  # noqa: D301
    if after is not None and cursor_file is not None:
        raise click.UsageError("--after and --cursor-file both say where to begin; give one of them")
    if cursor_file is not None:
        after = read_cursor_file(cursor_file)
    printer = JsonPrinter() if as_json else TextPrinter()
    _follow(relay, start_of(after, place), printer, cursor_file, count, live=not no_wait, socket=socket)


def _follow(
    relay: str,
    after: Start,
    printer: Printer,
    cursor_file: Path | None,
    count: int | None,
    *,
    live: bool,
    socket: str | None,
) -> None:
    """Page by page: print, flush, then say in the cursor file that it was printed."""
    stream = data_stream()
    remaining = count
    with connect(socket, reconnect=True) as client:
        if after == "latest" and cursor_file is not None:
            # What comes before the first event is printed must not be missed by the next following.
            after = client.attach(relay, "latest").through
            write_cursor_file(cursor_file, after)
        for page in client.pages(relay, after, live=live):
            if page.gap is not None:
                say(sentence_of(page.gap))
                stream.write(printer.gap(page.gap))
            events = page.events[:remaining]
            stream.writelines(map(printer.event, events))
            reached = events[-1].cursor if events else page.through
            remaining = None if remaining is None else remaining - len(events)
            stream.flush()
            if cursor_file is not None:
                write_cursor_file(cursor_file, reached)
            if remaining == 0:
                return
