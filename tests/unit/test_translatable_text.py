"""All English text that users see has a message id, as far as a program can tell."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import whichgpu
from whichgpu.base.messages import english

SOURCE = Path(whichgpu.__file__).parent
WEB = SOURCE / "surface" / "web"
WORDS = re.compile(r"[A-Za-z]{2,}[,;:]? [a-z]{2,}")
LETTERS = re.compile(r"[A-Za-z]{2,}")
HELP = ("help", "epilog", "short_help", "prompt")
SAID = ("msg", "Refusal", "HttpRefusal", "text", "say", "print", "echo", "write")  # calls whose values people read
NAMES = {"whichgpu", "GPU", "JSON", "CSV", "Markdown"}  # the same in every language
TYPED = re.compile(r"whichgpu |line \d|pip ")  # input typed verbatim


def python_files() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def _texts(node: ast.expr) -> list[str]:
    """Texts written out in an expression, those inside other calls left to these."""
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else []
    if isinstance(node, ast.JoinedStr):
        return [text for value in node.values for text in _texts(value)]
    if isinstance(node, ast.IfExp):
        return _texts(node.body) + _texts(node.orelse)
    if isinstance(node, ast.BoolOp):
        return [text for value in node.values for text in _texts(value)]
    if isinstance(node, ast.BinOp):
        return _texts(node.left) + _texts(node.right)
    return []


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id if isinstance(node.func, ast.Name) else ""


def loose_in_code(text: str) -> list[str]:
    """Help that is no id, and words among the values of messages."""
    texts = []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call):
            continue
        for keyword in node.keywords:
            values = _texts(keyword.value)
            if keyword.arg in HELP:
                whole = isinstance(keyword.value, ast.Constant)
                texts += [value for value in values if WORDS.search(value) or (whole and value not in english())]
            elif _called(node) in SAID[:4]:
                texts += [value for value in values if WORDS.search(value) and not TYPED.search(value)]
        if _called(node) in SAID[3:]:
            texts += [value for one in node.args for value in _texts(one) if WORDS.search(value)]
    return texts


def loose_in_template(text: str) -> list[str]:
    """Words between tags and in the attributes people read."""
    bare = re.sub(r"\{#.*?#\}|\{%.*?%\}|\{\{.*?\}\}", "\0", text, flags=re.DOTALL)
    bare = re.sub(r"<(script|style|svg)\b.*?</\1>", "", bare, flags=re.DOTALL)
    read = re.findall(r'(?:aria-label|title|placeholder|alt)="([^"]*)"', bare)
    read += re.sub(r"<[^>]*>", "\n", bare).replace("\0", "\n").split("\n")
    read = [part.strip(" ·:()") for part in read]
    return [part for part in read if LETTERS.search(part) and part not in NAMES and "=" not in part and part != "split"]


def loose_in_script(text: str) -> list[str]:
    """Sentences in a script; selectors and queries have brackets, addresses no blanks."""
    bare = re.sub(r"(?m)^\s*//.*$|(?<=[;{,)]) //.*$", "", text)
    texts = [match[1] or match[2] or "" for match in re.finditer(r'"([^"\n]*)"|`([^`]*)`', bare)]
    texts = [re.sub(r"\$\{[^}]*\}", "…", one) for one in texts]
    return [
        one for one in texts if re.search(r"[A-Za-z…]{2,}[,;:]? [a-z]{3,}|… [a-z]{3,}", one) and not re.search(r"[\[(#]", one)
    ]


@pytest.mark.parametrize("path", python_files(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_code_has_no_untranslatable_text(path: Path) -> None:
    if path.name == "__main__.py":  # said where the package that reads catalogs cannot be loaded
        return
    assert loose_in_code(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", sorted((WEB / "templates").glob("*.html")), ids=lambda path: path.name)
def test_templates_have_no_untranslatable_text(path: Path) -> None:
    assert loose_in_template(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", sorted((WEB / "static").glob("*.js")), ids=lambda path: path.name)
def test_scripts_have_no_untranslatable_text(path: Path) -> None:
    assert loose_in_script(path.read_text(encoding="utf-8")) == []


def test_check_detects_untranslatable_text() -> None:
    assert loose_in_code('option("--x", help="Some words here")') == ["Some words here"]
    assert loose_in_code('msg("error.x", why=f"no column {name}")') == ["no column "]
    assert loose_in_code('print("all is well")') == ["all is well"]
    assert loose_in_code('msg("error.x", name=name)') == []
    assert loose_in_template('<p>All is well</p><a title="Go there">{{ text("x") }}</a>') == ["Go there", "All is well"]
    assert loose_in_script('say("all is well"); find(".a [b]");') == ["all is well"]
    assert loose_in_script("say(`${n} requests`)") == ["… requests"]
