"""The faults: cosmic-ray's operators (parso trees), less what no test could or should notice."""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

from mutating.record import ROOT, Record

ASKING = {"VariableReplacer", "VariableInserter"}  # want to be told which variables
# Operators are replaced by others of their kind: a shift of floats raises at once and would only flatter the tests, and `is` for
# `==` is the same on interned strings.
KINDS = ("Add Sub Mul Div FloorDiv Mod Pow", "BitOr BitAnd BitXor", "LShift RShift", "Eq NotEq Lt LtE Gt GtE", "Is IsNot")
MEMORIES = re.compile(r"@(functools\.)?(lru_)?cache\b")
COMPOUND = (
    "suite",
    "file_input",
    "if_stmt",
    "for_stmt",
    "while_stmt",
    "with_stmt",
    "try_stmt",
    "funcdef",
    "classdef",
    "decorated",
)


@dataclass(frozen=True)
class Mutant:
    """One fault: the operator's occurrence in a file, the lines of its statement, and the name it defines if at import."""

    file: str
    operator: str
    occurrence: int
    first: int
    last: int
    defines: str  # "" inside a function

    @property
    def source(self) -> str:
        """The file with the fault; empty where it is none (what does not compile, or stays as it was)."""
        before = (ROOT / self.file).read_text(encoding="utf-8")
        after = str(mutate_code(before, get_operator(f"core/{self.operator}")(), self.occurrence) or "")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                same = compile(before, "x", "exec") == compile(after, "x", "exec")
        except SyntaxError:
            return ""
        return "" if same else after

    def __str__(self) -> str:
        pairs = zip((ROOT / self.file).read_text(encoding="utf-8").splitlines(), self.source.splitlines(), strict=False)
        before, after = next((pair for pair in pairs if pair[0] != pair[1]), ("", ""))
        return f"{self.file}:{self.first} {self.operator}\n    - {before.strip()}\n    + {after.strip()}"

    def tests(self, record: Record) -> list[str]:
        """Tests that run its statement; of what runs at import those with the name it defines, then its file's."""
        if not self.defines:
            found = record.tests(self.file, self.first, self.last)
            # a function that only makes a table when its module is imported
            return found or (record.tests_of(self.file) if record.ran(self.file, self.first, self.last) else [])
        named: dict[str, None] = {}
        for file, line in mentions(self.defines, "src/whichgpu/estimate", "src/whichgpu/price"):
            named.update(dict.fromkeys(record.tests(file, line, line)))
        files = {file for file, _ in mentions(self.defines, "tests")}
        named.update(dict.fromkeys(test for test in record.seconds if test.partition("::")[0] in files))
        nearest = sorted(named, key=lambda test: record.seconds[test])
        return list(dict.fromkeys([*nearest, *record.tests_of(self.file)]))


@cache
def mentions(name: str, *folders: str) -> tuple[tuple[str, int], ...]:
    """Lines with a name: file and number."""
    word = re.compile(rf"\b{re.escape(name)}\b")
    return tuple(
        (str(path.relative_to(ROOT)), number)
        for folder in folders
        for path in sorted((ROOT / folder).rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if word.search(line)
    )


def drawn(package: str, count: int, skipped: int, seed: int) -> tuple[list[Mutant], int]:
    """So many faults of a package in an order by chance, after those skipped, and how many places for one there are.

    Every place is as likely; at a place, every fault of the kind.
    """
    places: list[list[Mutant]] = []
    for path in sorted((ROOT / "src" / "whichgpu" / package).rglob("*.py")):
        places += by_place(path)
    chance = random.Random(f"{package} {seed}")
    chance.shuffle(places)
    found: list[Mutant] = []
    for place in places:
        chance.shuffle(place)
        found += [mutant for mutant in place if mutant.source][:1]
        if len(found) == skipped + count:
            break
    return found[skipped:], len(places)


def by_place(path: Path) -> Iterator[list[Mutant]]:
    """The faults of a file by place and kind of operator."""
    counts: dict[str, int] = {}
    for node in ast_nodes(get_ast(path.read_text(encoding="utf-8"))):
        here: dict[tuple[Any, str], list[Mutant]] = {}
        for name, operator in operators(node.type):
            for position in operator.mutation_positions(node):
                occurrence = counts[name] = counts.get(name, -1) + 1
                if not excluded(node, name):
                    mutant = Mutant(str(path.relative_to(ROOT)), name, occurrence, *lines(node), defined(node))
                    here.setdefault((position, name.partition("_")[0]), []).append(mutant)
        yield from here.values()


@cache
def operators(kind: str) -> tuple[tuple[str, Any], ...]:
    """Operators that may have something to change in a node of a kind, by name."""
    found = []
    for full in operator_names():
        name = full.rpartition("/")[2]
        family, _, change = name.partition("_")
        pair = set(change.split("_"))
        if family in ("ReplaceBinaryOperator", "ReplaceComparisonOperator"):
            wanted = "operator" if "Binary" in family else "comparison"
            if kind != wanted or not any(pair <= set(group.split()) for group in KINDS):
                continue
        if name not in ASKING:
            found.append((name, get_operator(full)()))
    return tuple(found)


def ancestors(node: Any) -> Iterator[tuple[Any, Any]]:
    """Every node above, each with the child on the way."""
    while node.parent is not None:
        yield node.parent, node
        node = node.parent


def excluded(node: Any, name: str) -> bool:
    """What is no behaviour: types, what decorators are told (slots, sizes of memories), memories as such, `strict` of zips.

    Nor is the bare `*` of a signature an operator: it only says which arguments need their names.
    """
    if name == "RemoveDecorator" and MEMORIES.match(node.get_code().strip()):
        return True
    if node.type == "operator" and node.parent.type in ("parameters", "param"):
        return True
    for parent, child in ancestors(node):
        if parent.type == "decorator" or (parent.type == "argument" and parent.get_code().strip().startswith("strict=")):
            return True
        place = parent.children.index(child)
        if parent.type == "tfpdef" or (parent.type == "annassign" and place == 1):
            return True
        if parent.type == "funcdef" and parent.children[place - 1].get_code().strip() == "->":
            return True
    return False


def lines(node: Any) -> tuple[int, int]:
    """First and last line of the statement around a node, or of the head of a compound one."""
    for parent, child in ancestors(node):
        if parent.type in COMPOUND:
            return child.start_pos[0], child.end_pos[0] - (child.end_pos[1] == 0)
    return 1, 1


def defined(node: Any) -> str:
    """The name that a statement run at import defines; empty inside functions."""
    name = "?"
    for parent, child in ancestors(node):
        if parent.type in ("funcdef", "lambdef") and child is parent.children[-1]:
            return ""
        if parent.type == "expr_stmt":
            name = parent.get_first_leaf().value
        elif parent.type == "decorated":
            name = parent.children[-1].name.value
        elif parent.type in ("funcdef", "classdef"):
            name = parent.name.value
    return name
