"""`relayd serve`: the daemon in the foreground."""

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal, get_args, get_origin

import click

from relayd.cli.options import words
from relayd.cli.output import printable, say
from relayd.daemon.settings import SETTINGS, Loaded, Setting, load_settings
from relayd.protocol.errors import RelaydError


def _with_settings(command: Callable[..., object]) -> Callable[..., object]:
    """Adds an option for each setting; their values are read where the file's and the environment's are."""
    for setting in reversed(SETTINGS.values()):
        command = _option(setting)(command)
    return command


def _option(setting: Setting) -> Callable[[Callable[..., object]], Callable[..., object]]:
    return click.option(
        setting.flag,
        setting.name,
        metavar="VALUE",
        help=setting.description,
        type=click.Path() if setting.path else str,
        shell_complete=None if setting.path else words(*_choices(setting)),
    )


def _choices(setting: Setting) -> tuple[str, ...]:
    """The words that a setting of few words can be."""
    plain = get_args(setting.type)[0] if get_origin(setting.type) is Annotated else setting.type
    return get_args(plain) if get_origin(plain) is Literal else ()


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

    def load() -> Loaded:
        return load_settings(config=config, flags=flags)

    loaded = load()
    _tell_fresh_state(loaded)
    settings = loaded.settings
    from relayd.daemon.service import run  # noqa: PLC0415 - a wrong setting is told before Trio is imported

    try:
        return run(settings, reload=lambda: load().settings)
    except (RelaydError, OSError):
        raise
    except Exception:
        # Standard error is a daemon's log of last resort, and nobody can run the same again to see more.
        traceback.print_exc()
        raise


def _tell_fresh_state(loaded: Loaded) -> None:
    """Who says where to listen and not where the state is may have meant a daemon that ran before, with its relays."""
    state = loaded.settings.state
    named = loaded.origins["socket"].source != "default"
    if named and loaded.origins["state"].source == "default" and not Path(state).exists():
        say(printable(f"relayd: begins with an empty state directory, {state} by default; --state names another"))
