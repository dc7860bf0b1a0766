"""`relayd backup` and `restore`: a relay as one file, and a relay of it again."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import msgspec

from relayd.cli.options import (
    InputPath,
    complete_retention,
    connect,
    json_option,
    relay_argument,
    relay_name,
    retention,
    socket_option,
)
from relayd.cli.output import BytesRead, Progress, format_bytes, named, print_json, printable, say
from relayd.cli.waiting import Waits
from relayd.client.exporting import ExportedState, export_state
from relayd.client.sync import Client
from relayd.protocol.cursor import format_cursor
from relayd.protocol.errors import InvalidRequestError, RelaydError
from relayd.protocol.event import RECORD_HEADER
from relayd.protocol.kinds import RETENTION_DEFAULT, Retention
from relayd.protocol.messages import RelayStatus
from relayd.recovery.backup import write_backup
from relayd.recovery.backup_format import BackupHead
from relayd.recovery.restore import restore as make_of_file

DATA: Final = 65


class MissingError(RelaydError):
    """Events cannot be had, and a file that may have them would be replaced."""

    code = "damaged"


class SpanLine(msgspec.Struct):
    """Ordinals, both included."""

    first_ordinal: int
    last_ordinal: int


class BackupDocument(msgspec.Struct):
    """What `relayd backup --json` prints."""

    relay: str
    file: str
    latest: str
    records: int
    size_bytes: int
    missing: list[SpanLine]


class RestoreDocument(msgspec.Struct):
    """What `relayd restore --json` prints."""

    relay: str
    source: str
    store: str
    records: int
    latest: str
    missing: list[SpanLine]


@click.command()
@relay_argument
@click.option("-o", "--output", "file", required=True, type=click.Path(dir_okay=False), help="The file to write.")
@click.option("--allow-missing", is_flag=True, help="Events that cannot be had are missing in it, and that is well.")
@socket_option
@json_option
def backup(relay: str, *, file: str, allow_missing: bool, socket: str | None, as_json: bool) -> int:
    """Copy RELAY, as it is now, from the running daemon into one file; every event is proven on its way.

    A file that is there is replaced when the new one is whole and on disk. `relayd verify FILE` checks a backup.

    Where events of RELAY cannot be had, the exit code is 65, and a file that is there stays, as it may have them.

    \b
    $ relayd backup build -o build.backup
    backed up 4312 events of build, through 4312, in build.backup (1.2 MiB)
    """  # noqa: D301
    keep = Path(file).exists() and not allow_missing
    with Progress() as progress, connect(socket, reconnect=True, waiting=Waits(progress)) as client:
        status = client.status(relay)
        state = export_state(client, relay)
        # Consumers stand where they stood a moment before the cut, which is that of the state.
        status = msgspec.structs.replace(status, latest=state.at)
        records = _records(client, status, file if keep else None)
        with named(file, "nothing was replaced"):
            report = write_backup(file, _head(status, state), records, BytesRead(progress))
    missing = _spans(report.missing)
    if as_json:
        latest = format_cursor(status.latest)
        print_json(BackupDocument(relay, report.path, latest, report.records, report.bytes, missing))
    else:
        through = f"through {status.latest.ordinal}"
        size = format_bytes(report.bytes)
        say(printable(f"backed up {report.records} events of {relay}, {through}, in {report.path} ({size})"))
    _tell_missing(missing)
    return DATA if missing and not allow_missing else 0


def _head(status: RelayStatus, state: ExportedState) -> BackupHead:
    return BackupHead(
        relay=status.relay,
        store=status.store,
        evicted=status.evicted,
        latest=state.at,
        made_at_ms=time.time_ns() // 1_000_000,
        retention=status.retention,
        max_active=status.max_active,
        floor=status.floor,
        consumers=status.consumers,
        state=state.encoded,
    )


def _records(client: Client, status: RelayStatus, kept: str | None) -> Iterator[bytes]:
    """Whole records, a page at a time, from what is still there to the cut. Raises MissingError to spare `kept`."""
    for page in client.pages(status.relay, status.evicted, live=False):
        if page.gap is not None and kept is not None:
            lost = page.gap.lost
            raise MissingError(
                f"events {lost.first} to {lost.last} of {status.relay} cannot be had ({page.gap.reason}), and {kept}"
                " may have them: it was left as it is; name another file, or replace it with --allow-missing"
            )
        yield b"".join(RECORD_HEADER.pack(len(e.body), e.ordinal, e.digest) + e.body for e in page.events)
        if page.through.ordinal >= status.latest.ordinal:
            return


@click.command()
@click.argument("state", type=click.Path(file_okay=False))
@click.argument("relay", type=relay_name)
@click.argument("file", type=InputPath(dir_okay=False))
@click.option(
    "--retention",
    type=retention,
    shell_complete=complete_retention,
    default=RETENTION_DEFAULT,
    metavar="checkpointed|acknowledged|SIZE",
    help="What a relay made of a seed keeps; a backup has its own.",
)
@click.option("--max-active", type=click.IntRange(1, 10_000), default=1, help="Commands at work at once, likewise.")
@json_option
def restore(state: str, relay: str, file: str, *, retention: Retention, max_active: int, as_json: bool) -> int:
    """Make a relay of a backup, or of a seed. RELAY is made in the state directory STATE from FILE.

    Of a backup it is the same relay again: ordinals, digests and readers' cursors hold. The daemon may run.

    \b
    $ relayd restore /var/lib/relayd build build.backup
    restored relay build, 4312 events, through 4312
    """  # noqa: D301
    with Progress() as progress:
        try:
            report = make_of_file(
                state, relay, file, retention=retention, max_active=max_active, progress=BytesRead(progress)
            )
        except InvalidRequestError as error:
            progress.clear()
            say(printable(f"relayd: {error.message}"))
            return DATA
    missing = _spans(report.missing)
    latest = format_cursor(report.latest)
    if as_json:
        store = report.store.hex()
        print_json(RestoreDocument(report.relay, report.source, store, report.records, latest, missing))
    else:
        say(f"restored relay {report.relay}, {report.records} events, through {report.latest.ordinal}")
    _tell_missing(missing)
    return 0


def _spans(spans: tuple[tuple[int, int], ...]) -> list[SpanLine]:
    return [SpanLine(first, last) for first, last in spans]


def _tell_missing(spans: list[SpanLine]) -> None:
    for span in spans:
        say(f"missing: events {span.first_ordinal} to {span.last_ordinal} could not be had; readers are told")
