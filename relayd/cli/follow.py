"""`relayd follow`: what was missed, then live."""

from pathlib import Path

import click

from relayd.cli.cursor_file import check_cursor_file, read_cursor_file, write_cursor_file
from relayd.cli.options import Start, connect, cursor, json_option, relay_argument, socket_option, start_of
from relayd.cli.output import closed_after, data_stream, say
from relayd.cli.printers import JsonPrinter, Printer, TextPrinter, sentence_of
from relayd.cli.waiting import Waits
from relayd.protocol.cursor import Cursor
from relayd.protocol.errors import DesynchronizedError


@click.command()
@relay_argument
@click.option(
    "--from",
    "place",
    type=click.Choice(["earliest", "latest"]),
    help="Where to begin without a cursor; by default `earliest`.",
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
    place: str | None,
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
    if after is not None and place is not None:
        raise click.UsageError("--after and --from both say where to begin; give one of them")
    if cursor_file is not None:
        check_cursor_file(cursor_file)
        after = read_cursor_file(cursor_file)
    printer = JsonPrinter() if as_json else TextPrinter()
    try:
        _follow(relay, start_of(after, place), printer, cursor_file, count, live=not no_wait, socket=socket)
    except DesynchronizedError as error:
        remove = "" if cursor_file is None else f"remove {cursor_file} and "
        error.add_note(f"to read from the beginning, {remove}run it with --from earliest")
        raise


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
    with connect(socket, reconnect=True, waiting=Waits()) as client:
        if after == "latest" and cursor_file is not None:
            # What comes before the first event is printed must not be missed by the next following.
            after = client.attach(relay, "latest").through
            write_cursor_file(cursor_file, after)
        with closed_after(client.pages(relay, after, live=live)) as pages:
            for page in pages:
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
