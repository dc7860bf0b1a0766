"""The entry of the command line: how a process of `relayd` ends, whatever happens.

Nothing is imported before it is needed, so that ^C during the first milliseconds is as quiet as later.
"""

import os
import sys
from typing import NoReturn

INTERRUPTED = 130
BROKEN_PIPE = 141
"""What shells show for a process that SIGINT or SIGPIPE ended."""


def main() -> NoReturn:
    """Runs `relayd` with the process's arguments and exits as docs/reference/cli.md, "Exit codes", says."""
    try:
        from relayd.cli.run import run  # noqa: PLC0415 - see above

        code = run(sys.argv[1:])
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:
        code = BROKEN_PIPE
    except OSError as error:
        # Only the last flush can come here: the disk under standard output is full, or it is closed.
        print(f"relayd: standard output: {error.strerror}", file=sys.stderr)  # noqa: T201
        code = 74
    if code in (INTERRUPTED, BROKEN_PIPE, 74):
        _abandon_output()
    sys.exit(code)


def _abandon_output() -> None:
    """Lets the interpreter's own flush at exit go nowhere: what could not be written stays unwritten, in silence."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        return
