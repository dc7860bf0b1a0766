"""Options and arguments that several commands share, and how a command reaches the daemon."""

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal, TypeVar, cast

import click
from click.shell_completion import CompletionItem

from relayd.cli.waiting import Waits
from relayd.client.sync import Client
from relayd.protocol.cursor import Cursor, parse_cursor
from relayd.protocol.errors import NameDetail, NotFoundError, RelaydError
from relayd.protocol.kinds import Retention, RetentionBytes
from relayd.protocol.names import is_command_id, is_identity, is_relay_name

_SIZE: Final = re.compile(r"([0-9]{1,15}) ?([KMG]iB)?", re.ASCII)
_UNITS: Final = {None: 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}

RETENTION_WORDS: Final = ("checkpointed", "acknowledged")
RETENTION_BYTES_MIN: Final = 4096
"""The least `segment_bytes` (docs/reference/settings.md)."""

Function = TypeVar("Function", bound=Callable[..., object])
Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def cursor(text: str) -> Cursor:
    """A parameter's type: `42`, or `42-<32 hex digits>`."""
    found = parse_cursor(text)
    if found is None:
        raise click.BadParameter(f"{text!r} is no cursor; one looks like 42, or 42- and 32 hex digits")
    return found


def relay_name(text: str) -> str:
    """A parameter's type: what can be a relay's name."""
    if not is_relay_name(text):
        expected = "1 to 64 of a-z 0-9 . _ - make one, a letter or digit first"
        raise click.BadParameter(f"{text!r} is no relay's name; {expected}")
    return text


def command_id(text: str) -> str:
    """A parameter's type: a command's id."""
    if not is_command_id(text):
        raise click.BadParameter(f"{text!r} is no command's id; 8 to 128 of A-Z a-z 0-9 _ - make one")
    return text


def identity(text: str) -> str:
    """A parameter's type: the name of a producer or consumer."""
    if not is_identity(text):
        raise click.BadParameter(f"{text!r} cannot be a name; 1 to 128 printable characters can, not only spaces")
    return text


def retention(text: str) -> Retention:
    """A parameter's type: `checkpointed`, `acknowledged`, or a size."""
    if text in RETENTION_WORDS:
        return text
    found = _SIZE.fullmatch(text)
    if found is None:
        raise click.BadParameter(f"{text!r} is neither checkpointed, acknowledged, nor a size like 64MiB")
    size_bytes = int(found[1]) * _UNITS[found[2]]
    if size_bytes < RETENTION_BYTES_MIN:
        raise click.BadParameter(
            f"{text!r} is {size_bytes} bytes; events go by whole segments, and the smallest there can be has"
            f" {RETENTION_BYTES_MIN // 1024}KiB: that is the least"
        )
    return RetentionBytes(size_bytes)


def words(*known: str) -> Completer:
    """Completes to these words."""

    def complete(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(word) for word in known if word.startswith(incomplete)]

    return complete


complete_retention: Final = words(*RETENTION_WORDS)


class InputPath(click.Path):
    """A parameter's type: a path of what is to be read. One that is not there is 66, and not a wrong command line."""

    def convert(
        self, value: "str | os.PathLike[str]", param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        """The path as it was given. Raises NotFoundError."""
        found = super().convert(value, param, ctx)
        try:
            os.stat(found)  # noqa: PTH116 - bytes too
        except (FileNotFoundError, NotADirectoryError):
            raise NotFoundError(f"nothing is at {value}", NameDetail("file", str(value))) from None
        except OSError:
            # Whoever reads it says what is wrong.
            return found
        return found


def _complete_relay(
    ctx: click.Context,
    param: click.Parameter,  # noqa: ARG001 - click's signature
    incomplete: str,
) -> list[CompletionItem]:
    """The relays there are; nothing where no daemon answers."""
    try:
        with connect(ctx.params.get("socket"), timeout=1.0) as client:
            names = [entry.relay for entry in client.relays()]
    except (RelaydError, OSError):
        return []
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def complete_consumer(
    ctx: click.Context,
    param: click.Parameter,  # noqa: ARG001 - click's signature
    incomplete: str,
) -> list[CompletionItem]:
    """The consumers of the relay that is named before."""
    relay = ctx.params.get("relay")
    if not isinstance(relay, str):
        return []
    try:
        with connect(ctx.params.get("socket"), timeout=1.0) as client:
            names = client.status(relay).consumers
    except (RelaydError, OSError):
        return []
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def complete_relay_of_state(
    ctx: click.Context,
    param: click.Parameter,  # noqa: ARG001 - click's signature
    incomplete: str,
) -> list[CompletionItem]:
    """The relays in the state directory that is named before."""
    state = ctx.params.get("state")
    if not isinstance(state, str):
        return []
    try:
        names = sorted(entry.name for entry in (Path(state) / "relays").iterdir())
    except OSError:
        return []
    return [CompletionItem(name) for name in names if is_relay_name(name) and name.startswith(incomplete)]


def relay_argument(command: Function) -> Function:
    """RELAY, the relay's name; completes from the daemon's list."""
    return click.argument("relay", type=relay_name, shell_complete=_complete_relay)(command)


def socket_option(command: Function) -> Function:
    """--socket, where the daemon listens."""
    return click.option(
        "--socket",
        type=click.Path(),
        metavar="PATH",
        help="The daemon's socket; by default RELAYD_SOCKET, else the usual place.",
    )(command)


def json_option(command: Function) -> Function:
    """--json, the documented form for programs."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")(command)


def connect(
    socket: str | None, *, reconnect: bool = False, timeout: float | None = None, waiting: Waits | None = None
) -> Client:
    """A client of the daemon; who it speaks for is said by `RELAYD_ASKER`, `RELAYD_AUTHOR` and `RELAYD_WORKER`."""
    return Client(socket, reconnect=reconnect, timeout=timeout, waiting=waiting)


def confirm(question: str, *, yes: bool, flag: str = "--yes") -> None:
    """Asks before something that cannot be undone; without a terminal, `flag` must have been given."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"this cannot be undone, and there is no terminal to ask on; {flag} says it is meant")
    click.confirm(question, abort=True, err=True)


Start = Cursor | Literal["earliest", "latest"]


def start_of(after: Cursor | None, place: str | None) -> Start:
    """Where reading begins, from `--after` and `--from`."""
    return after if after is not None else cast("Literal['earliest', 'latest']", place or "earliest")
