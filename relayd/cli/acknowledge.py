"""`relayd acknowledge` and `forget`: how far consumers have everything."""

import click
import msgspec

from relayd.cli.options import complete_consumer, connect, cursor, identity, json_option, relay_argument, socket_option
from relayd.cli.output import print_data, print_json, printable, say
from relayd.protocol.cursor import Cursor, format_cursor
from relayd.protocol.errors import NameDetail, NotFoundError


class ForgottenDocument(msgspec.Struct):
    """What `relayd forget --json` prints."""

    relay: str
    consumer: str


class AcknowledgedDocument(msgspec.Struct):
    """What `relayd acknowledge --json` prints."""

    relay: str
    consumer: str
    through: str
    retained: str


@click.command()
@relay_argument
@click.argument("through", type=cursor, metavar="CURSOR")
@click.option(
    "--consumer",
    type=identity,
    metavar="NAME",
    default="controller",
    show_default=True,
    shell_complete=complete_consumer,
    help="Who has everything.",
)
@socket_option
@json_option
def acknowledge(relay: str, through: Cursor, *, consumer: str, socket: str | None, as_json: bool) -> None:
    """Say that a consumer has everything of RELAY through CURSOR; prints where it stands now.

    What every consumer has acknowledged, and the relay's retention no longer needs, may be collected.

    \b
    $ relayd acknowledge build "$(cat build.cursor)" --consumer archive
    4312-0cc175b9c0f1b6a831c399e269772661
    """  # noqa: D301
    if through.digest is None:
        raise click.UsageError("a cursor with its digest is needed, as cursor files and `relayd follow --json` have it")
    with connect(socket) as client:
        done = client.acknowledge(relay, through, consumer)
    if as_json:
        print_json(AcknowledgedDocument(relay, consumer, format_cursor(done.through), format_cursor(done.retained)))
    else:
        print_data(format_cursor(done.through))


@click.command()
@relay_argument
@click.argument("consumer", type=identity, shell_complete=complete_consumer)
@socket_option
@json_option
def forget(relay: str, consumer: str, *, socket: str | None, as_json: bool) -> None:
    """Forget a CONSUMER of RELAY that is gone, so that it holds nothing back any longer.

    \b
    $ relayd forget build archive
    """  # noqa: D301
    with connect(socket) as client:
        known = client.status(relay).consumers
        if consumer not in known:
            has = f"it has {', '.join(sorted(known))}" if known else "it has none"
            raise NotFoundError(
                f"relay {relay} has no consumer {consumer}, and nothing was forgotten; {has}",
                NameDetail("consumer", consumer),
            )
        client.forget_consumer(relay, consumer)
    say(printable(f"forgot consumer {consumer} of relay {relay}"))
    if as_json:
        print_json(ForgottenDocument(relay, consumer))
