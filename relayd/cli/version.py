"""`relayd version`."""

import platform

import click
import msgspec

from relayd.cli.options import json_option
from relayd.cli.output import print_data, print_json
from relayd.version import __version__


class VersionDocument(msgspec.Struct):
    """What `relayd version --json` prints."""

    version: str
    protocol_versions: list[int]
    python: str


@click.command()
@json_option
def version(*, as_json: bool) -> None:
    """Print the version.

    \b
    $ relayd version
    relayd 0.1.0
    """  # noqa: D301
    if as_json:
        print_json(VersionDocument(__version__, [1], platform.python_version()))
    else:
        print_data(f"relayd {__version__}")
