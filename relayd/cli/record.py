"""`relayd record`: standard input into a relay, each line once, whatever restarts in between."""

import os
import secrets
import socket as sockets
import sys
import time
from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

import click
import msgspec

from relayd.cli.input_lines import LINE_BYTES_MAX, LineTooLongError, is_closed, read_lines
from relayd.cli.json_form import from_json
from relayd.cli.options import connect, identity, json_option, relay_argument, socket_option, words
from relayd.cli.output import Progress, format_bytes, on_terminal, print_json, say
from relayd.cli.waiting import Waits
from relayd.client.backoff import Backoff
from relayd.client.errors import OWN_ERRORS
from relayd.client.sync import Client
from relayd.client.sync_producer import Producer
from relayd.protocol.cursor import Cursor, format_cursor
from relayd.protocol.errors import InvalidRequestError, NotFoundError, RelaydError, TooLargeError
from relayd.protocol.kinds import is_kind, is_reserved
from relayd.protocol.limits import EVENT_BODY_BYTES_MAX, KIB
from relayd.protocol.names import is_command_id

_json_decode: Final = msgspec.json.Decoder().decode

JSON_LINE_BYTES_MAX: Final = 2 * EVENT_BODY_BYTES_MAX + 64 * KIB
"""Room for the largest event: JSON writes binary with a third more, and most escaped text with twice as much."""


class RecordedDocument(msgspec.Struct):
    """What `relayd record --json` prints at the end; `through` is null where nothing was there to record."""

    relay: str
    producer: str
    recorded: int
    skipped: int
    through: str | None


class NewEvent(NamedTuple):
    """What a line of input becomes."""

    kind: str
    data: object
    command_id: str | None = None


class _JsonLine(msgspec.Struct):
    """A line of `--json-lines`; what `relayd follow --json` prints beside these is passed over."""

    kind: str
    data: object = None
    command_id: str | None = None


class InputError(RelaydError):
    """A line of input that is no event; everything before it is recorded."""

    code = "invalid_input"


def _kind(text: str) -> str:
    if not is_kind(text):
        raise click.BadParameter(f"{text!r} is no kind; one has at most 64 of a-z 0-9 . _ - and begins with a letter")
    if is_reserved(text):
        raise click.BadParameter(f"{text!r} is one of relayd's own kinds; choose another word before the first dot")
    return text


def _command_id(text: str) -> str:
    if not is_command_id(text):
        raise click.BadParameter(f"{text!r} is no command's id; 8 to 128 of A-Z a-z 0-9 _ - make one")
    return text


@click.command()
@relay_argument
@click.option("--create", is_flag=True, help="Make the relay where there is none.")
@click.option(
    "--producer", type=identity, metavar="NAME", help="Continue under this name, exactly once; by default a fresh one."
)
@click.option(
    "--kind",
    type=_kind,
    shell_complete=words("output", "status", "exit"),
    metavar="KIND",
    help="The events' kind; by default `output`.",
)
@click.option(
    "--stream",
    shell_complete=words("stdout", "stderr"),
    default="stdout",
    show_default=True,
    help="What `output` events name as their stream.",
)
@click.option("--json-lines", is_flag=True, help="Each line is JSON: an event, or with --kind the data of one.")
@click.option("--command-id", type=_command_id, metavar="ID", help="The command that the events belong to.")
@click.option("--quiet", "-q", is_flag=True, help="Say nothing but errors.")
@socket_option
@json_option
def record(
    relay: str,
    *,
    create: bool,
    producer: str | None,
    kind: str | None,
    stream: str,
    json_lines: bool,
    command_id: str | None,
    quiet: bool,
    socket: str | None,
    as_json: bool,
) -> None:
    """Record standard input into RELAY, one event a line. Exits 0 when the last line is on disk.

    A daemon that restarts meanwhile costs time and nothing else. With --producer, the same input given again is
    skipped as far as it is there already, so an interrupted job is simply run again.

    \b
    $ make 2>&1 | relayd record --create build
    recorded 212 events in build, through 213
    $ relayd record --producer import-7 --json-lines --kind row orders < orders.jsonl
    recorded 0 events in orders, skipped 5000 that were there, through 5001
    """  # noqa: D301
    name = producer or f"record@{sockets.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
    read = _JsonReader(kind, command_id) if json_lines else _TextReader(kind or "output", stream, command_id)
    if is_closed(sys.stdin.buffer):
        raise click.UsageError("standard input is closed, and it is what is recorded: give it a file, or a pipe")
    with (
        Progress(quiet=quiet) as progress,
        connect(socket, reconnect=True, waiting=(waits := Waits(progress, quiet=quiet))) as client,
    ):
        if create:
            _create(client, relay, waits)
        try:
            with client.producer(relay, name) as sending:
                there = sending.position
                try:
                    counts = _send(sending, read, progress)
                    through = sending.flush()
                except KeyboardInterrupt:
                    progress.clear()
                    _tell_interrupted(relay, sending, there, again=producer is not None, quiet=quiet)
                    raise
        except NotFoundError as error:
            error.add_note(f"`relayd record --create {relay}` makes it first")
            raise
    _tell(RecordedDocument(relay, name, counts.recorded, counts.skipped, _text_of(through)), quiet, as_json)


