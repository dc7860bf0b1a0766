"""What is printed: data to standard output, talk to standard error (docs/reference/cli.md, "Output")."""

import contextlib
import sys
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final, Self, TypeVar

import click
import msgspec

_json_encode: Final = msgspec.json.Encoder().encode
_REFRESH_SECONDS: Final = 0.2


@contextlib.contextmanager
def named(file: str, what_is_so: str = "") -> Generator[None]:
    """Gives an OSError raised in it the name that the user knows the file by, and says what is so of it."""
    try:
        yield
    except OSError as error:
        # Made from its number it is of the same class: a broken pipe stays one.
        said = (error.strerror or str(error)) + (f"; {what_is_so}" if what_is_so else "")
        raise OSError(error.errno or 0, said, file) from error


def _standard_output() -> contextlib.AbstractContextManager[None]:
    return named("standard output")


class DataStream:
    """Standard output, for bytes; what the disk under it refuses is told by its name."""

    def write(self, data: bytes) -> None:
        """Writes bytes, now or at the next flush."""
        with _standard_output():
            sys.stdout.buffer.write(data)

    def writelines(self, lines: Iterable[bytes]) -> None:
        """Writes each of `lines`."""
        with _standard_output():
            sys.stdout.buffer.writelines(lines)

    def flush(self) -> None:
        """Returns when everything has left."""
        with _standard_output():
            sys.stdout.buffer.flush()


def data_stream() -> DataStream:
    """Standard output, for bytes."""
    return DataStream()


def print_data(text: str) -> None:
    """A line of data."""
    with _standard_output():
        click.echo(text)


def print_json(document: object) -> None:
    """A JSON document of one line."""
    stream = data_stream()
    stream.write(_json_encode(document) + b"\n")
    stream.flush()


T = TypeVar("T")


@contextlib.contextmanager
def closed_after(iterator: Iterator[T]) -> Generator[Iterator[T]]:
    """Closes a generator however the block is left, and not whenever nobody holds it any more."""
    try:
        yield iterator
    finally:
        if isinstance(iterator, Generator):
            iterator.close()


def on_terminal() -> bool:
    """Whether somebody reads standard error as it is written."""
    return sys.stderr.isatty()


def say(text: str) -> None:
    """A line of talk."""
    click.echo(text, err=True)


def print_table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Columns padded with spaces; a column whose header begins with `>` is aligned to the right.

    The headers are dressed up on a terminal and plain elsewhere.
    """
    rows = [tuple(map(printable, row)) for row in rows]
    names = [header.removeprefix(">") for header in headers]
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    rights = [header.startswith(">") for header in headers]

    def line(cells: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(cells, widths, rights, strict=True)
        )
        return "  ".join(padded).rstrip()

    print_data(click.style(line(names), bold=True))
    for row in rows:
        print_data(line(row))


def printable(text: str) -> str:
    """`text` with everything that could steer a terminal written as an escape."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def format_bytes(size_bytes: float) -> str:
    """A size for people: `812 B`, `1.4 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size_bytes < 1024:  # noqa: PLR2004
            return f"{size_bytes:.0f} B" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:.1f} TiB"


def format_time(at_ms: int) -> str:
    """Milliseconds since 1970 in local time, to the millisecond."""
    try:
        moment = datetime.fromtimestamp(at_ms / 1000, UTC).astimezone()
    except (OverflowError, ValueError, OSError):
        return f"{at_ms} ms"
    return moment.isoformat(sep=" ", timespec="milliseconds")[:23]


def format_age(at_ms: int, now_ms: int) -> str:
    """How long ago something was: `3 s ago`, `2 h ago`."""
    seconds = max(0, now_ms - at_ms) // 1000
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"


class Progress:
    """One line on standard error that is written over again; nothing where that is no terminal.

    Use as a context manager: the line is gone when the work is done.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self._shown = not quiet and on_terminal()
        self._started = time.monotonic()
        self._next = self._started + _REFRESH_SECONDS
        self._dirty = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    @property
    def seconds(self) -> float:
        """How long the work has taken so far."""
        return time.monotonic() - self._started

    @property
    def due(self) -> bool:
        """Whether a new line would be shown now; asking is cheap."""
        return self._shown and time.monotonic() >= self._next

    def show(self, text: str) -> None:
        """Writes the line anew."""
        if self._shown:
            self._next = time.monotonic() + _REFRESH_SECONDS
            self._dirty = True
            sys.stderr.write("\r\x1b[K" + printable(text))
            sys.stderr.flush()

    def clear(self) -> None:
        """Takes the line off, so that something else can be said."""
        if self._dirty:
            self._dirty = False
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


class BytesRead:
    """Shows how far a reading of files is.

    `total_bytes`: how many there are, 0 where that is not known.
    """

    def __init__(self, progress: Progress, total_bytes: int = 0) -> None:
        self._progress = progress
        self._total = total_bytes
        self._read = 0

    def __call__(self, more_bytes: int) -> None:
        """So many bytes more have been read."""
        self._read += more_bytes
        if self._progress.due:
            part = f" of {format_bytes(self._total)}" if self._total else ""
            rate = format_bytes(self._read / self._progress.seconds)
            self._progress.show(f"{format_bytes(self._read)}{part}, {rate}/s")
