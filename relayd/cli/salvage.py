"""`relayd salvage`: a damaged relay opens again, at the price of what is damaged."""

from typing import Final

import click
import msgspec

from relayd.cli.json_form import line_of_body
from relayd.cli.options import InputPath, complete_relay_of_state, json_option
from relayd.cli.output import BytesRead, Progress, print_data, print_json, printable, say
from relayd.protocol.cursor import Cursor
from relayd.protocol.event import Body
from relayd.recovery import salvage as tool

DATA: Final = 65
_json_encode: Final = msgspec.json.Encoder().encode


class DamageLine(msgspec.Struct):
    """A damaged place; the ordinals are null where none are lost by it."""

    file: str
    offset_bytes: int
    what: str
    first_ordinal: int | None
    last_ordinal: int | None


class SpanLine(msgspec.Struct):
    """Ordinals, both included."""

    first_ordinal: int
    last_ordinal: int


class SalvageDocument(msgspec.Struct):
    """What `relayd salvage --json` prints."""

    relay: str
    changed: bool
    opens: bool
    refusal: str | None
    damages: list[DamageLine]
    marked: list[SpanLine]
    lost: SpanLine | None
    rescued_events: int
    rescued_file: str | None
    written: list[str]
    quarantined: list[str]


@click.command()
@click.argument("state", type=InputPath(file_okay=False))
@click.argument("relay", shell_complete=complete_relay_of_state)
@click.option("--tail", is_flag=True, help="Accept the loss of an end that may or may not have been answered.")
@click.option(
    "--rescued",
    type=click.Path(dir_okay=False),
    help="Where intact events that cannot stay go, as JSON lines; by default into the relay's quarantine/.",
)
@json_option
def salvage(state: str, relay: str, *, tail: bool, rescued: str | None, as_json: bool) -> int:
    """Make a damaged relay open again, accepting loss. RELAY lies in the state directory STATE.

    Everything intact is kept, nothing is deleted: damaged files go to the relay's quarantine/. Where the relay does not
    open, the daemon may run beside, and `relayd open RELAY` has it try again; a relay that it has open needs it
    stopped first. Look first with `relayd verify`; a backup may be the better way.

    \b
    $ relayd salvage /var/lib/relayd build
    damaged: journal/00000000000000000001-00000000000000000950.log.zst at byte 8021: events 310 to 324
    given up: events 310 to 324
    relay build opens again
    """  # noqa: D301
    with Progress() as progress:
        report = tool.salvage(state, relay, line_of=line_of, tail=tail, rescued=rescued, progress=BytesRead(progress))
    if as_json:
        print_json(_document(report))
    else:
        _print(report)
    return 0 if report.refusal is None else DATA


def line_of(cursor: Cursor, body: Body) -> bytes:
    """A rescued event as the line that `relayd cat` prints."""
    return _json_encode(line_of_body(cursor, body))


def _print(report: tool.SalvageReport) -> None:
    for damage in report.damages:
        where = f"damaged: {damage.file} at byte {damage.offset}: "
        print_data(printable(where + _cost(damage)))
    for span in report.marked:
        print_data(f"given up: {_span(*span)}")
    if report.lost is not None:
        print_data(f"given up: {_span(*report.lost, at_most=report.lost_at_most)}")
    if report.rescued_file is not None:
        print_data(printable(f"rescued: {report.rescued_events} events in {report.rescued_file}"))
    for name in report.quarantined:
        print_data(printable(f"quarantined: {name}"))
    if report.refusal is not None:
        say(printable(report.refusal))
    elif report.changed:
        print_data(f"relay {report.relay} opens again")
    else:
        print_data(f"relay {report.relay} opens as it is: nothing was changed")


def _cost(damage: tool.DamagedPlace) -> str:
    if damage.first is None or damage.last is None:
        return damage.what
    return _span(damage.first, damage.last, at_most=damage.at_most)


def _span(first: int, last: int, *, at_most: bool = False) -> str:
    if at_most:
        return f"ordinals {first} to {last}, some of which may never have been used"
    return f"events {first} to {last}"


def _document(report: tool.SalvageReport) -> SalvageDocument:
    return SalvageDocument(
        relay=report.relay,
        changed=report.changed,
        opens=report.refusal is None,
        refusal=report.refusal,
        damages=[DamageLine(d.file, d.offset, d.what, d.first, d.last) for d in report.damages],
        marked=[SpanLine(*span) for span in report.marked],
        lost=None if report.lost is None else SpanLine(*report.lost),
        rescued_events=report.rescued_events,
        rescued_file=report.rescued_file,
        written=list(report.written),
        quarantined=list(report.quarantined),
    )
