"""`%whichgpu` in a notebook: a line as on the command line, which gives the answer as an object."""

from __future__ import annotations

import shlex
import sys
from typing import Any

import click

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import english, msg
from whichgpu.base.names import unknown_word
from whichgpu.surface.cli.click_parts import click_command
from whichgpu.surface.cli.main import usage_error
from whichgpu.surface.commands.command import command_named
from whichgpu.surface.commands.session import Session
from whichgpu.surface.python.answer_display import COMMANDS
from whichgpu.surface.python.call import call, with_hint

NAMES = tuple(sorted(set(COMMANDS.values())))


def answer_line(line: str) -> Any:
    """Return the answer to a command line without the program's name; None after its help was printed."""
    try:
        words = shlex.split(line)
    except ValueError as problem:
        raise UsageError("usage", msg("error.usage", text=str(problem))) from problem
    name = next((one for one in (" ".join(words[:2]), " ".join(words[:1])) if one in NAMES), None)
    if name is None:
        raise with_hint(unknown_word("command", " ".join(words[:1]), NAMES))
    session = Session(english(), out=sys.stdout, err=sys.stderr)
    session.command = tuple(name.split())
    try:
        with click_command(name).make_context(f"whichgpu {name}", words[len(name.split()) :], obj=session) as context:
            values = {field: value for field, value in context.params.items() if field in command_named(name).fields}
    except click.exceptions.Exit:
        return None
    except click.UsageError as problem:
        raise with_hint(usage_error(problem, session)) from None
    return call(name, options=values)


def register(shell: Any) -> None:
    """Add the magic to an IPython shell."""
    shell.register_magic_function(answer_line, "line", "whichgpu")
