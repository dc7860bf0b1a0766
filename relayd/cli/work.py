"""`relayd work`: a program, run once for each task (docs/reference/cli.md, "Working")."""

import os
import shutil
import socket as sockets
import subprocess
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import click
import msgspec
import trio

from relayd.cli.json_form import to_json
from relayd.cli.options import identity, relay_argument, socket_option
from relayd.cli.output import printable, say
from relayd.client.aclient import AsyncClient, connect
from relayd.client.aproducer import AsyncProducer
from relayd.protocol.errors import NameDetail, NotFoundError

if TYPE_CHECKING:
    from relayd.client.aassignment import AsyncAssignment

LINE_BYTES_MAX: Final = 1024 * 1024
"""A line that is longer is recorded in parts."""
_READ_BYTES: Final = 65_536
_json_encode: Final = msgspec.json.Encoder().encode


@click.command(context_settings={"ignore_unknown_options": True})
@relay_argument
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--capacity", type=click.IntRange(1, 10_000), default=1, show_default=True, help="Programs at once.")
@click.option("-n", "--count", type=click.IntRange(min=1), metavar="N", help="End after N commands.")
@click.option(
    "--worker",
    type=identity,
    envvar="RELAYD_WORKER",
    metavar="NAME",
    help="Who works; under the same name a worker that was lost comes back to what it held. Default: host and process.",
)
@socket_option
def work(
    relay: str, program: tuple[str, ...], *, capacity: int, count: int | None, worker: str | None, socket: str | None
) -> None:
    """Run PROGRAM once for each task of RELAY.

    The task's payload is on its standard input, as JSON. What it prints is recorded as `output` events under the
    command's id, and its exit status is the outcome: 0 is completed, anything else rejected. A task that is cancelled
    ends it with SIGTERM, and with SIGKILL after five seconds. RELAYD_RELAY, RELAYD_COMMAND_ID and RELAYD_DELIVERY tell
    it what it works on. ^C ends the programs; their tasks are then decided by the lease.

    \b
    $ relayd work build --capacity 2 -- sh -c 'make "$(jq -r .target)"'
    """  # noqa: D301
    if shutil.which(program[0]) is None:
        message = f"there is no program {program[0]} that could be run; nothing was claimed"
        raise NotFoundError(message, NameDetail("program", program[0]))
    name = worker or f"{sockets.gethostname()}:{os.getpid()}"
    trio.run(_work, relay, program, capacity, count, name, socket)


async def _work(  # noqa: PLR0917 - trio.run passes by position
    relay: str,
    program: Sequence[str],
    capacity: int,
    count: int | None,
    worker: str,
    socket: str | None,
) -> None:
    async with connect(socket, worker=worker) as client, trio.open_nursery() as programs:
        done = 0
        async for command in client.relay(relay).work(capacity=capacity):
            programs.start_soon(_run, client, command, program)
            done += 1
            if done == count:
                break


async def _run(client: AsyncClient, command: "AsyncAssignment", program: Sequence[str]) -> None:
    """One command, from its first line to its outcome. What goes wrong in it ends this command alone."""
    try:
        async with command:
            if command.type == "configure":
                # A program has no part in it; completing it is what sets it.
                return
            code = await _run_program(client, command, program)
            result = {"code": code} if code >= 0 else {"signal": -code}
            if code == 0:
                command.complete(result)
            else:
                how = f"exit status {code}" if code > 0 else f"signal {-code}"
                command.reject(f"{program[0]}: {how}", result=result)
    except Exception as error:  # noqa: BLE001 - it is this command's outcome, and the worker goes on
        say(printable(f"{command.command_id}: {error}"))
    say(printable(f"{command.command_id} {command.end or 'lost'}"))


async def _run_program(client: AsyncClient, command: "AsyncAssignment", program: Sequence[str]) -> int:
    environment = os.environ | {
        "RELAYD_RELAY": command.relay,
        "RELAYD_COMMAND_ID": command.command_id,
        "RELAYD_DELIVERY": str(command.delivery),
    }
    payload = _json_encode(to_json(command.payload)) + b"\n"
    # One stream of output for each hand-over: a second run numbers its own lines.
    stream = f"{command.command_id}.{command.delivery}"[-128:]
    async with client.producer(command.relay, stream) as producer, trio.open_nursery() as nursery:
        process: trio.Process = await nursery.start(
            partial(
                trio.run_process,
                list(program),
                stdin=payload,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                check=False,
                env=environment,
            )
        )
        assert process.stdout is not None, "it was asked for"
        assert process.stderr is not None, "it was asked for"
        nursery.start_soon(_record_lines, producer, process.stdout, "stdout", command.command_id)
        nursery.start_soon(_record_lines, producer, process.stderr, "stderr", command.command_id)
    assert process.returncode is not None, "it has ended"
    return process.returncode


async def _record_lines(producer: AsyncProducer, output: trio.abc.ReceiveStream, stream: str, command_id: str) -> None:
    held = b""
    async with output:
        while data := await output.receive_some(_READ_BYTES):
            *lines, held = (held + data).split(b"\n")
            if len(held) > LINE_BYTES_MAX:
                lines, held = [*lines, held], b""
            for line in lines:
                await producer.record("output", _output(stream, line), command_id)
    if held:
        await producer.record("output", _output(stream, held), command_id)


def _output(stream: str, line: bytes) -> dict[str, str]:
    return {"stream": stream, "text": line.decode("utf-8", "replace")}
