"""`relayd acknowledge` and `forget`: how far consumers have everything."""

import click
import msgspec

from relayd.cli.options import connect, cursor, identity, json_option, relay_argument, socket_option
from relayd.cli.output import print_data, print_json, say
from relayd.protocol.cursor import Cursor, format_cursor


class AcknowledgedDocument(msgspec.Struct):
    """What `relayd acknowledge --json` prints."""

    relay: str
    consumer: str
    through: str
    retained: str


@click.command()
@relay_argument
@click.argument("through", type=cursor)
@click.option(
    "--consumer", type=identity, metavar="NAME", default="controller", show_default=True, help="Who has everything."
)
@socket_option
@json_option
def acknowledge(relay: str, through: Cursor, *, consumer: str, socket: str | None, as_json: bool) -> None:
    """Say that a consumer has everything of RELAY THROUGH a cursor; prints where it stands now.

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
@click.argument("consumer", type=identity)
@socket_option
def forget(relay: str, consumer: str, *, socket: str | None) -> None:
    """Forget a CONSUMER of RELAY that is gone, so that it holds nothing back any longer.

    \b
    $ relayd forget build archive
    """  # noqa: D301
    with connect(socket) as client:
        client.forget_consumer(relay, consumer)
    say(f"forgot consumer {consumer} of relay {relay}")
