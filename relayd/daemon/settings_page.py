"""Writes docs/reference/settings.md from the settings' own struct: `python -m relayd.daemon.settings_page > FILE`."""

import sys
from typing import Final

from relayd.daemon.settings import OTHER_VARIABLES, SETTINGS, Setting, format_size

_BEGINNING: Final = """\
# Settings

A setting has one name: `idle_relay` is the key `idle_relay = 30` of the settings file, `RELAYD_IDLE_RELAY=30` in the
environment and `relayd serve --idle-relay 30`. Where several are given, the later in this order wins: default, file,
environment, flag. `relayd config show --origin` prints what a daemon would run with, and where each value comes from.

The file is TOML, one table, no sections. It is read when `relayd serve --config FILE` or `RELAYD_CONFIG` names it;
without either no file is read. What is not known is refused, with its place and the nearest name there is; a value that
does not belong is refused with what does. `relayd serve` then exits 78.

Sizes end in `_bytes` and are bytes, or strings with a unit: `"8 MiB"`, `RELAYD_SEGMENT_BYTES=8MiB` (KiB, MiB, GiB).
Times are seconds. Relative paths in the file begin at its directory, others at the working directory; `~` is the home
directory. A variable that is set to nothing counts as not set.

SIGHUP reads the settings again and opens the log anew. Those marked *reload* change in the running daemon; a changed
one without the mark is logged and takes effect at the next start. A SIGHUP that meets a wrong setting is logged and
changes nothing.
"""

_DEFAULTS: Final = {
    "state": "`/var/lib/relayd` for root, else `$XDG_STATE_HOME/relayd`, else `~/.local/state/relayd`",
    "socket": "`$XDG_RUNTIME_DIR/relayd/relayd.sock`, else `/run/relayd/relayd.sock`",
}

_END: Final = """\
## Variables that are no settings

Clients and the command line read these: `RELAYD_SOCKET` (where to connect), `RELAYD_CLIENT` (what the daemon's log
calls the client), and the identities that a connection speaks for, `RELAYD_ASKER`, `RELAYD_AUTHOR`, `RELAYD_WORKER`.
`RELAYD_CONFIG` names the settings file; `RELAYD_TRACEBACK=1` makes the command line show a traceback.
Any other variable that begins with `RELAYD_` is refused by `relayd serve`, because it is a setting misspelt.
"""


def settings_page() -> str:
    """The page, complete."""
    sections = [_BEGINNING, *(_section(setting) for setting in SETTINGS.values()), _END]
    assert all(variable in _END for variable in OTHER_VARIABLES), "each variable is explained"
    return "\n".join(sections)


def _section(setting: Setting) -> str:
    mark = " *reload*" if setting.reloadable else ""
    return (
        f"### {setting.name}{mark}\n\n"
        f"{setting.description}\n\n"
        f"Takes {setting.expected}. Default: {_default(setting)}.\n"
    )


def _default(setting: Setting) -> str:
    if setting.name in _DEFAULTS:
        return _DEFAULTS[setting.name]
    match setting.default:
        case None:
            return "not set"
        case int() as size if setting.name.endswith("_bytes"):
            return format_size(size)
        case float() as seconds:
            return f"{seconds:g}"
        case other:
            return f"`{other}`"


if __name__ == "__main__":
    sys.stdout.write(settings_page())
