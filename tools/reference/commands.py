"""Every command with every flag, as the parser knows them and in the words help prints."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import click

from reference.markdown import anchor, code, heading, table, text
from whichgpu.base.messages import english
from whichgpu.surface.cli.frame import SHARED_NAMES, Words
from whichgpu.surface.cli.main import root

MANY = 12  # choices beyond these are not all written out


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag or argument of a command; an empty meaning is a gap."""

    command: str
    name: str
    spelled: str
    takes: str
    meaning: str
    variable: str
    is_shared: bool
    is_argument: bool


def commands() -> Iterator[tuple[str, click.Command]]:
    """Commands by what is typed, those under a group after it."""
    above = click.Context(root, info_name="whichgpu")
    for name in root.list_commands(above):
        found = root.get_command(above, name)
        assert found is not None
        yield name, found
        if isinstance(found, click.Group):
            yield from ((f"{name} {below}", one) for below, one in found.commands.items())


def flags(name: str, command: click.Command) -> list[Flag]:
    """What a command takes, in the order of its help."""
    return [_flag(name, param) for param in command.params if not getattr(param, "hidden", False)]


def page() -> str:
    """The page."""
    parts = [
        "# Commands\n\nMade from the commands themselves; `whichgpu COMMAND --help` prints the same. ",
        "A flag wins over its variable, the variable over the [config file](settings.md).\n",
    ]
    found = list(commands())
    rows = [(f"[{code(name)}](#{anchor(name)})", text(_short(command))) for name, command in found]
    parts.append("\n" + table(("command", "what it answers"), rows))
    for name, command in found:
        parts.append(heading(2, code(f"whichgpu {name}"), anchor(name)))
        parts.append(text(english().text(command.help or "")) + "\n")
        if not isinstance(command, click.Group):
            parts.append(_of(name, command))
    parts.append(heading(2, "Flags of every command", "every-command"))
    shared = [flag for flag in flags(*found[0]) if flag.is_shared]
    parts.append(table(("flag", "takes", "meaning", "variable"), (_row(flag) for flag in shared)))
    return "".join(parts)


def _of(name: str, command: click.Command) -> str:
    own = [flag for flag in flags(name, command) if not flag.is_shared]
    parts = []
    if own:
        parts.append("\n" + table(("argument or flag", "takes", "meaning", "variable"), (_row(flag) for flag in own)))
    parts.append("\nAlso [those of every command](#every-command).\n")
    if command.epilog:
        parts.append(f"\n```text\n{english().text(command.epilog)}\n```\n")
    return "".join(parts)


def _short(command: click.Command) -> str:
    id = (command.help or "").replace(".help", ".short")
    return english().text(id) if id in english() else english().text(command.help or "")


def _row(flag: Flag) -> tuple[str, ...]:
    return flag.spelled, flag.takes, text(flag.meaning), code(flag.variable)


def _flag(command: str, param: click.Parameter) -> Flag:
    is_argument = not isinstance(param, click.Option)
    name = param.name or ""
    id = getattr(param, "help", None) or ""
    meaning = english().text(id) if id in english() else ""
    if is_argument:
        meaning = english().text(f"command.{command}.help") if f"command.{command}.help" in english() else "as the usage says"
    spelled = code(param.metavar or name.upper()) if is_argument else ", ".join(map(code, (*param.opts, *param.secondary_opts)))
    shared = name in SHARED_NAMES
    variable = getattr(param, "envvar", None) or f"WHICHGPU_{command}_{name}".replace(" ", "_").replace("-", "_").upper()
    if is_argument or name in ("json", "csv", "markdown", "tsv"):
        variable = ""
    if is_argument:
        meaning = "what is asked about" if param.metavar else ""
    return Flag(command, name, spelled, _takes(param), meaning, str(variable), shared, is_argument)


def _takes(param: click.Parameter) -> str:
    if isinstance(param.type, Words):
        known = param.type.known()
        if len(known) <= MANY:
            return ", ".join(map(code, known))
    if isinstance(param, click.Option) and param.is_flag:
        return ""
    return code(param.metavar or param.type.name)
