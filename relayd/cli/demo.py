"""`relayd demo`: a daemon that is killed again and again, and an account of what that cost."""

from functools import partial
from typing import Final

import click

from relayd.cli.demo_report import judge, print_account
from relayd.cli.options import json_option
from relayd.cli.output import print_json, printable, say

OK: Final = 0
FAILED: Final = 1
SIGNALLED: Final = 128
"""What shells add to a signal's number."""


@click.command()
@click.option(
    "--seconds", type=click.FloatRange(1, 3600), default=20.0, show_default=True, help="How long the program runs."
)
@click.option(
    "--kills", type=click.IntRange(0, 100), default=4, show_default=True, help="How often the daemon is killed."
)
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
    import trio  # noqa: PLC0415 - `--help` needs none of it

    from relayd.cli.demo_play import Interrupted, play  # noqa: PLC0415
    from relayd.cli.demo_steps import DemoError, Narrator  # noqa: PLC0415

    narrator = Narrator()
    try:
        outcome = trio.run(partial(play, seconds, kills, narrator, keep=keep))
    except Interrupted as interrupted:
        return SIGNALLED + interrupted.number
    except DemoError as error:
        if error.log:
            say("the end of the daemon's log:")
            for line in error.log:
                say("    " + printable(line))
        say(f"relayd: the demo failed: {printable(str(error))}")
        return FAILED
    account, as_it_should_be = judge(outcome, narrator.seconds)
    if as_json:
        print_json(account)
    else:
        print_account(account)
    return OK if as_it_should_be else FAILED
