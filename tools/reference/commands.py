"""Every command with every flag, as the parser knows them and in the words help prints."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import msgspec

from reference.markdown import anchor, code, heading, table, text
from reference.tongue import Tongue
from whichgpu.surface.cli.click_parts import SHARED_OPTIONS, ValueType
from whichgpu.surface.cli.main import root

MANY = 12  # choices beyond these are not all written out


class Flag(msgspec.Struct, frozen=True):
    """A flag or argument of a command; one without a meaning is a gap."""

    command: str
    name: str
    spelled: str
    takes: str
    id: str  # of the sentence that says what it means; of an argument, that sentence in English
    variable: str
    is_shared: bool
    is_argument: bool

    def meaning(self, tongue: Tongue) -> str:
        """What it means."""
        if self.is_argument:
            return tongue.say(self.id)
        return tongue.text(self.id) if self.id in tongue else ""


def commands() -> Iterator[tuple[str, click.Command]]:
    """Commands by what is typed, those under a group after it."""
    above = click.Context(root, info_name="whichgpu")
    for name in root.list_commands(above):
        found = root.get_command(above, name)
        assert found is not None
        yield name, found
        if isinstance(found, click.Group):
            yield from ((f"{name} {below}", one) for below, one in found.commands.items())


@cache
def arguments() -> dict[tuple[str, str], str]:
    """What the arguments of commands mean, and, of no command, those that endpoints alone take."""
    with (Path(__file__).parent / "arguments.csv").open(encoding="utf-8", newline="") as lines:
        return {(row["command"], row["argument"]): row["meaning"] for row in csv.DictReader(lines)}


def flags(name: str, command: click.Command) -> list[Flag]:
    """What a command takes, in the order of its help."""
    return [_flag(name, param) for param in command.params if not getattr(param, "hidden", False)]


def page(tongue: Tongue) -> str:
    """The page."""
    say = tongue.say
    parts = [
        f"# {say('Commands')}\n\n",
        say(
            "Made from the commands themselves; `whichgpu COMMAND --help` prints the same. "
            "A flag wins over its variable, the variable over the [config file](settings.md)."
        ),
        "\n",
    ]
    found = list(commands())
    rows = [(f"[{code(name)}](#{anchor(name)})", text(_short(command, tongue))) for name, command in found]
    parts.append("\n" + table((say("command"), say("what it answers")), rows))
    for name, command in found:
        parts.append(heading(2, code(f"whichgpu {name}"), anchor(name)))
        parts.append(text(tongue.text(command.help or "")) + "\n")
        if not isinstance(command, click.Group):
            parts.append(_of(name, command, tongue))
    parts.append(heading(2, say("Flags of every command"), "every-command"))
    shared = [flag for flag in flags(*found[0]) if flag.is_shared]
    parts.append(_table(say("flag"), shared, tongue))
    return "".join(parts)


def _of(name: str, command: click.Command, tongue: Tongue) -> str:
    own = [flag for flag in flags(name, command) if not flag.is_shared]
    parts = []
    if own:
        parts.append("\n" + _table(tongue.say("argument or flag"), own, tongue))
    parts.append(f"\n{tongue.say('Also [those of every command](#every-command).')}\n")
    if command.epilog:
        parts.append(f"\n```text\n{tongue.text(command.epilog)}\n```\n")
    return "".join(parts)


def _short(command: click.Command, tongue: Tongue) -> str:
    id = (command.help or "").replace(".help", ".short")
    return tongue.text(id if id in tongue else command.help or "")


def _table(first: str, found: list[Flag], tongue: Tongue) -> str:
    rows = ((flag.spelled, flag.takes, text(flag.meaning(tongue)), code(flag.variable)) for flag in found)
    return table((first, tongue.say("takes"), tongue.say("meaning"), tongue.say("variable")), rows)


def _flag(command: str, param: click.Parameter) -> Flag:
    is_argument = not isinstance(param, click.Option)
    name = param.name or ""
    id = arguments().get((command, name), "") if is_argument else getattr(param, "help", None) or ""
    spelled = code(param.metavar or name.upper()) if is_argument else ", ".join(map(code, (*param.opts, *param.secondary_opts)))
    shared = name in SHARED_OPTIONS
    variable = getattr(param, "envvar", None) or f"WHICHGPU_{command}_{name}".replace(" ", "_").replace("-", "_").upper()
    if is_argument or name in ("json", "csv", "markdown", "tsv"):
        variable = ""
    return Flag(command, name, spelled, _takes(param), id, str(variable), shared, is_argument)


def _takes(param: click.Parameter) -> str:
    if isinstance(param.type, ValueType):
        known = param.type.choices
        if 0 < len(known) <= MANY:
            return ", ".join(map(code, known))
    if isinstance(param, click.Option) and param.is_flag:
        return ""
    return code(param.metavar or param.type.name)
