"""Options and arguments that several commands share, and how a command reaches the daemon."""

import re
import sys
from collections.abc import Callable
from typing import Final, Literal, TypeVar, cast

import click
from click.shell_completion import CompletionItem

from relayd.client.sync import Client
from relayd.protocol.cursor import Cursor, parse_cursor
from relayd.protocol.errors import RelaydError
from relayd.protocol.kinds import Retention, RetentionBytes
from relayd.protocol.names import is_identity, is_relay_name

_SIZE: Final = re.compile(r"([0-9]{1,15}) ?([KMG]iB)?", re.ASCII)
_UNITS: Final = {None: 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}

Function = TypeVar("Function", bound=Callable[..., object])


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


def identity(text: str) -> str:
    """A parameter's type: the name of a producer or consumer."""
    if not is_identity(text):
        raise click.BadParameter(f"{text!r} cannot be a name; 1 to 128 printable characters can, not only spaces")
    return text


def retention(text: str) -> Retention:
    """A parameter's type: `checkpointed`, `acknowledged`, or a size."""
    if text in ("checkpointed", "acknowledged"):
        return text
    found = _SIZE.fullmatch(text)
    if found is None or int(found[1]) < 1:
        raise click.BadParameter(f"{text!r} is neither checkpointed, acknowledged, nor a size like 64MiB")
    return RetentionBytes(int(found[1]) * _UNITS[found[2]])


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


def relay_argument(command: Function) -> Function:
    """RELAY, the relay's name; completes from the daemon's list."""
    return click.argument("relay", type=relay_name, shell_complete=_complete_relay)(command)


def socket_option(command: Function) -> Function:
    """--socket, where the daemon listens."""
    return click.option(
        "--socket", metavar="PATH", help="The daemon's socket; by default RELAYD_SOCKET, else the usual place."
    )(command)


def json_option(command: Function) -> Function:
    """--json, the documented form for programs."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")(command)


def connect(socket: str | None, *, reconnect: bool = False, timeout: float | None = None) -> Client:
    """A client of the daemon; who it speaks for is said by `RELAYD_ASKER`, `RELAYD_AUTHOR` and `RELAYD_WORKER`."""
    return Client(socket, reconnect=reconnect, timeout=timeout)


def confirm(question: str, *, yes: bool, flag: str = "--yes") -> None:
    """Asks before something that cannot be undone; without a terminal, `flag` must have been given."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"this cannot be undone, and there is no terminal to ask on; {flag} says it is meant")
    click.confirm(question, abort=True, err=True)


Start = Cursor | Literal["earliest", "latest"]


def start_of(after: Cursor | None, place: str) -> Start:
    """Where reading begins, from `--after` and `--from`."""
    return after if after is not None else cast("Literal['earliest', 'latest']", place)
