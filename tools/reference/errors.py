"""Every kind of error, from the places in the code that raise one: its exit code, and its possible sentences."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import msgspec

import whichgpu
from reference.markdown import code, heading, table, text
from reference.translator import Translator
from whichgpu.base import errors
from whichgpu.base.messages import english

SOURCE = Path(whichgpu.__file__).parent
CLASSES = ("UsageError", "UnknownName", "AmbiguousName", "InvalidFields", "NoAnswer", "DataError", "WhichGpuError")
MAKERS = (*CLASSES, "unknown_word", "HttpRefusal", "Words")
# sentences of kinds whose message is built elsewhere than the error
SAID = {
    "bad-fleet": ("fleet.none", "fleet.role", "fleet.copies", "fleet.spot", "fleet.weight", "fleet.half"),
    "bad-overlay": ("error.overlay-lacks", "error.overlay-table", "error.overlay-rows"),
    "nothing-known": ("error.no-gpu", "error.no-instance"),
}
MEANINGS = {
    1: "a valid question with no answer",
    2: "bad usage or input",
    3: "a data problem, or a fault of ours",
}


class Kind(msgspec.Struct, frozen=True):
    """A kind of error, as a program gets it in `error.kind`, with the ids of its sentences."""

    name: str
    exit_code: int
    ids: tuple[str, ...]
    status: int | None = None  # HTTP status of a refusal by the server itself


@cache
def kinds() -> tuple[Kind, ...]:
    """All kinds by name; a kind with several exit codes appears several times."""
    ids_by_kind: dict[tuple[str, int, int | None], list[str]] = {}
    for name, exit_code, status, ids in _raised_kinds():
        ids_by_kind.setdefault((name, exit_code, status), []).extend(ids)
    return tuple(
        Kind(name, exit_code, tuple(dict.fromkeys(ids)), status)
        for (name, exit_code, status), ids in sorted(ids_by_kind.items(), key=lambda one: (one[0][0], one[0][1]))
    )


def sentences(kind: Kind, translator: Translator) -> list[str]:
    """Possible sentences of a kind; braces hold placeholders."""
    return [translator.text(id) for id in kind.ids if id in translator]


def page(translator: Translator) -> str:
    """The page."""
    ours, web = [one for one in kinds() if one.status is None], [one for one in kinds() if one.status is not None]
    say, kind, says = translator.say, translator.say("kind"), translator.say("says")
    parts = [
        f"# {say('Errors')}\n\n",
        say("A problem prints `error: …`, then `hint: …`. With `--json`, and from REST, it is a document:") + "\n\n",
        '```json\n{"ok": false, "error": {"kind": "unknown-gpu", "message": "…", "hint": "…", "choices": ["H100 SXM"]}}\n```\n\n',
        say(
            "`kind` stays the same from release to release and in every language; the sentences may change. "
            "Words in braces are filled in. Found in the code that makes them."
        )
        + "\n\n",
        table((say("exit code"), say("means")), [(str(number), say(words)) for number, words in MEANINGS.items()]),
        heading(2, say("Kinds"), "kinds"),
        table((kind, say("exit"), says), [(code(one.name), str(one.exit_code), _says(one, translator)) for one in ours]),
        heading(2, say("Refusals of the server"), "server"),
        say("These come over HTTP only. Errors above come with status 400 (exit code 2), 422 (exit code 1) or 500.") + "\n\n",
        table((kind, say("status"), says), [(code(one.name), str(one.status), _says(one, translator)) for one in web]),
    ]
    return "".join(parts)


def _says(kind: Kind, translator: Translator) -> str:
    return "<br>".join(text(sentence.replace("!r}", "}")) for sentence in sentences(kind, translator))


def _raised_kinds() -> Iterator[tuple[str, int, int | None, list[str]]]:
    """Kinds that the code raises: name, exit code, HTTP status, ids of sentences."""
    for maker, calls in _index().items():
        for call, scope, where in calls:
            if maker in CLASSES and where != "base/errors.py" and call.args:
                for name in _names(call.args[0], scope, where):
                    yield name, _exit_code(maker), None, _ids(call.args[1], scope, name)
            elif maker == "unknown_word":
                for name in _names(call.args[0], scope, where):
                    yield f"unknown-{name}", 2, None, [f"error.unknown-{name}"]
            elif maker == "HttpRefusal" and where.startswith("surface/web") and isinstance(call.args[1], ast.Constant):
                status, name = ast.literal_eval(call.args[0]), str(call.args[1].value)
                yield name, 3, status, [f"error.web-{name}"]


def _scopes(tree: ast.Module) -> Iterator[ast.AST]:
    """The module and all its functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Module):
            yield node


