"""Types of fields in words for readers of JSON, from the annotations in the code."""

from __future__ import annotations

import ast
from functools import cache

from reference.translator import Translator

NAMED = {"str": "text", "Decimal": "text", "Message": "text", "bool": "yes/no", "Any": "anything", "object": "anything"}


def holds(annotation: str, translator: Translator) -> str:
    """A type in words.

    >>> english = Translator()
    >>> holds("tuple[Gpu, ...]", english), holds("Mapping[str, Figure]", english), holds("bool | None", english)
    ('list of Gpu', 'Figure by name', 'yes/no or null')
    >>> holds("tuple[tuple[int, float], ...]", english), holds("Literal['reported', 'marketed']", english)
    ('list of [int, float]', 'reported or marketed')
    """
    return _words(_parsed(annotation), translator)


@cache
def _parsed(annotation: str) -> ast.expr:
    return ast.parse(annotation, mode="eval").body


def _words(node: ast.expr, translator: Translator) -> str:
    if isinstance(node, ast.Constant):
        return "null" if node.value is None else str(node.value)
    if isinstance(node, ast.BinOp):
        return translator.say("{one} or {other}", one=_words(node.left, translator), other=_words(node.right, translator))
    if isinstance(node, ast.Subscript):
        inner = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
        return _of_several(ast.unparse(node.value), inner, translator)
    name = ast.unparse(node)
    return translator.say(NAMED[name]) if name in NAMED else name


def _of_several(outer: str, inner: list[ast.expr], translator: Translator) -> str:
    if outer in ("Mapping", "dict"):
        return translator.say("{type} by name", type=_words(inner[1], translator))
    if outer == "Literal":
        *first, last = (_words(one, translator) for one in inner)
        return translator.say("{one} or {other}", one=", ".join(first), other=last) if first else last
    if outer == "tuple" and ast.unparse(inner[-1]) != "...":
        return f"[{', '.join(_words(one, translator) for one in inner)}]"
    return translator.say("list of {type}", type=_words(inner[0], translator))
