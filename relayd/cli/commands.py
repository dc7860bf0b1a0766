"""The command `relayd` and the table of its commands; each is imported when it is called or explained."""

from difflib import get_close_matches
from importlib import import_module
from typing import Final, NamedTuple

import click

from relayd.version import __version__


class Lazy(NamedTuple):
    """Where a command stands, and the line that `relayd --help` shows for it without importing it."""

    module: str
    attribute: str
    summary: str


COMMANDS: Final[dict[str, Lazy]] = {
    "serve": Lazy("serve", "serve", "Run the daemon."),
    "relays": Lazy("relays", "relays", "List the relays."),
    "open": Lazy("relays", "open_relay", "Open a relay, or make it."),
    "status": Lazy("relays", "status", "Show the state of a relay."),
    "delete": Lazy("relays", "delete", "Remove a relay for good."),
    "record": Lazy("record", "record", "Record standard input, each line an event, exactly once."),
    "follow": Lazy("follow", "follow", "Print events: what was missed, then live."),
    "submit": Lazy("submit", "submit", "Submit a task, accepted exactly once."),
    "commands": Lazy("submit", "commands", "Show what is queued and worked on."),
    "cancel": Lazy("submit", "cancel", "Cancel a command."),
    "work": Lazy("work", "work", "Run a program once for each task."),
    "checkpoint": Lazy("checkpoint", "checkpoint", "Make a cut of a relay at which nothing runs."),
    "close": Lazy("checkpoint", "close", "Close a relay for ever."),
    "acknowledge": Lazy("acknowledge", "acknowledge", "Say how far a consumer has everything."),
    "forget": Lazy("acknowledge", "forget", "Forget a consumer that is gone."),
    "cat": Lazy("cat", "cat", "Print the events of files, without a daemon."),
    "verify": Lazy("verify", "verify", "Check every byte of files, without a daemon."),
    "salvage": Lazy("salvage", "salvage", "Make a damaged relay open again, accepting loss."),
    "backup": Lazy("backup", "backup", "Copy a relay into one file."),
    "restore": Lazy("backup", "restore", "Make a relay of a backup."),
    "demo": Lazy("demo", "demo", "Watch a daemon being killed, and nothing being lost."),
    "config": Lazy("config", "config", "Show the daemon's settings and where they come from."),
    "completion": Lazy("completion", "completion", "Print a shell's completion script."),
    "version": Lazy("version", "version", "Print the version."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are needed: `relayd status` loads nothing of `relayd serve`."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """The commands in the order in which one meets them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command of that name, imported now."""
        lazy = COMMANDS.get(cmd_name)
        if lazy is None:
            return None
        command = getattr(import_module(f"relayd.cli.{lazy.module}"), lazy.attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does it; a name that is none is told with the nearest that is."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = get_close_matches(args[0], COMMANDS, n=1)
            hint = f"did you mean `{near[0]}`?" if near else "`relayd --help` lists the commands"
            raise click.UsageError(f"{error.message.rstrip('.')}; {hint}", ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The list of commands, from the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, lazy.summary) for name, lazy in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, message="relayd %(version)s")
def relayd() -> None:
    """A durable relay between workers and controllers, over a Unix socket.

    \b
    relayd serve &                              start the daemon
    make 2>&1 | relayd record --create build    each line is on disk before it counts
    relayd follow build                         everything from the start, then live

    `relayd COMMAND --help` explains a command with examples.
    """  # noqa: D301 - \b is click's mark for a paragraph kept as it is