def _create(client: Client, relay: str, waits: Waits) -> None:
    """Makes the relay; a disk without room is waited for, as it is when events are recorded."""
    backoff = Backoff()
    while True:
        try:
            client.open(relay, create=True)
        except RelaydError as error:
            if not error.retryable or isinstance(error, OWN_ERRORS):
                raise
            waits(error)
            time.sleep(backoff.next_seconds())
        else:
            waits(None)
            return


def _tell_interrupted(relay: str, sending: Producer, there: int, *, again: bool, quiet: bool) -> None:
    """For whoever pressed ^C; elsewhere an interrupted command is quiet."""
    if quiet or not on_terminal():
        return
    through = "" if sending.through is None else f", through {sending.through.ordinal}"
    hint = "; run it again with the same input to go on" if again else ""
    say(f"interrupted: recorded {sending.position - there} events in {relay}{through}{hint}")


class Counts(NamedTuple):
    """Lines that were sent, and lines that were there already."""

    recorded: int
    skipped: int


class _Reader(Protocol):
    """Makes events of lines. `cut`: whether a longer line than `line_bytes_max` may become several events."""

    line_bytes_max: int
    cut: bool

    def passes_over(self, line: bytes) -> bool:
        """Whether a line stands for nothing and has no number."""
        ...

    def __call__(self, line: bytes) -> NewEvent:
        """The line's event. Raises ValueError."""
        ...


def _send(sending: Producer, read: _Reader, progress: Progress) -> Counts:
    """Line n of the input is number n of the producer; lines that stand for nothing are not counted."""
    there = sending.position
    number = line_number = size_bytes = 0
    try:
        for line_number, line in enumerate(_input(sending, read), start=1):
            size_bytes += len(line)
            if read.passes_over(line):
                continue
            number += 1
            if number > there:
                try:
                    sending.record(*read(line))
                except (ValueError, OverflowError, InvalidRequestError, TooLargeError) as error:
                    sending.flush()
                    raise InputError(
                        f"line {line_number} is no event: {error}; everything before it is recorded"
                    ) from None
            if progress.due:
                rate = format_bytes(size_bytes / progress.seconds)
                progress.show(f"{line_number} lines, {format_bytes(size_bytes)}, {rate}/s")
    except LineTooLongError:
        sending.flush()
        raise InputError(
            f"line {line_number + 1} has more than {read.line_bytes_max} bytes; a line of --json-lines cannot be cut;"
            " everything before it is recorded"
        ) from None
    return Counts(max(0, number - there), min(number, there))


def _input(sending: Producer, read: _Reader) -> Iterator[bytes]:
    def idle() -> None:
        sending.flush()

    return read_lines(sys.stdin.buffer, idle, line_bytes_max=read.line_bytes_max, cut=read.cut)


class _TextReader:
    """Lines of text; what is no UTF-8 is kept as bytes."""

    line_bytes_max = LINE_BYTES_MAX
    cut = True

    def __init__(self, kind: str, stream: str, command_id: str | None) -> None:
        self._kind = kind
        self._stream = stream
        self._command_id = command_id

    def passes_over(self, line: bytes) -> bool:  # noqa: ARG002 - a _Reader's
        """An empty line of text is an event too."""
        return False

    def __call__(self, line: bytes) -> NewEvent:
        try:
            data: dict[str, object] = {"stream": self._stream, "text": line.decode()}
        except UnicodeDecodeError:
            data = {"stream": self._stream, "bytes": line}
        return NewEvent(self._kind, data, self._command_id)


class _JsonReader:
    """Lines of JSON: whole events, or the data of events of one kind. Raises ValueError for what is none."""

    line_bytes_max = JSON_LINE_BYTES_MAX
    cut = False

    def __init__(self, kind: str | None, command_id: str | None) -> None:
        self._kind = kind
        self._command_id = command_id

    def passes_over(self, line: bytes) -> bool:
        """A blank line is no JSON, and often stands at an end."""
        return not line.strip()

    def __call__(self, line: bytes) -> NewEvent:
        try:
            value = _json_decode(line)
        except RecursionError:
            raise ValueError("values are nested far too deep") from None
        if self._kind is not None:
            return NewEvent(self._kind, from_json(value), self._command_id)
        event = msgspec.convert(value, _JsonLine)
        return NewEvent(event.kind, from_json(event.data), event.command_id or self._command_id)


def _text_of(through: Cursor | None) -> str | None:
    return None if through is None else format_cursor(through)


def _tell(done: RecordedDocument, quiet: bool, as_json: bool) -> None:  # noqa: FBT001
    if not quiet:
        skipped = f", skipped {done.skipped} that were there" if done.skipped else ""
        through = "" if done.through is None else f", through {done.through.partition('-')[0]}"
        say(f"recorded {done.recorded} events in {done.relay}{skipped}{through}")
    if as_json:
        print_json(done)
