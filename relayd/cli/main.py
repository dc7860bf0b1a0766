"""The entry of the command line: how a process of `relayd` ends, whatever happens.

Nothing is imported before it is needed, so that ^C during the first milliseconds is as quiet as later.
"""

import os
import sys
from typing import NoReturn

INTERRUPTED = 130
BROKEN_PIPE = 141
"""What shells show for a process that SIGINT or SIGPIPE ended."""
IO = 74


def main() -> NoReturn:
    """Runs `relayd` with the process's arguments and exits as docs/reference/cli.md, "Exit codes", says."""
    _fill_streams()
    sys.unraisablehook = _unraisable
    try:
        from relayd.cli.run import run  # noqa: PLC0415 - see above

        code = run(sys.argv[1:])
        if code != IO:
            sys.stdout.flush()
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:
        code = BROKEN_PIPE
    except OSError as error:
        # Only the last flush can come here: the disk under standard output is full, or it is closed.
        print(f"relayd: standard output: {error.strerror}", file=sys.stderr)  # noqa: T201
        code = IO
    if code in (INTERRUPTED, BROKEN_PIPE, IO):
        _abandon_output()
    sys.exit(code)


def _fill_streams() -> None:
    """Opens something at each standard descriptor that is closed, so that no file or socket of ours takes its number.

    Standard input cannot be read and standard output cannot be written then: what was to be read or printed is missed
    aloud. What would be said on standard error is dropped.
    """
    for number, name, mode, flags in (
        (0, "stdin", "r", os.O_WRONLY),
        (1, "stdout", "w", os.O_RDONLY),
        (2, "stderr", "w", os.O_WRONLY),
    ):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number is taken, and the ones before it are filled.
            os.open(os.devnull, flags)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


def _unraisable(unraisable: "sys.UnraisableHookArgs") -> None:
    """Ends the process at a ^C that came while a generator was closed, where nothing can be raised."""
    if isinstance(unraisable.exc_value, KeyboardInterrupt):
        os._exit(INTERRUPTED)
    sys.__unraisablehook__(unraisable)


def _abandon_output() -> None:
    """Lets the interpreter's own flush at exit go nowhere: what could not be written stays unwritten, in silence."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        return
