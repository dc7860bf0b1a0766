"""Runs one command and turns whatever it raises into a sentence and an exit code (docs/reference/cli.md, "Exit codes").

No traceback reaches a user, except where `RELAYD_TRACEBACK` asks for it.
"""

import os
import sys
import traceback
from collections.abc import Sequence
from typing import Final

import click

from relayd.cli.commands import relayd
from relayd.client.errors import NotConnectedError
from relayd.protocol.errors import (
    NameDetail,
    NotFoundError,
    PositionDetail,
    RelaydError,
    UnavailableDetail,
)

OK: Final = 0
USAGE: Final = 64
DATA: Final = 65
NO_INPUT: Final = 66
UNAVAILABLE: Final = 69
SOFTWARE: Final = 70
IO: Final = 74
RETRY: Final = 75
FORBIDDEN: Final = 77
CONFIG: Final = 78

COMPLETING: Final = "_RELAYD_COMPLETE"
"""Set by the scripts of `relayd completion`: click then prints completions and exits."""

EXIT_CODES: Final[dict[str, int]] = {
    "invalid_request": USAGE,
    "already_exists": DATA,
    "invalid_state": DATA,
    "conflict": DATA,
    "too_large": DATA,
    "desynchronized": DATA,
    "unverified": DATA,
    "damaged": DATA,
    "invalid_input": DATA,
    "not_found": NO_INPUT,
    "unavailable": UNAVAILABLE,
    "unreachable": UNAVAILABLE,
    "relay_removed": UNAVAILABLE,
    "incompatible_protocol": UNAVAILABLE,
    "hello_required": SOFTWARE,
    "internal": SOFTWARE,
    "storage_failed": IO,
    "overloaded": RETRY,
    "storage_full": RETRY,
    "shutting_down": RETRY,
    "timeout": RETRY,
    "cancelled": RETRY,
    "connection_lost": RETRY,
    "forbidden": FORBIDDEN,
    "invalid_settings": CONFIG,
    "cannot_start": CONFIG,
    "already_running": RETRY,
}
"""sysexits, by the code of an error; one that is not here is 75 where trying again can help, else 70."""


def run(arguments: Sequence[str]) -> int:
    """Runs `relayd` with `arguments`; says on standard error what went wrong and returns the exit code.

    Raises KeyboardInterrupt and BrokenPipeError, which the caller ends quietly.
    """
    try:
        if COMPLETING in os.environ:
            relayd.main(list(arguments), prog_name="relayd")
        # Not by `main`, which has its own ways of ending at ^C and at a broken pipe.
        with relayd.make_context("relayd", list(arguments)) as context:
            code: object = relayd.invoke(context)
    except click.exceptions.Exit as exiting:
        return exiting.exit_code
    except (click.Abort, KeyboardInterrupt):
        raise KeyboardInterrupt from None
    except BrokenPipeError:
        raise
    except click.ClickException as error:
        error.show()
        return USAGE if isinstance(error, click.UsageError) else NO_INPUT
    except Exception as error:  # noqa: BLE001 - the last place where anything can be caught
        return _report(error)
    return code if isinstance(code, int) else OK


def _report(error: Exception) -> int:
    if os.environ.get("RELAYD_TRACEBACK"):
        traceback.print_exception(error)
    match error:
        case RelaydError():
            _say(error.message)
            for line in _advice(error):
                _say(line, prefix="  ")
            if isinstance(error, NotConnectedError) and error.silent:
                return RETRY
            return EXIT_CODES.get(error.code, RETRY if error.retryable else SOFTWARE)
        case OSError():
            place = f"{error.filename}: " if error.filename else ""
            _say(f"{place}{error.strerror or error}")
            return (
                NO_INPUT
                if isinstance(error, FileNotFoundError)
                else FORBIDDEN
                if isinstance(error, PermissionError)
                else IO
            )
        case _:
            _say(f"a bug in relayd: {type(error).__name__}: {error}; RELAYD_TRACEBACK=1 shows where, please report it")
            return SOFTWARE


def _advice(error: RelaydError) -> list[str]:
    """What an error adds for a person: where the damage is, where one can go on, what to run."""
    return [*_detail(error), *getattr(error, "__notes__", ())]


def _detail(error: RelaydError) -> list[str]:
    match error.detail:
        case NameDetail(what="relay", name=name) if isinstance(error, NotFoundError) and "relayd " not in error.message:
            return [f"`relayd relays` lists the relays there are; {name} is none of them"]
        case UnavailableDetail(reason=reason, hint=hint, file=file, offset=offset):
            place = "" if file is None else f" in {file}" + ("" if offset is None else f" at byte {offset}")
            return [f"reason: {reason}{place}", *([hint] if hint and hint not in error.message else [])]
        case PositionDetail(earliest=earliest, latest=latest):
            return [f"served completely from cursor {earliest.ordinal}; the latest is {latest.ordinal}"]
        case _:
            return []


def _say(line: str, prefix: str = "relayd: ") -> None:
    # Whatever a peer or a file name holds, a terminal gets only what can be printed.
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
    print(prefix + shown, file=sys.stderr)  # noqa: T201
