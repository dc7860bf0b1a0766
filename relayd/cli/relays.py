"""`relayd relays`, `open`, `status` and `delete`: relays as wholes."""

import time
from typing import TYPE_CHECKING, Final

import click
import msgspec

from relayd.cli.json_form import to_json
from relayd.cli.options import (
    complete_retention,
    confirm,
    connect,
    json_option,
    relay_argument,
    retention,
    socket_option,
)
from relayd.cli.output import (
    format_age,
    format_bytes,
    format_time,
    print_data,
    print_json,
    print_table,
    printable,
    say,
)
from relayd.protocol.cursor import Cursor, format_cursor
from relayd.protocol.kinds import Retention, RetentionBytes
from relayd.protocol.limits import MIB

SEGMENT_BYTES: Final = 8 * MIB
"""The default of `segment_bytes` (docs/reference/settings.md)."""

if TYPE_CHECKING:
    from relayd.protocol.messages import RelayStatus


class RelayLine(msgspec.Struct):
    """One relay of `relayd relays --json`; what a closed relay does not say is null."""

    relay: str
    open: bool
    latest_ordinal: int | None
    execution: str | None
    disk_bytes: int | None


class OpenedDocument(msgspec.Struct):
    """What `relayd open --json` prints."""

    relay: str
    store: str
    latest: str
    created: bool


class DeletedDocument(msgspec.Struct):
    """What `relayd delete --json` prints."""

    relay: str
    store: str


class InFlightLine(msgspec.Struct):
    """A command that a worker has."""

    command_id: str
    worker: str
    delivery: int


class BarrierLine(msgspec.Struct):
    """The checkpoint that is being made; `cut` is null until it is ready."""

    command_id: str
    cut: str | None


class StatusDocument(msgspec.Struct):
    """What `relayd status --json` prints; cursors and the store are text, times milliseconds since 1970."""

    relay: str
    store: str
    execution: str
    execution_since_ms: int
    last_event_at_ms: int
    latest: str
    acknowledged: str
    floor: str | None
    retained: str
    evicted: str
    retention: str
    retention_bytes: int | None
    max_active: int
    consumers: dict[str, str]
    readers: int
    disk_bytes: int
    journal_bytes: int
    trouble: str | None
    active: list[str]
    queued: list[str]
    queued_count: int
    in_flight: list[InFlightLine]
    barrier: BarrierLine | None
    config: dict[str, object]


@click.command()
@socket_option
@json_option
def relays(*, socket: str | None, as_json: bool) -> None:
    """List the relays: open or closed, their last ordinal, their size on disk.

    \b
    $ relayd relays
    RELAY   STATE     LATEST  ON DISK
    build   running     4312  1.2 MiB
    deploy  not open       -  8.0 KiB
    """  # noqa: D301
    with connect(socket) as client:
        entries = client.relays()
    if as_json:
        print_json([RelayLine(e.relay, e.open, e.latest, e.execution, e.disk_bytes) for e in entries])
        return
    if not entries:
        say("there are no relays yet; `relayd open --create NAME` makes one")
        return
    print_table(
        ("RELAY", "STATE", ">LATEST", ">ON DISK"),
        (
            (
                e.relay,
                e.execution or ("open" if e.open else "not open"),
                "-" if e.latest is None else str(e.latest),
                "-" if e.disk_bytes is None else format_bytes(e.disk_bytes),
            )
            for e in entries
        ),
    )


@click.command("open")
@relay_argument
@click.option("--create", is_flag=True, help="Make the relay where there is none.")
@click.option(
    "--retention",
    type=retention,
    shell_complete=complete_retention,
    metavar="checkpointed|acknowledged|SIZE",
    help="What is kept: up to checkpoints (default), up to acknowledgements, or a size like 64MiB. Set once.",
)
@click.option("--max-active", type=click.IntRange(1, 10_000), help="Commands at work at once. Set once.")
@socket_option
@json_option
def open_relay(
    relay: str, *, create: bool, retention: Retention | None, max_active: int | None, socket: str | None, as_json: bool
) -> None:
    """Open RELAY, or make it with --create; prints the cursor of its last event.

    \b
    $ relayd open --create --retention 64MiB build
    1-0cc175b9c0f1b6a831c399e269772661
    """  # noqa: D301
    if isinstance(retention, RetentionBytes) and retention.bytes < SEGMENT_BYTES:
        least = format_bytes(SEGMENT_BYTES)
        say(f"events go by whole segments: at least one is kept, {least} where `segment_bytes` is not set")
    with connect(socket) as client:
        opened = client.open(relay, create=create, retention=retention, max_active=max_active)
    latest = format_cursor(opened.latest)
    if as_json:
        print_json(OpenedDocument(opened.relay, opened.store.hex(), latest, opened.created))
        return
    say(f"{'made' if opened.created else 'opened'} relay {opened.relay}, store {opened.store.hex()}")
    print_data(latest)


