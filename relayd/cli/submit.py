"""`relayd submit`, `cancel` and `commands`: work for workers, and what became of it."""

import sys
from collections.abc import Iterator
from typing import Final

import click
import msgspec

from relayd.cli.json_form import from_json, to_json
from relayd.cli.options import command_id, connect, json_option, relay_argument, socket_option
from relayd.cli.output import Progress, data_stream, on_terminal, print_data, print_json, print_table, printable, say
from relayd.cli.waiting import Waits
from relayd.client.operations import new_command_id
from relayd.client.sync import Client
from relayd.protocol.cursor import format_cursor
from relayd.protocol.errors import NameDetail, NotFoundError, WaitTimeoutError
from relayd.protocol.limits import WAIT_MS_MAX
from relayd.protocol.messages import CommandReport

NOT_COMPLETED: Final = 1
"""Exit status where a command was waited for, and was rejected or interrupted."""

_decode_json: Final = msgspec.json.Decoder().decode
_json_encode: Final = msgspec.json.Encoder().encode


class AcceptedDocument(msgspec.Struct):
    """What `relayd submit --json` prints without `--wait`."""

    relay: str
    command_id: str
    ordinal: int
    duplicate: bool


class CommandDocument(msgspec.Struct):
    """One command of `--json`; what is not known, or not yet, is null."""

    relay: str
    command_id: str
    type: str
    state: str
    ordinal: int
    terminal_ordinal: int | None
    reason: str | None
    message: str | None
    result: object
    cut: str | None
    worker: str | None
    delivery: int | None


@click.command()
@relay_argument
@click.argument("payload", required=False)
@click.option("--id", "name", type=command_id, metavar="ID", help="The command's id; by default a fresh one.")
@click.option("--side", is_flag=True, help="Beside the queue, up to 4 at once.")
@click.option("--requeue", is_flag=True, help="If its worker is lost, do it again.")
@click.option("--configure", "key", metavar="KEY", help="Set KEY to PAYLOAD, in order with the tasks.")
@click.option("--notice", metavar="TEXT", help="Leave a line in the history instead of work.")
@click.option("--wait", is_flag=True, help="Wait for the end; print its result, exit 1 unless it was completed.")
@socket_option
@json_option
def submit(
    relay: str,
    payload: str | None,
    *,
    name: str | None,
    side: bool,
    requeue: bool,
    key: str | None,
    notice: str | None,
    wait: bool,
    socket: str | None,
    as_json: bool,
) -> None:
    """Submit a task to RELAY; a worker gets PAYLOAD, which is JSON (`-` reads it from standard input).

    It is accepted exactly once, however often it is sent with one --id. Prints the id.

    \b
    $ relayd submit build '{"target": "all"}' --id nightly-2026-01-31
    nightly-2026-01-31
    $ relayd submit build '{"target": "docs"}' --wait
    {"code": 0}
    """  # noqa: D301
    command = _command(payload, side=side, requeue=requeue, key=key, notice=notice)
    name = name or new_command_id()
    with connect(socket, reconnect=True, waiting=Waits()) as client:
        accepted = client.submit(relay, command, name)
        if not wait:
            if as_json:
                print_json(AcceptedDocument(relay, name, accepted.ordinal, accepted.duplicate))
            else:
                print_data(name)
            return
        report = until_ended(client, relay, name)
    _print_end(relay, report, as_json=as_json)
    if report.state != "completed":
        raise click.exceptions.Exit(NOT_COMPLETED)


def _command(
    payload: str | None, *, side: bool, requeue: bool, key: str | None, notice: str | None
) -> dict[str, object]:
    """The command that the options say. Raises UsageError."""
    if sum((side, key is not None, notice is not None)) > 1:
        raise click.UsageError("--side, --configure and --notice exclude each other")
    if requeue and (side or key is not None or notice is not None):
        raise click.UsageError("--requeue is for tasks alone")
    if notice is not None:
        if payload is not None:
            raise click.UsageError("a notice has no payload")
        return {"type": "notice", "text": notice}
    value = None if payload is None else _json(payload)
    if key is not None:
        if payload is None:
            raise click.UsageError("--configure KEY needs a value, as JSON")
        return {"type": "configure", "key": key, "value": value}
    command: dict[str, object] = {"type": "side_task" if side else "task"}
    if value is not None:
        command["payload"] = value
    if requeue:
        command["on_loss"] = "requeue"
    return command


def _json(payload: str) -> object:
    text = sys.stdin.read() if payload == "-" else payload
    try:
        return from_json(_decode_json(text))
    except ValueError as error:
        raise click.UsageError(
            f"the payload is no JSON: {error}; a text is written with quotes: '\"{text[:20]}\"'"
        ) from None


