"""`relayd demo`: a daemon that is killed again and again, and an account of what that cost."""

import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from relayd.cli.options import json_option
from relayd.cli.output import format_bytes, print_data, print_json, print_table, say

if TYPE_CHECKING:
    from relayd.cli.demo_account import Comparison
    from relayd.cli.demo_play import Outcome
    from relayd.cli.demo_steps import Narrator

FAILED: Final = 1
_PLACE_BYTES_MAX: Final = 80
"""A socket's path may have 107 bytes."""


class ReadDocument(msgspec.Struct):
    """What a reader got, against what the program printed."""

    read: int
    lost: int
    twice: int
    altered: int
    in_order: bool


class KillDocument(msgspec.Struct):
    """One SIGKILL, with so many lines on their way, and how long the daemon was gone for the worker."""

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


@click.command()
@click.option(
    "--seconds", type=click.FloatRange(1, 3600), default=20.0, show_default=True, help="How long the program runs."
)
@click.option("--kills", type=click.IntRange(0, 100), default=4, show_default=True, help="How often the daemon is killed.")
@click.option("--keep", is_flag=True, help="Keep the directory, and print it.")
@json_option
def demo(*, seconds: float, kills: int, keep: bool, as_json: bool) -> int:
    """Watch a daemon being killed under a real program's output, and count what is lost: nothing.

    Everything happens in a temporary directory. What the program printed is kept beside, and compared line by line
    with what a new reader gets in the end: the exit code is 1 where anything is lost, twice, or otherwise than printed.

    \b
    $ relayd demo
    $ relayd demo --seconds 60 --kills 20
    $ relayd demo --keep && relayd verify --all /tmp/relayd-demo-…/state
    """  # noqa: D301
    from relayd.cli.demo_steps import DemoError, Narrator  # noqa: PLC0415 - `--help` needs no Trio

    narrator = Narrator()
    try:
        with _directory(keep=keep) as place:
            outcome = _play(place, seconds, kills, narrator)
            return _tell(outcome, narrator.seconds, place if keep else None, as_json=as_json)
    except DemoError as error:
        say(f"relayd: the demo failed: {error}")
        return FAILED


@contextmanager
def _directory(*, keep: bool) -> Generator[Path]:
    """A directory of the demo's own, removed in the end unless it is to be kept."""
    parent = tempfile.gettempdir()
    if len(parent.encode()) > _PLACE_BYTES_MAX:
        parent = "/tmp"  # noqa: S108 - mkdtemp's own directory in it is nobody else's
    place = Path(tempfile.mkdtemp(prefix="relayd-demo-", dir=parent))
    try:
        yield place
    finally:
        shutil.rmtree(place / "compiled" if keep else place, ignore_errors=True)


def _play(place: Path, seconds: float, kills: int, narrator: "Narrator") -> "Outcome":
    """Plays; whatever other tasks raised meanwhile, what ended the play is raised alone."""
    import trio  # noqa: PLC0415 - see above

    from relayd.cli.demo_play import Interrupted, play  # noqa: PLC0415 - see above

    try:
        return trio.run(partial(play, place, seconds, kills, narrator))
    except BaseExceptionGroup as group:
        raise _first(group) from None


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