@click.command()
@relay_argument
@socket_option
@json_option
def status(relay: str, *, socket: str | None, as_json: bool) -> None:
    """Show the state of RELAY at its latest durable event; changes nothing.

    \b
    $ relayd status build --json | jq .journal_bytes
    1258291
    """  # noqa: D301
    with connect(socket) as client:
        found = client.status(relay)
    if as_json:
        print_json(_document(found))
    else:
        _print_status(found)


def _document(found: "RelayStatus") -> StatusDocument:
    return StatusDocument(
        relay=found.relay,
        store=found.store.hex(),
        execution=found.execution,
        execution_since_ms=found.execution_since,
        last_event_at_ms=found.last_event_at,
        latest=format_cursor(found.latest),
        acknowledged=format_cursor(found.acknowledged),
        floor=None if found.floor is None else format_cursor(found.floor),
        retained=format_cursor(found.retained),
        evicted=format_cursor(found.evicted),
        retention="bytes" if isinstance(found.retention, RetentionBytes) else found.retention,
        retention_bytes=found.retention.bytes if isinstance(found.retention, RetentionBytes) else None,
        max_active=found.max_active,
        consumers={name: format_cursor(cursor) for name, cursor in found.consumers.items()},
        readers=found.readers,
        disk_bytes=found.disk_bytes,
        journal_bytes=found.journal_bytes,
        trouble=found.trouble,
        active=found.active,
        queued=found.queued,
        queued_count=found.queued_count,
        in_flight=[InFlightLine(each.command_id, each.worker, each.delivery) for each in found.in_flight],
        barrier=_barrier(found),
        config={key: to_json(msgspec.msgpack.decode(value)) for key, value in found.config.items()},
    )


def _barrier(found: "RelayStatus") -> BarrierLine | None:
    if found.barrier is None:
        return None
    cut = found.barrier.cut
    return BarrierLine(found.barrier.command_id, None if cut is None else format_cursor(cut))


def _print_status(found: "RelayStatus") -> None:
    now_ms = time.time_ns() // 1_000_000
    retention = found.retention if isinstance(found.retention, str) else format_bytes(found.retention.bytes)
    rows = [
        ("relay", found.relay),
        ("store", found.store.hex()),
        ("execution", f"{found.execution}, since {format_time(found.execution_since)}"),
        ("latest", f"{_place(found.latest)}, {format_age(found.last_event_at, now_ms)}"),
        ("acknowledged", _place(found.acknowledged)),
        ("floor", "none yet" if found.floor is None else _place(found.floor)),
        ("retained", _place(found.retained)),
        ("evicted", "nothing" if found.evicted.ordinal == 0 else f"through {_place(found.evicted)}"),
        ("retention", retention),
        ("max_active", str(found.max_active)),
        ("commands", f"{len(found.active)} started, {found.queued_count} queued, {len(found.in_flight)} in flight"),
        *([] if found.barrier is None else [("checkpoint", found.barrier.command_id)]),
        ("readers", str(found.readers)),
        ("on disk", f"{format_bytes(found.disk_bytes)}, of it journal {format_bytes(found.journal_bytes)}"),
        *([] if found.consumers else [("consumers", "none")]),
        *((f"consumer {name}", _place(cursor)) for name, cursor in sorted(found.consumers.items())),
        ("trouble", found.trouble or "none"),
    ]
    width = max(len(printable(name)) for name, _ in rows)
    for name, value in rows:
        print_data(f"{printable(name).ljust(width)}  {printable(value)}")


def _place(cursor: Cursor) -> str:
    return format_cursor(cursor) if cursor.ordinal else "0, the beginning"


@click.command()
@relay_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
@socket_option
@json_option
def delete(relay: str, *, yes: bool, socket: str | None, as_json: bool) -> None:
    """Remove RELAY for good, with its journal.

    \b
    $ relayd delete build
    Remove relay build, 4312 events, for good? [y/N]:
    """  # noqa: D301
    with connect(socket) as client:
        opened = client.open(relay)
        confirm(f"Remove relay {relay}, {opened.latest.ordinal} events, for good?", yes=yes)
        client.delete_relay(relay, opened.store)
    say(f"removed relay {relay}")
    if as_json:
        print_json(DeletedDocument(relay, opened.store.hex()))