def until_ended(client: Client, relay: str, name: str) -> CommandReport:
    """Waits for a command's end, or a checkpoint's cut, as long as that takes."""
    with Progress() as progress:
        while True:
            try:
                return client.command(relay, name, wait_ms=WAIT_MS_MAX if not on_terminal() else 1000)
            except WaitTimeoutError:
                state = client.command(relay, name).state
                progress.show(f"{name} is {state}, {progress.seconds:.0f} s")


def _print_end(relay: str, report: CommandReport, *, as_json: bool) -> None:
    if as_json:
        print_json(document(relay, report))
        return
    if report.state != "completed":
        why = f" ({report.reason})" if report.reason else ""
        message = f": {printable(report.message)}" if report.message else ""
        say(f"{report.command_id} was {report.state}{why}{message}")
    result = _result(report)
    if result is not None:
        stream = data_stream()
        stream.write(_json_encode(result) + b"\n")
        stream.flush()


def _result(report: CommandReport) -> object:
    return to_json(msgspec.msgpack.decode(report.result))


def document(
    relay: str, report: CommandReport, worker: str | None = None, delivery: int | None = None
) -> CommandDocument:
    """A report as JSON has it."""
    return CommandDocument(
        relay,
        report.command_id,
        report.type,
        report.state,
        report.ordinal,
        report.terminal,
        report.reason,
        report.message,
        _result(report),
        None if report.cut is None else format_cursor(report.cut),
        worker,
        delivery,
    )


@click.command()
@relay_argument
@click.argument("target", type=command_id, metavar="ID")
@click.option("--wait", is_flag=True, help="Wait until it has ended.")
@socket_option
@json_option
def cancel(relay: str, target: str, *, wait: bool, socket: str | None, as_json: bool) -> None:
    """Cancel the command ID of RELAY: at once where no worker has it, else its worker is told.

    \b
    $ relayd cancel build nightly-2026-01-31 --wait
    """  # noqa: D301
    with connect(socket, reconnect=True, waiting=Waits()) as client:
        client.submit(relay, {"type": "cancel", "target": target}, new_command_id())
        report = until_ended(client, relay, target) if wait else client.command(relay, target)
    if as_json:
        print_json(document(relay, report))
    else:
        told = "its worker is told" if report.terminal is None else f"it is {report.state}"
        say(f"cancelled {target}: {told}")


@click.command()
@relay_argument
@click.argument("names", type=command_id, nargs=-1, metavar="[ID]...")
@click.option("--live", is_flag=True, help="Show it again whenever something changes, until ^C.")
@socket_option
@json_option
def commands(relay: str, names: tuple[str, ...], *, live: bool, socket: str | None, as_json: bool) -> None:
    """Show the commands of RELAY that have not ended, or those named, ended or not.

    \b
    $ relayd commands build
    ID                  TYPE  STATE      WORKER     DELIVERY
    nightly-2026-01-31  task  in_flight  builder-1         1
    """  # noqa: D301
    with connect(socket, reconnect=live, waiting=Waits() if live else None) as client:
        _show(client, relay, names, as_json=as_json, live=live)
        after = client.status(relay).latest if live else None
        while after is not None:
            page = client.attach(relay, after, wait_ms=WAIT_MS_MAX)
            after = page.through
            if any(event.kind.startswith(("command.", "checkpoint.")) for event in page.events):
                _show(client, relay, names, as_json=as_json, live=live)


def _show(client: Client, relay: str, names: tuple[str, ...], *, as_json: bool, live: bool) -> None:
    documents = list(_documents(client, relay, names))
    if as_json:
        print_json(documents)
        return
    if live and sys.stdout.isatty():
        click.clear()
    if not documents:
        say(f"relay {relay} has no command that has not ended")
        return
    print_table(
        ("ID", "TYPE", "STATE", "WORKER", ">DELIVERY", "WHY"),
        (
            (
                each.command_id,
                each.type,
                each.state,
                each.worker or "-",
                "-" if each.delivery is None else str(each.delivery),
                " ".join(filter(None, (each.reason, each.message))) or "-",
            )
            for each in documents
        ),
    )


def _documents(client: Client, relay: str, names: tuple[str, ...]) -> Iterator[CommandDocument]:
    status = client.status(relay)
    held = {each.command_id: each for each in status.in_flight}
    barrier = [] if status.barrier is None else [status.barrier.command_id]
    shown = names or (*status.active, *barrier, *status.queued)
    for name in shown:
        try:
            report = client.command(relay, name)
        except NotFoundError as error:
            if not names:
                continue
            raise NotFoundError(str(error), NameDetail("command", name)) from None
        holder = held.get(name)
        yield document(relay, report, holder and holder.worker, holder and holder.delivery)
    if not names and status.queued_count > len(status.queued):
        say(f"and {status.queued_count - len(status.queued)} more that are queued")
