"""`relayd verify`: every byte of files, without a daemon."""

from collections.abc import Iterator
from typing import Final

import click
import msgspec

from relayd.cli.options import InputPath, json_option
from relayd.cli.output import BytesRead, Progress, closed_after, format_bytes, print_data, print_json, printable
from relayd.recovery.verify import VerifyReport, measure_path, verify_path, verify_state
from relayd.recovery.verify_files import Finding

DATA: Final = 65


class FindingLine(msgspec.Struct):
    """Something that was found; what is null is not known, or no ordinal is lost by it."""

    file: str
    reason: str
    what: str
    hint: str
    offset_bytes: int | None
    first_ordinal: int | None
    last_ordinal: int | None


class VerifyLine(msgspec.Struct):
    """What `relayd verify --json` prints for each path, a line each."""

    path: str
    damaged: bool
    files: int
    records: int
    size_bytes: int
    seconds: float
    live: bool
    in_flight_bytes: int
    refusal: str | None
    findings: list[FindingLine]


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=InputPath())
@click.option("--all", "whole_state", is_flag=True, help="PATH is a state directory: verify each relay in it.")
@json_option
def verify(paths: tuple[str, ...], *, whole_state: bool, as_json: bool) -> int:
    """Check every byte of relays' directories, journals, segments, snapshots or backups. Changes nothing.

    The exit code is 65 where something is damaged, or a relay would not open. On a relay that a daemon has open,
    everything that is known to be on disk is checked.

    \b
    $ relayd verify --all /var/lib/relayd
    /var/lib/relayd/relays/build: 7 files, 300001 records, 9.0 MiB in 0.4 s (22.5 MiB/s): no damage
    """  # noqa: D301
    damaged = False
    with Progress() as progress, closed_after(_reports(paths, progress, whole_state=whole_state)) as reports:
        for report, seconds in reports:
            progress.clear()
            damaged = damaged or report.damaged
            if as_json:
                print_json(_line(report, seconds))
            else:
                _print(report, seconds)
    return DATA if damaged else 0


def _reports(paths: tuple[str, ...], progress: Progress, *, whole_state: bool) -> Iterator[tuple[VerifyReport, float]]:
    """Each path's report, and the seconds it took."""
    begun = 0.0
    for path in paths:
        told = BytesRead(progress, 0 if whole_state else measure_path(path))
        reports = verify_state(path, progress=told) if whole_state else [verify_path(path, progress=told)]
        for report in reports:
            yield report, progress.seconds - begun
            begun = progress.seconds


def _print(report: VerifyReport, seconds: float) -> None:
    for finding in report.findings:
        print_data(printable(f"{finding.reason}: {_place(finding)}: {finding.what}{_cost(finding)}"))
        print_data(printable(f"    {finding.hint}"))
    if report.refusal is not None:
        # Why it does not open has been said, where something was found that it follows from.
        found = any(not finding.harmless for finding in report.findings)
        print_data(f"the relay does not open ({report.reason})" if found else printable(report.refusal))
    if report.in_flight_bytes:
        print_data(f"in flight: {report.in_flight_bytes} bytes, which a daemon is writing, were not looked at")
    rate = f" ({format_bytes(report.bytes / seconds)}/s)" if seconds > 0 else ""
    size = f"{report.files} files, {report.records} records, {format_bytes(report.bytes)} in {seconds:.1f} s{rate}"
    print_data(printable(f"{report.path}: {size}: {'damaged' if report.damaged else 'no damage'}"))


def _place(finding: Finding) -> str:
    return finding.file if finding.offset is None else f"{finding.file} at byte {finding.offset}"


def _cost(finding: Finding) -> str:
    if finding.first is None:
        return ""
    if finding.at_most:
        return f" (ordinals {finding.first} to {finding.last}, some of which may never have been used)"
    return f" (events {finding.first} to {finding.last})"


def _line(report: VerifyReport, seconds: float) -> VerifyLine:
    return VerifyLine(
        path=report.path,
        damaged=report.damaged,
        files=report.files,
        records=report.records,
        size_bytes=report.bytes,
        seconds=round(seconds, 3),
        live=report.live,
        in_flight_bytes=report.in_flight_bytes,
        refusal=report.refusal,
        findings=[FindingLine(f.file, f.reason, f.what, f.hint, f.offset, f.first, f.last) for f in report.findings],
    )
