"""`trainmaster completion`: the script that teaches a shell to complete our commands."""

import sys

import click
from click.shell_completion import get_completion_class

from trainmaster.cli.options import Command


@click.command(
    cls=Command,
    examples=[
        ('eval "$(trainmaster completion bash)"', "in ~/.bashrc"),
        ('eval "$(trainmaster completion zsh)"', "in ~/.zshrc"),
        ("trainmaster completion fish | source", "in config.fish"),
    ],
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of a shell."""
    from trainmaster.cli.main import root

    kind = get_completion_class(shell)
    assert kind is not None, shell
    sys.stdout.write(kind(root, {}, "trainmaster", "_TRAINMASTER_COMPLETE").source() + "\n")
