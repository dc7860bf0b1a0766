"""What `relayd demo` prints in the end: the account, for people or as a document."""

from typing import TYPE_CHECKING

import msgspec

from relayd.cli.demo_account import Comparison, compare, lines_of
from relayd.cli.output import format_bytes, print_data, print_table

if TYPE_CHECKING:
    from relayd.cli.demo_play import Outcome


class ReadDocument(msgspec.Struct):
    """What a reader got, against what the program printed (docs/reference/cli.md, "demo --json")."""

    read: int
    lost: int
    twice: int
    altered: int
    in_order: bool


class KillDocument(msgspec.Struct):
    """One SIGKILL: lines on their way, and how long the daemon was gone for new clients and for the worker."""

    unanswered: int
    serving_ms: int
    first_answer_ms: int


class DemoDocument(msgspec.Struct):
    """What `relayd demo --json` prints; `directory` is null where it is removed."""

    sent: int
    answered: int
    read: int
    lost: int
    twice: int
    altered: int
    in_order: bool
    follower: ReadDocument
    missed: int
    kills: list[KillDocument]
    raw_bytes: int
    disk_bytes: int
    seconds: float
    directory: str | None


def judge(outcome: "Outcome", seconds: float) -> tuple[DemoDocument, bool]:
    """The account, and whether it is as it should be: everything answered, and each reader got just what was printed.

    Only `answered` is what the daemon said.
    """
    printed = lines_of(outcome.printed)
    read, followed = compare(printed, outcome.read), compare(printed, outcome.followed)
    document = DemoDocument(
        len(printed),
        outcome.answered,
        *read,
        follower=_document(followed),
        missed=outcome.missed,
        kills=[
            KillDocument(kill.unanswered, _ms(kill.serving_seconds), _ms(kill.first_answer_seconds))
            for kill in outcome.kills
        ],
        raw_bytes=len(outcome.printed),
        disk_bytes=outcome.disk_bytes,
        seconds=round(seconds, 3),
        directory=None if outcome.directory is None else str(outcome.directory),
    )
    return document, read.exact and followed.exact and outcome.answered == len(printed)


def print_account(account: DemoDocument) -> None:
    """The account for people."""
    follower = account.follower
    rows = [
        ("sent", account.sent, "all that the program printed, kept beside"),
        ("answered", account.answered, "on disk, says the daemon"),
        ("read", account.read, "by a new reader, from the start"),
        ("lost", account.lost, "printed and not read"),
        ("twice", account.twice, "read more often than printed"),
        ("altered", account.altered, "read and never printed"),
        ("followed", follower.read, _follower(follower)),
    ]
    print_table(("account", ">lines", ""), [(name, f"{count:,}", what) for name, count, what in rows])
    if not account.in_order:
        print_data("The lines were not read in the order in which they were printed.")
    ratio = account.disk_bytes / account.raw_bytes if account.raw_bytes else 0
    sizes = f"{format_bytes(account.disk_bytes)} on disk for {format_bytes(account.raw_bytes)} printed ({ratio:.2f}x)"
    kills = "1 kill" if len(account.kills) == 1 else f"{len(account.kills)} kills"
    print_data(f"{sizes}; {kills} with lines on their way; {account.seconds:.1f} s")
    if account.directory is not None:
        print_data(f"kept: {account.directory}")


def _follower(read: ReadDocument) -> str:
    order = "" if read.in_order else ", not in order"
    altered = f", altered {read.altered}" if read.altered else ""
    return f"by the follower that was cut off: lost {read.lost:,}, twice {read.twice:,}{altered}{order}"


def _document(compared: Comparison) -> ReadDocument:
    return ReadDocument(*compared)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
