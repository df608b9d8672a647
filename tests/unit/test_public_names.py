"""public_names.txt lists the public API: a changed name, keyword or field must be changed there.

`python tests/unit/test_public_names.py` rewrites the list. Removals need the deprecation rule of CONTRIBUTING.md.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

import whichgpu as wg
from whichgpu.base.display import Displayable
from whichgpu.surface.python import verbs

LIST = Path(__file__).parent / "public_names.txt"


def public_names() -> Iterator[str]:
    """A line for each public name: a verb with its parameters and keywords, a class with its fields and methods."""
    for name in wg.__all__:
        value = getattr(wg, name)
        if inspect.isfunction(value):
            yield f"verb {name}({', '.join(_parameters(value))}) -> {_returned(value)}"
        elif inspect.isclass(value):
            yield f"class {name}({', '.join(base.__name__ for base in value.__bases__)}): {', '.join(_members(value))}"
        else:
            yield f"value {name}"
    methods = (name for name in vars(Displayable) if not name.startswith("_"))
    yield f"every answer: {', '.join(_signature(name) for name in sorted(methods))}"


def _signature(method: str) -> str:
    words = [word for word in _parameters(getattr(Displayable, method)) if word != "self"]
    return f"{method}({', '.join(words)})"


def _parameters(verb: Any) -> Iterator[str]:
    for parameter in inspect.signature(verb).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY:
            yield f"{parameter.name}="
        elif parameter.kind is parameter.VAR_POSITIONAL:
            yield f"*{parameter.name}"
        else:
            default = "" if parameter.default is parameter.empty else f"={parameter.default!r}"
            yield f"{parameter.name}{default}"


def _returned(verb: Any) -> str:
    return str(inspect.signature(verb).return_annotation).replace("api.", "")


def _members(kind: type) -> list[str]:
    own = list(kind.__struct_fields__) if issubclass(kind, msgspec.Struct) else []
    methods = [name for name in vars(kind) if not name.startswith("_") and name not in own]
    if issubclass(kind, wg.WhichGpuError):
        methods = ["kind", "message", "hint", "choices", "exit_code"]
    return [*own, *sorted(f"{name}()" if callable(getattr(kind, name, None)) else name for name in methods)]


def test_public_names_are_those_written_down() -> None:
    assert list(public_names()) == LIST.read_text(encoding="utf-8").splitlines()


def test_every_public_name_can_be_had_and_every_verb_says_how() -> None:
    for name in wg.__all__:
        assert getattr(wg, name) is not None
        assert name in dir(wg)
    for name, verb in vars(verbs).items():
        if inspect.isfunction(verb) and verb.__module__ == verbs.__name__ and not name.startswith("_"):
            assert name in wg.__all__
            assert ">>>" in (verb.__doc__ or ""), name


def test_answers_show_themselves() -> None:
    for name in wg.__all__:
        kind = getattr(wg, name)
        if not inspect.isclass(kind) or issubclass(kind, wg.WhichGpuError):
            continue
        if name.endswith(("Answer", "Report")) or name == "Comparison":
            assert issubclass(kind, Displayable), name
            assert kind.__repr__ is Displayable.__repr__, f"{name}: Displayable is not the first base"
            assert kind.__struct_config__.frozen  # type: ignore[attr-defined]


if __name__ == "__main__":
    LIST.write_text("".join(f"{line}\n" for line in public_names()), encoding="utf-8")
