"""`relayd serve`: the daemon in the foreground."""

import traceback
from collections.abc import Callable

import click

from relayd.daemon.settings import SETTINGS, Settings, load_settings
from relayd.protocol.errors import RelaydError


def _with_settings(command: Callable[..., object]) -> Callable[..., object]:
    """Adds an option for each setting; their values are read where the file's and the environment's are."""
    for setting in reversed(SETTINGS.values()):
        command = click.option(setting.flag, setting.name, metavar="VALUE", help=setting.description)(command)
    return command


@click.command()
@click.option("--config", metavar="FILE", help="The settings file (TOML); by default RELAYD_CONFIG, else none.")
@_with_settings
def serve(config: str | None, **flags: str | None) -> int:
    """Run the daemon until SIGTERM, in the foreground.

    \b
    $ relayd serve --state /var/lib/relayd --socket /run/relayd/relayd.sock

    Each setting is an option, a variable (RELAYD_DRAIN=2) and a key of the settings file (drain = 2); what each is
    for, and its default, stands in docs/reference/settings.md. SIGHUP reads them again and reopens the log.
    """  # noqa: D301

    def load() -> Settings:
        return load_settings(config=config, flags=flags).settings

    settings = load()
    from relayd.daemon.service import run  # noqa: PLC0415 - a wrong setting is told before Trio is imported

    try:
        return run(settings, reload=load)
    except (RelaydError, OSError):
        raise
    except Exception:
        # Standard error is a daemon's log of last resort, and nobody can run the same again to see more.
        traceback.print_exc()
        raise