def _calls(scope: ast.AST) -> Iterator[ast.Call]:
    waiting = list(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(node, ast.Call):
            yield node
        waiting.extend(ast.iter_child_nodes(node))


def _names(node: ast.expr, scope: ast.AST, where: str) -> list[str]:
    """Kinds that an expression may be: a constant, or a pattern that the message ids fill in."""
    if isinstance(node, ast.Constant):
        return [str(node.value)]
    if isinstance(node, ast.IfExp):
        return [*_names(node.body, scope, where), *_names(node.orelse, scope, where)]
    if isinstance(node, ast.JoinedStr):
        pattern, filled = _pattern(node), next(part.value for part in node.values if isinstance(part, ast.FormattedValue))
        if words := _passed_constants(filled, scope, where):
            return [pattern.replace("*", word) for word in words]
        return sorted(id.removeprefix("error.") for id in english().ids() if fnmatchcase(id, f"error.{pattern}"))
    if words := _passed_constants(node, scope, where):
        return words
    if isinstance(node, ast.Attribute) and node.attr == "kind":  # the kind of another error, raised again
        return []
    if ast.unparse(node) in ("self.name", "self.what"):  # the name of a list of words that a flag takes
        return _worded()
    raise LookupError(f"{where}:{node.lineno}: which kinds may {ast.unparse(node)} be? Say so in tools/reference/errors.py")


def _passed_constants(node: ast.expr, scope: ast.AST, where: str, depth: int = 2) -> list[str]:
    """Constants passed as a function's parameter by the callers in its module, directly or through a parameter of the caller."""
    if not isinstance(node, ast.Name) or not isinstance(scope, ast.FunctionDef) or not depth:
        return []
    names = [argument.arg for argument in scope.args.args]
    if node.id not in names:
        return []
    constants: dict[str, None] = {}
    for call, caller in _called(scope.name, where):
        value = next((word.value for word in call.keywords if word.arg == node.id), None)
        place = names.index(node.id)
        value = call.args[place] if value is None and len(call.args) > place else value
        if isinstance(value, ast.Constant):
            constants[str(value.value)] = None
        elif value is not None:
            constants |= dict.fromkeys(_passed_constants(value, caller, where, depth - 1))
    return list(constants)


@cache
def _index() -> dict[str, list[tuple[ast.Call, ast.AST, str]]]:
    """Calls of plain names in the whole package: the call, the function around it, the file."""
    calls: dict[str, list[tuple[ast.Call, ast.AST, str]]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if not any(f"{maker}(" in source for maker in MAKERS):  # most files raise none, and parsing takes long
            continue
        for scope in _scopes(ast.parse(source)):
            for call in _calls(scope):
                if isinstance(call.func, ast.Name):
                    calls.setdefault(call.func.id, []).append((call, scope, path.relative_to(SOURCE).as_posix()))
    return calls


def _called(function: str, where: str) -> list[tuple[ast.Call, ast.AST]]:
    return [(call, scope) for call, scope, path in _index().get(function, ()) if path == where]


def _worded() -> list[str]:
    """Subjects of the lists of words: `Words("term", …)`."""
    calls = _index().get("Words", ())
    return sorted({str(call.args[0].value) for call, _, _ in calls if isinstance(call.args[0], ast.Constant)})


def _pattern(node: ast.JoinedStr) -> str:
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "*" for part in node.values)


def _ids(node: ast.expr, scope: ast.AST, kind: str) -> list[str]:
    """Ids of the sentences of an error: in the call, or where its variable is assigned."""
    if kind in SAID:
        return list(SAID[kind])
    ids = _ids_in(node)
    if not ids and isinstance(node, ast.Name):
        for line in ast.walk(scope):
            if isinstance(line, ast.Assign) and any(isinstance(to, ast.Name) and to.id == node.id for to in line.targets):
                ids += _ids_in(line.value)
        ids = [f"error.{kind}"] if f"error.{kind}" in ids else ids
    filled = [f"error.{kind}" if "*" in id else id for id in ids]
    if not any(id in english() for id in filled):
        filled.append(f"error.{kind}")
    return filled


def _ids_in(node: ast.AST) -> list[str]:
    ids = []
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "msg" and call.args:
            first = call.args[0]
            if isinstance(first, ast.Constant) and not re.match(r"error\.(because|leaves|in-file)", str(first.value)):
                ids.append(str(first.value))
            elif isinstance(first, ast.JoinedStr):
                ids.append(_pattern(first))
    return ids


def _exit_code(maker: str) -> int:
    number = getattr(errors, maker).exit_code
    assert isinstance(number, int)
    return number
