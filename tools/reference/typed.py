"""What fields hold, as a reader of JSON meets it, from how the code writes it."""

from __future__ import annotations

import ast
from functools import cache

from reference.tongue import Tongue

NAMED = {"str": "text", "Decimal": "text", "Message": "text", "bool": "yes/no", "Any": "anything", "object": "anything"}


def holds(annotation: str, tongue: Tongue) -> str:
    """A type in words.

    >>> english = Tongue()
    >>> holds("tuple[Gpu, ...]", english), holds("Mapping[str, Figure]", english), holds("bool | None", english)
    ('list of Gpu', 'Figure by name', 'yes/no or null')
    >>> holds("tuple[tuple[int, float], ...]", english), holds("Literal['reported', 'marketed']", english)
    ('list of [int, float]', 'reported or marketed')
    """
    return _said(_parsed(annotation), tongue)


@cache
def _parsed(annotation: str) -> ast.expr:
    return ast.parse(annotation, mode="eval").body


def _said(node: ast.expr, tongue: Tongue) -> str:
    if isinstance(node, ast.Constant):
        return "null" if node.value is None else str(node.value)
    if isinstance(node, ast.BinOp):
        return tongue.say("{one} or {other}", one=_said(node.left, tongue), other=_said(node.right, tongue))
    if isinstance(node, ast.Subscript):
        inner = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
        return _of_several(ast.unparse(node.value), inner, tongue)
    name = ast.unparse(node)
    return tongue.say(NAMED[name]) if name in NAMED else name


def _of_several(outer: str, inner: list[ast.expr], tongue: Tongue) -> str:
    if outer in ("Mapping", "dict"):
        return tongue.say("{type} by name", type=_said(inner[1], tongue))
    if outer == "Literal":
        *most, last = (_said(one, tongue) for one in inner)
        return tongue.say("{one} or {other}", one=", ".join(most), other=last) if most else last
    if outer == "tuple" and ast.unparse(inner[-1]) != "...":
        return f"[{', '.join(_said(one, tongue) for one in inner)}]"
    return tongue.say("list of {type}", type=_said(inner[0], tongue))
