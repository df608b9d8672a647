"""Config files, plan files, price files and environment variables: every key and what it means."""

from __future__ import annotations

import ast
import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from reference import commands
from reference.errors import SOURCE
from reference.markdown import code, heading, table, text
from whichgpu.api.planfile import LOADS, TOP, WISHES
from whichgpu.base.messages import english
from whichgpu.catalog.live.overlay import CONTRACT, OWNED
from whichgpu.surface.cli.frame import options_of
from whichgpu.surface.cli.settings import SHARED
from whichgpu.workload.kinds import KINDS

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Key:
    """A key of a file: in which file and table, and what it means; an empty meaning is a gap."""

    file: str
    table: str
    name: str
    meaning: str


def request_fields() -> dict[str, str]:
    """Fields of a request, with the words of their flags."""
    text = english().text
    ids = {name: (f"option.workload-{_dashed(name)}", f"option.{_dashed(name)}") for name in KINDS}
    extra = {"task": "train, finetune, serve, batch, prefill, decode or forward", "model": "a model, as every command takes it"}
    return {name: next((text(id) for id in pair if id in english()), extra.get(name, "")) for name, pair in ids.items()}


@cache
def plan_keys() -> tuple[Key, ...]:
    """Keys of plan files and of prices.toml."""
    said, planned = _said(), {flag.name: flag.meaning for flag in _flags_of("plan")}
    top = [Key("plan", "", name, said.get(("plan", "", name)) or planned.get(name, "")) for name in (*TOP, *WISHES)]
    loads = [Key("plan", "model", name, planned.get(name, "")) for name in LOADS]
    rest = [Key(*place, meaning) for place, meaning in said.items() if place[1] or place[0] == "prices"]
    named = {(one.table, one.name) for one in rest if one.file == "prices"}
    lost = [("contract", name) for name in CONTRACT] + [("owned", name) for name in OWNED]
    return (*top, *loads, *rest, *(Key("prices", *place, "") for place in lost if place not in named))


def config_keys() -> Iterator[tuple[str, str]]:
    """Tables and keys of config.toml; the table of shared keys has no name."""
    yield from (("", name) for name in SHARED)
    for name, command in commands.commands():
        if " " not in name:
            yield from ((name, key) for key in options_of(command) if key not in SHARED)


@cache
def variables() -> dict[str, str]:
    """Environment variables and what they mean."""
    with (HERE / "variables.csv").open(encoding="utf-8", newline="") as lines:
        return {row["variable"]: row["meaning"] for row in csv.DictReader(lines)}


def variables_read() -> set[str]:
    """Environment variables the code names."""
    found: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        found |= set(re.findall(r"WHICHGPU_[A-Z_]*[A-Z]\b|WHICHGPU_URL_", source))
        if "environ" in source:
            found |= {word for node in ast.walk(ast.parse(source)) for word in _read(node)}
    return {name for name in found if not name.endswith("_SORT")}


def page() -> str:
    """The page."""
    parts = [
        "# Settings\n\nA flag wins over a variable, a variable over the config file.\n",
        heading(2, "config.toml", "config"),
        "In your configuration directory (`~/.config/whichgpu/` on Linux), or `--config FILE`. Keys at the top hold for every "
        "command; keys under `[command]` are that command's own [flags](commands.md), with `_` or `-`.\n\n",
        '```toml\nformat = "json"\n\n[offers]\ncurrency = "EUR"\nprovider = ["aws", "gcp"]\n```\n\n',
        _config_table(),
        heading(2, "Plan files", "plan"),
        "`whichgpu plan FILE.toml`; an example is in [How plan decides](../plan.md#a-plan-file). "
        "A `[[model]]` and a `[[job]]` also take every [field of a request](fields.md#request).\n\n",
        _keys_table("plan"),
        heading(2, "prices.toml", "prices"),
        "Your own discounts, contracts and machines: [Use your own prices](../guides/own-prices.md).\n\n",
        _keys_table("prices"),
        heading(2, "Environment variables", "variables"),
        "Each flag of a command also has one: `WHICHGPU_<COMMAND>_<FLAG>`, as the [commands](commands.md) list them.\n\n",
        table(("variable", "meaning"), ((code(name), text(meaning)) for name, meaning in variables().items())),
    ]
    return "".join(parts)


def _config_table() -> str:
    tables: dict[str, list[str]] = {}
    for name, key in config_keys():
        tables.setdefault(name, []).append(key)
    return table(
        ("table", "keys"), ((code(f"[{name}]") if name else "top", ", ".join(map(code, keys))) for name, keys in tables.items())
    )


def _keys_table(file: str) -> str:
    rows = [one for one in plan_keys() if one.file == file]
    order = sorted(rows, key=lambda one: (one.table, one.name))
    return table(
        ("table", "key", "meaning"),
        ((code(one.table) if one.table else "top", code(one.name), text(one.meaning)) for one in order),
    )


def _flags_of(command: str) -> list[commands.Flag]:
    return commands.flags(command, dict(commands.commands())[command])


def _said() -> dict[tuple[str, str, str], str]:
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
