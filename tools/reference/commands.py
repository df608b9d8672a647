"""Every command with every flag, as the parser knows them, with the text of the help."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import msgspec

from reference.markdown import anchor, code, heading, table, text
from reference.translator import Translator
from whichgpu.surface.cli.click_parts import SHARED_OPTIONS, ValueType
from whichgpu.surface.cli.main import root

MAX_CHOICES = 12  # longer lists of choices are not written out


class Flag(msgspec.Struct, frozen=True):
    """A flag or argument of a command; one without a meaning is a gap."""

    command: str
    name: str
    spelled: str
    takes: str
    id: str  # of the sentence that describes it; of an argument, that sentence in English
    variable: str
    is_shared: bool
    is_argument: bool

    def meaning(self, translator: Translator) -> str:
        """Description in a language."""
        if self.is_argument:
            return translator.say(self.id)
        return translator.text(self.id) if self.id in translator else ""


def commands() -> Iterator[tuple[str, click.Command]]:
    """Commands by what is typed; subcommands follow their group."""
    above = click.Context(root, info_name="whichgpu")
    for name in root.list_commands(above):
        command = root.get_command(above, name)
        assert command is not None
        yield name, command
        if isinstance(command, click.Group):
            yield from ((f"{name} {below}", one) for below, one in command.commands.items())


@cache
def arguments() -> dict[tuple[str, str], str]:
    """Descriptions of the arguments of commands and, under "", of those that only endpoints take."""
    with (Path(__file__).parent / "arguments.csv").open(encoding="utf-8", newline="") as lines:
        return {(row["command"], row["argument"]): row["meaning"] for row in csv.DictReader(lines)}


def flags(name: str, command: click.Command) -> list[Flag]:
    """Flags and arguments of a command, in the order of its help."""
    return [_flag(name, param) for param in command.params if not getattr(param, "hidden", False)]


def page(translator: Translator) -> str:
    """The page."""
    say = translator.say
    parts = [
        f"# {say('Commands')}\n\n",
        say(
            "Made from the commands themselves; `whichgpu COMMAND --help` prints the same. "
            "A flag wins over its variable, the variable over the [config file](settings.md)."
        ),
        "\n",
    ]
    all_commands = list(commands())
    rows = [(f"[{code(name)}](#{anchor(name)})", text(_short(command, translator))) for name, command in all_commands]
    parts.append("\n" + table((say("command"), say("what it answers")), rows))
    for name, command in all_commands:
        parts.append(heading(2, code(f"whichgpu {name}"), anchor(name)))
        parts.append(text(translator.text(command.help or "")) + "\n")
        if not isinstance(command, click.Group):
            parts.append(_of(name, command, translator))
    parts.append(heading(2, say("Flags of every command"), "every-command"))
    shared = [flag for flag in flags(*all_commands[0]) if flag.is_shared]
    parts.append(_table(say("flag"), shared, translator))
    return "".join(parts)


def _of(name: str, command: click.Command, translator: Translator) -> str:
    own = [flag for flag in flags(name, command) if not flag.is_shared]
    parts = []
    if own:
        parts.append("\n" + _table(translator.say("argument or flag"), own, translator))
    parts.append(f"\n{translator.say('Also [those of every command](#every-command).')}\n")
    if command.epilog:
        parts.append(f"\n```text\n{translator.text(command.epilog)}\n```\n")
    return "".join(parts)


def _short(command: click.Command, translator: Translator) -> str:
    id = (command.help or "").replace(".help", ".short")
    return translator.text(id if id in translator else command.help or "")


def _table(first: str, flags_of_table: list[Flag], translator: Translator) -> str:
    rows = ((flag.spelled, flag.takes, text(flag.meaning(translator)), code(flag.variable)) for flag in flags_of_table)
    return table((first, translator.say("takes"), translator.say("meaning"), translator.say("variable")), rows)


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
        choices = param.type.choices
        if 0 < len(choices) <= MAX_CHOICES:
            return ", ".join(map(code, choices))
    if isinstance(param, click.Option) and param.is_flag:
        return ""
    return code(param.metavar or param.type.name)
