"""Code is written in the field's words: banned identifiers, docstring openings, doubled class names, unexplained constants.

`plain_words_left.txt` counts what remains, a line per rule and module; it may only shrink.
`python tests/unit/test_plain_words.py` rewrites it after words were changed.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "whichgpu"
TESTS = Path(__file__).parents[1]
LEFT = Path(__file__).with_name("plain_words_left.txt")
# Past participles and adjectives that do not name a thing, and words of the first draft.
BANNED_NAMES = frozenset(
    "told asked found kept said held shown sought wanted given known taken made seen named meant borne bears stands hopes "
    "halves lane lanes desk wishes wish way ways most least plenty enough told_of in_hand".split()
)
BANNED_CONSTANTS = frozenset("MOST LEAST PLENTY FEW MANY LONGEST SHOWN ENOUGH SEVERAL PLAIN BULK DOTS PAIRED WHOLE USUAL".split())
BANNED_OPENINGS = re.compile(r"(Of|As|So|The same|Where|Whoever|Beside|Whether or not|What stands|What is told)\b")
# Words of the first draft in the names of tests.
BANNED_IN_TEST_NAMES = frozenset("told stands bears borne wishes asked whoever nobody somebody anew sought besides".split())
NUMBER = (ast.Constant, ast.BinOp, ast.UnaryOp)


def modules() -> Iterator[tuple[str, str, ast.Module]]:
    """Path, text and syntax tree of every module."""
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        yield path.relative_to(SOURCE).as_posix(), text, ast.parse(text)


def names_bound(tree: ast.Module) -> Iterator[str]:
    """Every name a module binds: variables, parameters, functions, classes and their attributes."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name.lstrip("_")


def docstrings(tree: ast.Module) -> Iterator[str]:
    """Docstrings of a module, its classes and functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)):
            yield text


def unexplained_constants(text: str, tree: ast.Module) -> Iterator[str]:
    """Numeric constants of a module without a comment beside or above them."""
    lines = text.split("\n")
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            numeric = isinstance(node.value, NUMBER) and any(
                isinstance(one, ast.Constant) and isinstance(one.value, int | float) and not isinstance(one.value, bool)
                for one in ast.walk(node.value)
            )
            commented = "#" in lines[node.lineno - 1] or lines[node.lineno - 2].lstrip().startswith("#")
            if numeric and not commented:
                yield from (one.id for one in targets if isinstance(one, ast.Name))


@cache
def remaining() -> Counter[str]:
    """How often each rule is broken in each module."""
    count: Counter[str] = Counter()
    classes: dict[str, list[str]] = defaultdict(list)
    for path, text, tree in modules():
        names = list(names_bound(tree))
        count[f"name {path}"] += sum(name in BANNED_NAMES or name in BANNED_CONSTANTS for name in names)
        count[f"docstring {path}"] += sum(BANNED_OPENINGS.match(one) is not None for one in docstrings(tree))
        count[f"constant {path}"] += len(list(unexplained_constants(text, tree)))
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                classes[node.name].append(path)
    count.update({f"class {name}": len(paths) for name, paths in classes.items() if len(paths) > 1})
    return +count


def listed() -> Counter[str]:
    """What the list allows to remain."""
    lines = LEFT.read_text(encoding="utf-8").splitlines()
    return Counter({line.rpartition(" ")[0]: int(line.rpartition(" ")[2]) for line in lines})


def test_words_left_to_mend_only_become_fewer() -> None:
    more = remaining() - listed()
    assert not more, f"write these in the field's words (docs/glossary.md): {dict(more)}"


def test_mended_words_leave_the_list() -> None:
    fewer = listed() - remaining()
    assert not fewer, f"mended: python {Path(__file__).name} takes them off the list: {dict(fewer)}"


def test_identifiers_of_tests_are_in_the_fields_words() -> None:
    banned = Counter(
        f"{path.relative_to(TESTS).as_posix()} {name}"
        for path in sorted(TESTS.rglob("*.py"))
        for name in names_bound(ast.parse(path.read_text(encoding="utf-8")))
        if name in BANNED_NAMES
        or name in BANNED_CONSTANTS
        or (name.startswith("test_") and not BANNED_IN_TEST_NAMES.isdisjoint(name.split("_")))
    )
    assert not banned


if __name__ == "__main__":
    LEFT.write_text("".join(f"{what} {count}\n" for what, count in sorted(remaining().items())), encoding="utf-8")
