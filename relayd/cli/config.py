"""`relayd config`: the settings a daemon would run with."""

import click
import msgspec

from relayd.cli.options import json_option
from relayd.cli.output import print_data, print_json
from relayd.daemon.settings import load_settings


class SettingDocument(msgspec.Struct):
    """One setting of `relayd config show --json`; `where` is a file, variable or flag, empty for a default."""

    value: str | int | float | None
    source: str
    where: str


@click.group()
def config() -> None:
    """Show the daemon's settings and where they come from."""


@config.command()
@click.option("--config", "file", metavar="FILE", help="The settings file; by default RELAYD_CONFIG, else none.")
@click.option("--origin", is_flag=True, help="Say where each value comes from.")
@json_option
def show(*, file: str | None, origin: bool, as_json: bool) -> None:
    """Print the settings that `relayd serve` would run with, as a settings file.

    \b
    $ RELAYD_IDLE_RELAY=10 relayd config show --origin | grep idle_relay
    idle_relay = 10.0  # environment RELAYD_IDLE_RELAY
    """  # noqa: D301
    settings, origins = load_settings(config=file)
    if as_json:
        print_json({name: SettingDocument(getattr(settings, name), *where) for name, where in origins.items()})
        return
    for name, where in origins.items():
        value = getattr(settings, name)
        line = f"# {name} is not set" if value is None else f"{name} = {_toml(value)}"
        print_data(f"{line}  # {where}" if origin else line)


def _toml(value: str | float) -> str:
    # A JSON string is a TOML one too, but for DEL, which TOML wants escaped.
    return msgspec.json.encode(value).decode().replace("\x7f", "\\u007F")
