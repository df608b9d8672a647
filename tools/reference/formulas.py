"""The formulas with their symbols and sources, each with the docstring and the worked example of its code."""

from __future__ import annotations

import csv
import importlib
import inspect
from functools import cache
from pathlib import Path

import msgspec

from reference.markdown import anchor, code, heading, text
from reference.translator import Translator

TABLE = Path(__file__).parent / "formulas.csv"


class Formula(msgspec.Struct, frozen=True):
    """A formula: its symbols, its code (`module:name`), and its source."""

    part: str
    name: str
    formula: str
    symbols: str
    home: str
    source: str

    def docstring(self) -> str:
        """Docstring of the formula's code."""
        module, _, name = self.home.partition(":")
        return inspect.getdoc(getattr(importlib.import_module(f"whichgpu.{module}"), name)) or ""


@cache
def formulas() -> tuple[Formula, ...]:
    """All formulas."""
    with TABLE.open(encoding="utf-8", newline="") as lines:
        return tuple(Formula(**row) for row in csv.DictReader(lines))


def page(translator: Translator) -> str:
    """The page."""
    say = translator.say
    about = "The main ones. Code is the last word: each names the function that holds it, whose example is a test."
    parts = [f"# {say('Formulas')}\n\n{say(about)}\n"]
    part = ""
    for one in formulas():
        if one.part != part:
            part = one.part
            parts.append(heading(2, say(part), anchor(part)))
        _, _, example = one.docstring().partition("\n>>> ")
        parts.append(heading(3, say(one.name), anchor(one.name)))
        parts.append(f"```text\n{one.formula}\n```\n\n{text(say(one.symbols))}.\n\n")
        parts.append(say("Source: {source}.", source=text(say(one.source))) + " ")
        parts.append(say("Code: {home}.", home=code(one.home)) + "\n")
        if example:
            parts.append(f"\n```pycon\n>>> {example.strip()}\n```\n")
    return "".join(parts)
