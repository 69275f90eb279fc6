"""`everlog completion`: click's own completion script for a shell."""

from __future__ import annotations

import click

from everlog.cli.session import common_options


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@common_options
def completion_command(shell: str) -> None:
    """Print a completion script.

    \b
    Examples:
      everlog completion bash > ~/.local/share/bash-completion/completions/everlog
      everlog completion zsh > ~/.zfunc/_everlog
      everlog completion fish > ~/.config/fish/completions/everlog.fish
    """
    from click.shell_completion import get_completion_class

    from everlog.cli.main import cli

    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"click has no completion for {shell}")
    # The script is made from click's template; asking the shell for its version is left to the user's shell.
    made = found(cli, {}, "everlog", "_EVERLOG_COMPLETE")
    click.echo(made.source_template % made.source_vars())
