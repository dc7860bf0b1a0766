"""`relayd checkpoint` and `close`: a cut of a relay at which nothing runs."""

import os
import subprocess
from typing import Final

import click
import msgspec

from relayd.cli.options import command_id, confirm, connect, json_option, relay_argument, socket_option
from relayd.cli.output import print_data, print_json, say
from relayd.cli.submit import until_ended
from relayd.client.operations import new_command_id
from relayd.client.sync import Client
from relayd.protocol.cursor import Cursor, format_cursor
from relayd.protocol.errors import InvalidStateError, StateDetail, WaitTimeoutError
from relayd.protocol.limits import WAIT_MS_MAX
from relayd.protocol.messages import CommandReport

CLOSE_TRIES_MAX: Final = 8
"""A relay that records so much that no cut stays exact is not closed by trying for ever."""
_INTERRUPTED: Final = 75


class CutDocument(msgspec.Struct):
    """What `relayd checkpoint begin --json` prints, once the cut is there."""

    relay: str
    command_id: str
    cut: str


class ClosedDocument(msgspec.Struct):
    """What `relayd close --json` prints."""

    relay: str
    cut: str


@click.group()
def checkpoint() -> None:
    """Make a cut of a relay: what runs ends, nothing new starts, then work goes on.

    \b
    relayd checkpoint begin build -- rsync -a out/ mirror:   copy at the cut; completed if that succeeds
    relayd checkpoint begin build                            print the cut and hold it, until one of:
    relayd checkpoint complete build                         the floor becomes the cut
    relayd checkpoint release build                          the floor stays
    """  # noqa: D301


@checkpoint.command(context_settings={"ignore_unknown_options": True})
@relay_argument
@click.argument("program", nargs=-1, type=click.UNPROCESSED)
@click.option("--id", "name", type=command_id, metavar="ID", help="The checkpoint's id; by default a fresh one.")
@socket_option
@json_option
def begin(relay: str, program: tuple[str, ...], *, name: str | None, socket: str | None, as_json: bool) -> None:
    """Begin a checkpoint of RELAY, print its cut, and hold it.

    A checkpoint belongs to the connection that began it, so this goes on until the checkpoint has ended. With PROGRAM,
    that is run at the cut (RELAYD_CUT and RELAYD_RELAY tell it which); the checkpoint is completed where it exits 0,
    else released, and its exit status is that of this command. ^C interrupts the checkpoint, and work goes on.
    """
    name = name or new_command_id()
    with connect(socket) as client:
        client.submit(relay, {"type": "begin_checkpoint"}, name)
        report = until_ended(client, relay, name)
        if report.cut is None:
            raise click.exceptions.Exit(_tell_ended(report))
        cut = format_cursor(report.cut)
        if as_json:
            print_json(CutDocument(relay, name, cut))
        else:
            print_data(cut)
        code = _run(client, relay, name, cut, program) if program else _hold(client, relay, name)
    if code:
        raise click.exceptions.Exit(code)


def _run(client: Client, relay: str, name: str, cut: str, program: tuple[str, ...]) -> int:
    environment = os.environ | {"RELAYD_CUT": cut, "RELAYD_RELAY": relay}
    try:
        code = subprocess.run(program, env=environment, check=False).returncode  # noqa: S603 - what the user named
    except OSError as error:
        client.submit(relay, {"type": "release_checkpoint", "barrier": name}, new_command_id())
        raise OSError(error.errno or 0, error.strerror or str(error), program[0]) from error
    word = "complete_checkpoint" if code == 0 else "release_checkpoint"
    client.submit(relay, {"type": word, "barrier": name}, new_command_id())
    say(f"checkpoint {name} {'completed' if code == 0 else f'released, as {program[0]} ended with {code}'}")
    return code if code >= 0 else 128 - code


def _hold(client: Client, relay: str, name: str) -> int:
    """Until somebody ends it."""
    after: Cursor = client.status(relay).latest
    while True:
        report = client.command(relay, name)
        if report.terminal is not None:
            return _tell_ended(report)
        page = client.attach(relay, after, wait_ms=WAIT_MS_MAX)
        after = page.through


def _tell_ended(report: CommandReport) -> int:
    why = f" ({report.reason})" if report.reason else ""
    say(f"checkpoint {report.command_id} {report.state}{why}")
    return 0 if report.state == "completed" else _INTERRUPTED


@checkpoint.command()
@relay_argument
@click.argument("name", type=command_id, required=False, metavar="[ID]")
@socket_option
def complete(relay: str, name: str | None, *, socket: str | None) -> None:
    """Complete the checkpoint of RELAY: its floor becomes the cut, and work goes on."""
    _end(relay, name, "complete_checkpoint", socket)


@checkpoint.command()
@relay_argument
@click.argument("name", type=command_id, required=False, metavar="[ID]")
@socket_option
def release(relay: str, name: str | None, *, socket: str | None) -> None:
    """Release the checkpoint of RELAY: work goes on, and the floor stays where it was."""
    _end(relay, name, "release_checkpoint", socket)


def _end(relay: str, name: str | None, word: str, socket: str | None) -> None:
    with connect(socket) as client:
        if name is None:
            barrier = client.status(relay).barrier
            if barrier is None:
                message = f"no checkpoint of relay {relay} is being made; `relayd checkpoint begin {relay}` begins one"
                raise InvalidStateError(message, StateDetail("no checkpoint"))
            name = barrier.command_id
        client.submit(relay, {"type": word, "barrier": name}, new_command_id())
        floor = client.status(relay).floor
    say(f"checkpoint {name} {'completed' if word == 'complete_checkpoint' else 'released'}")
    if floor is not None:
        print_data(format_cursor(floor))


@click.command()
@relay_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
@socket_option
@json_option
def close(relay: str, *, yes: bool, socket: str | None, as_json: bool) -> None:
    """Close RELAY for ever, at an exact cut: what is there can be read, and nothing new begins in it.

    Waits for what runs to end; what is queued is rejected. Prints the cut.

    \b
    $ relayd close build --yes
    4312-0cc175b9c0f1b6a831c399e269772661
    """  # noqa: D301
    confirm(f"Close relay {relay} for ever?", yes=yes)
    with connect(socket) as client:
        cut = format_cursor(_close(client, relay))
    say(f"closed relay {relay}")
    if as_json:
        print_json(ClosedDocument(relay, cut))
    else:
        print_data(cut)


def _close(client: Client, relay: str) -> Cursor:
    for _ in range(CLOSE_TRIES_MAX):
        name = new_command_id()
        client.submit(relay, {"type": "begin_checkpoint"}, name)
        report = until_ended(client, relay, name)
        if report.cut is None:
            raise WaitTimeoutError(f"the checkpoint was {report.state} ({report.reason}); close {relay} again")
        try:
            client.submit(relay, {"type": "close", "barrier": name, "cut": report.cut}, new_command_id())
        except InvalidStateError as error:
            if not isinstance(error.detail, StateDetail) or error.detail.state != "inexact":
                raise
            client.submit(relay, {"type": "release_checkpoint", "barrier": name}, new_command_id())
        else:
            return report.cut
    raise WaitTimeoutError(f"relay {relay} recorded something behind each of {CLOSE_TRIES_MAX} cuts; close it again")
