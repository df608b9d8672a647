"""`whichgpu completion`: a script that completes commands, flags, GPU and provider names in the user's shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from whichgpu.api.request.kinds import Words
from whichgpu.base.codec import to_json
from whichgpu.surface.cli.click_parts import command, value_type
from whichgpu.surface.commands.session import Session

SHELLS = ("bash", "zsh", "fish")


@command("completion", epilog=True)
@click.argument("shell", type=value_type(Words("shell", SHELLS)), metavar="bash|zsh|fish")
def completion(session: Session, shell: str) -> None:
    """Print the completion script of a shell."""
    completion_class = get_completion_class(shell)
    assert completion_class is not None
    root = click.get_current_context().find_root().command
    script = completion_class(root, {}, "whichgpu", "_WHICHGPU_COMPLETE").source()
    session.out.write(to_json({"shell": shell, "script": script}) if session.format == "json" else script + "\n")
