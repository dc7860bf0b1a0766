"""The daemon's log: structlog, one event a line, past-tense names (docs/reference/settings.md, `log_…`)."""

import logging
import sys
from typing import IO, Final

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

from relayd.daemon.settings import Settings
from relayd.daemon.starting import CannotStartError

_LEVELS: Final = logging.getLevelNamesMapping()
_TEXT_MAX: Final = 2000


class LogFile:
    """Where lines go; `reopen` follows a file that was rotated away."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._stream = self._open()

    @property
    def is_terminal(self) -> bool:
        """Whether a person looks at it."""
        return self._stream.isatty()

    def _open(self) -> IO[str]:
        if self._path is None:
            return sys.stderr
        try:
            return open(self._path, "a", encoding="utf-8", buffering=1)  # noqa: PTH123 - lives as long as the daemon
        except OSError as error:
            raise CannotStartError(f"the log file {self._path} cannot be opened: {error.strerror}") from error

    def reopen(self) -> None:
        """Opens the file anew, under the name it has. Raises CannotStartError; then the old one stays in use."""
        if self._path is not None:
            fresh = self._open()
            self._stream.close()
            self._stream = fresh

    def write(self, text: str) -> int:
        """One line; a log that cannot be written stops nobody's work."""
        try:
            return self._stream.write(text)
        except (OSError, ValueError):
            return 0

    def flush(self) -> None:
        """Hands what was written to the system."""
        try:
            self._stream.flush()
        except (OSError, ValueError):
            return


def make_log(settings: Settings, file: LogFile) -> FilteringBoundLogger:
    """The log of a daemon with these settings."""
    console = settings.log_format == "console" or (settings.log_format == "auto" and file.is_terminal)
    last: list[Processor] = (
        [structlog.dev.ConsoleRenderer(colors=file.is_terminal)]
        if console
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    )
    return structlog.wrap_logger(
        structlog.PrintLogger(file),  # pyright: ignore[reportArgumentType] - it writes and flushes, and needs no more
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _printable,
            *last,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[settings.log_level.upper()]),
    )


def _printable(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """What a peer named itself cannot write lines of its own, nor fill the log."""
    return {
        key: "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in value[:_TEXT_MAX])
        if isinstance(value, str)
        else value.hex()
        if isinstance(value, bytes)
        else value
        for key, value in event.items()
    }
