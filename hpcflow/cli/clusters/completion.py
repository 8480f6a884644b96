"""``hpcflow completion``."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from hpcflow.terminal import echo_as_is


@click.command("completion", short_help="Print the shell's completion script.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> int:
    """Print the completion script for SHELL.

    \b
    bash: echo 'eval "$(hpcflow completion bash)"' >> ~/.bashrc
    """
    complete = get_completion_class(shell)
    assert complete is not None
    root = ctx.find_root().command
    echo_as_is(complete(root, {}, "hpcflow", "_HPCFLOW_COMPLETE").source() + "\n")
    return 0
