"""The form of a page as data, made from the declared fields of its requests: to add a field, list its name in the form."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import msgspec

from whichgpu.api.request.field import Field
from whichgpu.surface.web.page import SENTENCE, Page
from whichgpu.workload.precisions import PRECISIONS

Choice = tuple[str, str]
# Prefix of the message ids of a field's choices; choices of other fields are displayed as they are.
CHOICE_IDS = {
    "task": "web.task-", "rank": "web.rank-", "term": "term.", "group_by": "web.group-", "per": "web.per-", "by": "web.by-",
    "what": "web.what-", "table": "web.table-", "risk": "web.risk-",
}  # fmt: skip
CHOICES = {"precision": PRECISIONS}  # Choices without the aliases that the field also accepts.
RADIOS = ("task", "rank", "per", "what")  # Fields displayed as radio buttons.
DATALISTS = ("gpus", "models", "providers")  # Lists of names for completion that pages have.
EXAMPLES = {
    "burstiness": "1", "count": "2000", "seed": "0", "in_spread": "0.5", "out_spread": "0.5", "hourly": "1,1,1,2,5,9,10,…",
}  # fmt: skip


class FormField(msgspec.Struct, frozen=True):
    """One input of a form; `kind` names the template macro that renders it, `only` the tasks for which it is displayed."""

    name: str
    label: str
    value: Any
    kind: str = "text"
    choices: tuple[Choice, ...] = ()
    placeholder: str = ""  # the value used if none is given, or an example in words that say so
    hint: str = ""
    completions: str = ""  # id of the list of names for its completion
    only: str = ""


class Form(msgspec.Struct, frozen=True):
    """Builder of a page's form inputs from its declared fields and its state."""

    page: Page

    def fields(self, *names: str) -> list[FormField]:
        """Return the form inputs for the named request fields."""
        return [self.field(name) for name in names]

    def hidden(self, *visible: str) -> list[tuple[str, str]]:
        """Return names and texts of the fields that the page's URL sets and that its form does not show, to be kept by it."""
        state, view = self.page.state, self.page.view
        names = (name for name in view.fields if name not in (*visible, SENTENCE) and state[name] != view.defaults[name])
        values = ((name, value) for name in names for value in _listed(state[name]))
        return [(name, str(value).lower() if isinstance(value, bool) else str(value)) for name, value in values]

    def field(self, name: str, kind: str = "", choices: Iterable[str] | None = None, **more: Any) -> FormField:
        """Return the form input for a request field; `kind` (a template macro) and `choices` replace those of its declaration."""
        declared, language = self.page.view.fields[name], self.page.language
        prefix = CHOICE_IDS.get(name, "")
        words = tuple(choices or CHOICES.get(name) or _choices(declared))
        kind = kind or _kind(declared, words)
        value = self.page.state[name]
        dashed = name.replace("_", "-")
        hint, complete = f"web.hint-{dashed}", getattr(declared.kind, "complete", "")
        example = declared.example or EXAMPLES.get(name, "")
        usual = {
            "placeholder": language.text("web.for-example", example=example) if example else "",
            "completions": complete if complete in DATALISTS else "",
        }
        return FormField(
            name,
            language.text(f"web.field-{dashed}"),
            ", ".join(value) if isinstance(value, tuple) and kind == "text" else "" if value is None else value,
            kind,
            tuple((word, language.text(f"{prefix}{word.replace('_', '-')}") if prefix else word) for word in words),
            hint=language.text(hint) if hint in language else "",
            **usual | more,
        )


def _listed(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


@cache
def _choices(field: Field) -> tuple[str, ...]:
    return field.choices


def _kind(field: Field, words: tuple[str, ...]) -> str:
    """Return the name of the template macro that draws a request field: switch, radios, select and so on."""
    if field.is_switch:
        return "switch"
    if words:
        return "radios" if field.name in RADIOS else "checks" if field.is_list else "select"
    return "date" if field.metavar == "DATE" else "text"
