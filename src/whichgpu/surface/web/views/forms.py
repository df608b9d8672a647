"""A page's form as data: each field with its label, its value as the address has it, and what it may be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import date
from typing import Any

from whichgpu.base.dates import parse_as_of
from whichgpu.base.errors import WhichGpuError
from whichgpu.base.messages import Language
from whichgpu.surface.web.command_replies import client_error, status_of
from whichgpu.surface.web.page import Page

Choice = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Field:
    """One input. `kind` names the macro that draws it; `only` are the tasks it is for."""

    name: str
    label: str
    value: Any
    kind: str = "text"
    choices: tuple[Choice, ...] = ()
    example: str = ""
    hint: str = ""
    known: str = ""  # id of the list of names it may be completed from
    only: str = ""


@dataclass(frozen=True, slots=True)
class Form:
    """Makes fields of a page's state."""

    page: Page[Any]

    def field(self, name: str, kind: str = "text", **more: Any) -> Field:
        """An input called as the state's field is."""
        language, value = self.page.language, getattr(self.page.state, name)
        dashed = name.replace("_", "-")
        label, hint = language.text(f"web.field-{dashed}"), f"web.hint-{dashed}"
        shown = ", ".join(value) if isinstance(value, tuple) and kind == "text" else "" if value is None else value
        return Field(name, label, shown, kind, hint=language.text(f"web.hint-{dashed}") if hint in language else "", **more)

    def select(self, name: str, words: Iterable[str], said: str = "", **more: Any) -> Field:
        """A choice among words; `said` is the beginning of the ids that name them."""
        return self.field(name, "select", choices=self._choices(words, said), **more)

    def radios(self, name: str, words: Iterable[str], said: str = "", **more: Any) -> Field:
        """The same, all of them in sight."""
        return self.field(name, "radios", choices=self._choices(words, said), **more)

    def checks(self, name: str, words: Iterable[str], said: str = "", **more: Any) -> Field:
        """Several of them."""
        return self.field(name, "checks", choices=self._choices(words, said), **more)

    def _choices(self, words: Iterable[str], said: str) -> tuple[Choice, ...]:
        language = self.page.language
        return tuple((word, language.text(f"{said}{word}") if said else word) for word in words)


def given(state: object, names: Iterable[str]) -> dict[str, str]:
    """Fields of a state that say something, as texts of their flags."""
    told = {}
    for name in names:
        value = getattr(state, name)
        if value is None or value in ((), "", False):
            continue
        told[name] = ",".join(value) if isinstance(value, tuple) else "true" if value is True else str(value)
    return told


def flags(texts: Mapping[str, str], switches: Sequence[str] = ()) -> list[str]:
    """The same as flags of a command."""
    return [
        f"--{name.replace('_', '-')}" if name in switches else f"--{name.replace('_', '-')}={text}"
        for name, text in texts.items()
    ]


def names_of(state: type[Any], *without: str) -> tuple[str, ...]:
    """Fields of a kind of state but some."""
    return tuple(field.name for field in fields(state) if field.name not in without)


def day_of(text: str | None) -> date | None:
    """The day of an `as_of`, where one is given."""
    return parse_as_of(text, date.today()) if text else None


def problem_of(error: WhichGpuError, language: Language) -> tuple[dict[str, Any], int]:
    """An error for the card that shows it, and its status."""
    return client_error(error, language), status_of(error)
