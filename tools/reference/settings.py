"""Config files, plan files, price files and environment variables: every key and its meaning."""

from __future__ import annotations

import ast
import csv
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import msgspec

from reference import commands
from reference.errors import SOURCE
from reference.markdown import code, heading, table, text
from reference.translator import Translator
from whichgpu.api.plan.plan_file import FILTERS, TOP, TRAFFIC
from whichgpu.catalog.live.overlay import CONTRACT, OWNED
from whichgpu.surface.cli.click_parts import options_of
from whichgpu.surface.cli.settings import SHARED
from whichgpu.workload.workload import KINDS

HERE = Path(__file__).parent


class Key(msgspec.Struct, frozen=True):
    """A key of a file: its file and table, and its meaning as a sentence or by its flag; neither is a gap."""

    file: str
    table: str
    name: str
    words: str = ""
    flag: commands.Flag | None = None

    def meaning(self, translator: Translator) -> str:
        """Description in a language."""
        return translator.say(self.words) if self.words or self.flag is None else self.flag.meaning(translator)


def request_fields(translator: Translator) -> dict[str, str]:
    """Fields of a request, with the help of their flags."""
    ids = {name: (f"option.workload-{_dashed(name)}", f"option.{_dashed(name)}") for name in KINDS}
    extra = {"task": "train, finetune, serve, batch, prefill, decode or forward", "model": "a model, as every command takes it"}
    return {
        name: next((translator.text(id) for id in pair if id in translator), "") or translator.say(extra.get(name, ""))
        for name, pair in ids.items()
    }


@cache
def plan_keys() -> tuple[Key, ...]:
    """Keys of plan files and of prices.toml."""
    descriptions, planned = _descriptions(), {flag.name: flag for flag in _flags_of("plan")}
    top = [Key("plan", "", name, descriptions.get(("plan", "", name), ""), planned.get(name)) for name in (*TOP, *FILTERS)]
    loads = [Key("plan", "model", name, flag=planned.get(name)) for name in TRAFFIC]
    rest = [Key(*place, meaning) for place, meaning in descriptions.items() if place[1] or place[0] == "prices"]
    price_keys = {(one.table, one.name) for one in rest if one.file == "prices"}
    lost = [("contract", name) for name in CONTRACT] + [("owned", name) for name in OWNED]
    return (*top, *loads, *rest, *(Key("prices", *place) for place in lost if place not in price_keys))


def config_keys() -> Iterator[tuple[str, str]]:
    """Tables and keys of config.toml; the table of shared keys has an empty name."""
    yield from (("", name) for name in SHARED)
    for name, command in commands.commands():
        if " " not in name:
            yield from ((name, key) for key in options_of(command) if key not in SHARED)


@cache
def variables() -> dict[str, str]:
    """Environment variables and their meaning."""
    with (HERE / "variables.csv").open(encoding="utf-8", newline="") as lines:
        return {row["variable"]: row["meaning"] for row in csv.DictReader(lines)}


def variables_read() -> set[str]:
    """Environment variables that the code reads."""
    names: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        names |= set(re.findall(r"WHICHGPU_[A-Z_]*[A-Z]\b|WHICHGPU_URL_", source))
        if "environ" in source:
            names |= {word for node in ast.walk(ast.parse(source)) for word in _read(node)}
    return {name for name in names if not name.endswith("_SORT")}


def page(translator: Translator) -> str:
    """The page."""
    say, up, meaning = translator.say, translator.up, translator.say("meaning")
    parts = [
        f"# {say('Settings')}\n\n",
        say("A flag wins over a variable, a variable over the config file.") + "\n",
        heading(2, "config.toml", "config"),
        say(
            "In your configuration directory (`~/.config/whichgpu/` on Linux), or `--config FILE`. Keys at the top hold for "
            "every command; keys under `[command]` are that command's own [flags](commands.md), with `_` or `-`."
        )
        + "\n\n",
        '```toml\nformat = "json"\n\n[offers]\ncurrency = "EUR"\nprovider = ["aws", "gcp"]\n```\n\n',
        _config_table(translator),
        heading(2, say("Plan files"), "plan"),
        say("`whichgpu plan FILE.toml`; an example is in [How plan decides]({up}plan.md#a-plan-file).", up=up) + " ",
        say("A `[[model]]` and a `[[job]]` also take every [field of a request](fields.md#request).") + "\n\n",
        _keys_table("plan", translator),
        heading(2, "prices.toml", "prices"),
        say("Your own discounts, contracts and machines: [Use your own prices]({up}guides/own-prices.md).", up=up) + "\n\n",
        _keys_table("prices", translator),
        heading(2, say("Environment variables"), "variables"),
        say("Each flag of a command also has one: `WHICHGPU_<COMMAND>_<FLAG>`, as the [commands](commands.md) list them.")
        + "\n\n",
        table((say("variable"), meaning), ((code(name), text(say(words))) for name, words in variables().items())),
    ]
    return "".join(parts)


def _config_table(translator: Translator) -> str:
    tables: dict[str, list[str]] = {}
    for name, key in config_keys():
        tables.setdefault(name, []).append(key)
    top = translator.say("top")
    rows = ((code(f"[{name}]") if name else top, ", ".join(map(code, keys))) for name, keys in tables.items())
    return table((translator.say("table"), translator.say("keys")), rows)


def _keys_table(file: str, translator: Translator) -> str:
    rows = [one for one in plan_keys() if one.file == file]
    order, top = sorted(rows, key=lambda one: (one.table, one.name)), translator.say("top")
    return table(
        (translator.say("table"), translator.say("key"), translator.say("meaning")),
        ((code(one.table) if one.table else top, code(one.name), text(one.meaning(translator))) for one in order),
    )


def _flags_of(command: str) -> list[commands.Flag]:
    return commands.flags(command, dict(commands.commands())[command])


def _descriptions() -> dict[tuple[str, str, str], str]:
    with (HERE / "keys.csv").open(encoding="utf-8", newline="") as lines:
        return {(row["file"], row["table"], row["key"]): row["meaning"] for row in csv.DictReader(lines)}


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def _read(node: ast.AST) -> Iterator[str]:
    """Names read from an environment: environ["X"], environ.get("X"), "X" in environ."""
    of, name = "", None
    if isinstance(node, ast.Subscript):
        of, name = ast.unparse(node.value), node.slice
    elif (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("get", "setdefault")
        and node.args
    ):
        of, name = ast.unparse(node.func.value), node.args[0]
    elif isinstance(node, ast.Compare):
        of, name = ast.unparse(node.comparators[-1]), node.left
    if of.endswith("environ") and isinstance(name, ast.Constant):
        yield str(name.value)
