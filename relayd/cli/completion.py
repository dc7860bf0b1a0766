"""`relayd completion`."""

import click
from click.shell_completion import get_completion_class

from relayd.cli.commands import relayd
from relayd.cli.output import print_data


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that makes SHELL complete commands, options and the names of relays.

    \b
    bash:  relayd completion bash > ~/.local/share/bash-completion/completions/relayd
    zsh:   relayd completion zsh > ~/.zfunc/_relayd        (with ~/.zfunc in $fpath)
    fish:  relayd completion fish > ~/.config/fish/completions/relayd.fish
    """  # noqa: D301
    generator = get_completion_class(shell)
    assert generator is not None, "click completes each shell of the choice"
    print_data(generator(relayd, {}, "relayd", "_RELAYD_COMPLETE").source())
