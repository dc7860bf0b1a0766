"""The daemon's log: structlog, one event a line, past-tense names (docs/reference/settings.md, `log_…`)."""

import logging
import sys
from functools import partial
from typing import IO, Final

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

from relayd.daemon.settings import Settings
from relayd.daemon.starting import CannotStartError

_LEVELS: Final = logging.getLevelNamesMapping()
_TEXT_MAX: Final = 2000


class LogFile:
    """Where lines go, and which: whoever logs holds on to its logger, so what may change changes here."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._stream = self._open(path)
        self.level = logging.DEBUG
        """The least that is logged."""

    @property
    def is_terminal(self) -> bool:
        """Whether a person looks at it."""
        return self._stream.isatty()

    @staticmethod
    def _open(path: str | None) -> IO[str]:
        if path is None:
            return sys.stderr
        try:
            return open(path, "a", encoding="utf-8", buffering=1)  # noqa: PTH123 - lives as long as the daemon
        except OSError as error:
            raise CannotStartError(f"the log file {path} cannot be opened: {error.strerror}") from error

    def reopen(self, path: str | None) -> None:
        """Goes on in the file of this name, opened anew. Raises CannotStartError; then the old one stays in use."""
        fresh, before = self._open(path), self._stream
        if self._path is not None:
            before.close()
        self._path, self._stream = path, fresh

    def set_level(self, name: str) -> None:
        """Nothing below `name`, as the setting has it, is logged from now on."""
        self.level = _LEVELS[name.upper()]

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
    file.set_level(settings.log_level)
    console = settings.log_format == "console" or (settings.log_format == "auto" and file.is_terminal)
    last: list[Processor] = (
        [structlog.dev.ConsoleRenderer(colors=file.is_terminal)]
        if console
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    )
    return structlog.wrap_logger(
        structlog.PrintLogger(file),  # pyright: ignore[reportArgumentType] - it writes and flushes, and needs no more
        processors=[
            partial(_drop_below, file),
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _printable,
            *last,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
    )


def _drop_below(file: LogFile, _logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    if structlog.processors.NAME_TO_LEVEL.get(method, logging.ERROR) < file.level:
        raise structlog.DropEvent
    return event


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
