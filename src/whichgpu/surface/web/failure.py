"""What a page says about a question without an answer: the invalid fields, the reasons, and changes that have an answer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from difflib import get_close_matches
from typing import Any

from msgspec.structs import replace

from whichgpu.api.context import Context
from whichgpu.api.request.invalid_fields import field_errors
from whichgpu.base.errors import InvalidFields, NoAnswer, UsageError, WhichGpuError
from whichgpu.base.messages import Language, Message
from whichgpu.surface.web.command_replies import catalog, client_error, status_of
from whichgpu.surface.web.field_names import with_field_names, with_labels
from whichgpu.surface.web.page import SENTENCE, Page, PageContent
from whichgpu.surface.web.rest.endpoints import MODEL_FIELDS
from whichgpu.workload.field_errors import combine_errors

_FLAG = re.compile(r"--[a-z][a-z-]*")
HTTP_OK = 200  # HTTP status of a page with an answer.
LABELS = {("models", "name"): "model-names"}  # Labels of fields that other pages call otherwise.
LISTS = ("gpus", "models", "prices", "accuracy", "sources")  # Pages of filtered rows, which take milliseconds.
# Constraints of a recommendation, which are left out together if no single change has an answer.
CONSTRAINTS = ("gpu", "gpus", "min_memory", "needs", "provider", "region", "near", "max_latency", "term", "budget", "deadline")
MAX_PROBES = 6  # Largest number of filters that are left out on trial.
MAX_CHOICES = 12  # Largest number of names that would work on a page.


def error_content(
    template: str, context: Mapping[str, Any], error: WhichGpuError, page: Page, fields: tuple[str, ...] = (), **content: Any
) -> PageContent:
    """Return the content of a page that displays an error next to its form; `fields` are invalid, by default those it names."""
    command = content.get("command")
    error = all_problems(error, page, tuple(command[1]) if command else tuple(page.view.fields))
    body = client_error(_labelled(error, page), page.language)
    document = {"ok": False, "error": client_error(error, page.language)}
    values = {**context, "error": body, **failure_content(error, page, fields)}
    values["field_problems"] = _field_problems(error, body, page)
    return PageContent(template, values, document=document, status=status_of(error), **content)


def all_problems(error: WhichGpuError, page: Page, names: Sequence[str]) -> WhichGpuError:
    """Return an error with those of all invalid fields of a page's request, whose fields are `names`."""
    if not isinstance(error, UsageError):
        return error
    # Models were checked when the state was read.
    checked_names = {"name" if name == "names" else name for name in names} - {*MODEL_FIELDS, *page.problems}
    values = {
        name: page.state[name] for name in page.view.fields if name in checked_names and page.state[name] not in (None, (), "")
    }
    problems = {**page.problems, **field_errors(page.view.fields, values, Context(catalog()))}
    if not isinstance(error, InvalidFields):
        problems |= {name: error for name in _bad_fields(error, page)[:1] if name not in problems}
    return combine_errors(problems) if len(problems) > 1 else error


def _labelled(error: WhichGpuError, page: Page) -> WhichGpuError:
    """Return an error with the labels of the page's fields instead of their names."""
    labelled = copy(error)
    labelled.message = _with_labels(error.message, page)
    is_long = len(error.choices) > MAX_CHOICES  # The hint would list them all.
    labelled.hint = _with_labels(error.hint, page) if error.hint and not is_long else None
    if isinstance(labelled, InvalidFields):
        labelled.fields = {name: _labelled(one, page) for name, one in labelled.fields.items()}
    return labelled


def _field_problems(error: WhichGpuError, body: Mapping[str, Any], page: Page) -> list[dict[str, Any]]:
    """Return name, label, message, hint and choices with their URLs of each of several invalid fields."""
    if not isinstance(error, InvalidFields):
        return []
    return [
        {
            "name": name, "label": _label(name, page), "message": body["fields"][name]["message"],
            "hint": body["fields"][name]["hint"],
            "choices": [(choice, _choice_url(choice, (name,), one, page)) for choice in _choices(one)],
        }
        for name, one in error.fields.items()
    ]  # fmt: skip


def failure_content(error: WhichGpuError, page: Page, fields: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return template values: names of invalid fields, choices and relaxation with their URLs, and the reasons with counts."""
    relaxation = error.relaxation if isinstance(error, NoAnswer) else None
    change = dict(relaxation["change"]) if relaxation else {}
    fields = fields or _bad_fields(error, page) or tuple(name for name in change if name in page.view.fields)
    choices = _choices(error)
    if not change and isinstance(error, UsageError):
        change = {name: _nearest_value(name, error, page) for name in fields if name != SENTENCE}
    elif not change:
        change = dict.fromkeys(() if choices else _in_the_way(page))
    fields = fields or tuple(change)
    content: dict[str, Any] = {"bad_fields": fields, "reasons": (), "relaxation": _relaxation(change, page)}
    content["choices"] = [(choice, _choice_url(choice, fields, error, page)) for choice in choices]
    content["field_problems"] = ()
    if isinstance(error, NoAnswer) and error.rejected:
        reasons = sorted(error.rejected.items(), key=lambda item: -item[1])
        content["reasons"] = [(rejection_text(why, count, page.language), f"{count:,}") for why, count in reasons]
    return content


def _quoted(error: WhichGpuError) -> set[str]:
    """Return the texts that an error's message has as values."""
    return {str(value).strip("'") for _, value in _values(error.message)}


def _nearest_value(name: str, error: WhichGpuError, page: Page) -> tuple[str, ...] | str | None:
    """Return a model's nearest name, or the values of a list that an error does not quote if it quotes one; else None."""
    if name == "model" and (choices := _choices(error)):
        return choices[0]
    values = page.state[name] if page.view.fields[name].is_list else ()
    valid = tuple(value for value in values if value not in _quoted(error))
    return valid if 0 < len(valid) < len(values) else None


def _values(message: Message) -> Iterator[tuple[str, object]]:
    """Yield the values in a message and in the messages within it, by name."""
    for name, value in message.values.items():
        if isinstance(value, Message):
            yield from _values(value)
        else:
            yield name, value


def _bad_fields(error: WhichGpuError, page: Page) -> tuple[str, ...]:
    """Return the fields that an error is about: those it names, else those with a text that it quotes, else the flags in it."""
    if isinstance(error, InvalidFields):
        return tuple(error.fields)
    texts = _quoted(error)
    lowered = {text.lower() for text in texts}
    if names := [name for name in page.view.fields if name in lowered]:
        return tuple(names)
    words = {name: value if isinstance(value, tuple) else (value,) for name, value in page.state.items()}
    changed = [name for name in words if page.state[name] != page.view.defaults[name]]
    if names := [name for name in changed if texts & {*map(str, words[name])}]:
        return tuple(names[:1])
    if not isinstance(error, UsageError):
        return ()
    if str(page.state.get("model", "")).startswith("{"):  # A pasted config.json, of which the error names a part.
        return ("model",)
    flags = {with_field_names(flag) for flag in _FLAG.findall(page.language.render(error.message))}
    return tuple(name for name in changed if name in flags)[:1]


def rejection_text(why: str, count: int, language: Language) -> str:
    """Return the reason that removed candidates, with labels of fields instead of flags."""
    return with_labels(language.text(f"rejected.{why}", n=count), language)


def _choices(error: WhichGpuError) -> tuple[str, ...]:
    """Return names that would work, of many those most like what the field has; a flag is none on a page."""
    choices = tuple(choice for choice in error.choices if not choice.startswith("--"))
    if len(choices) <= MAX_CHOICES:
        return choices
    texts = [str(value).strip("'") for _, value in _values(error.message)]
    near = [name for text in texts for name in get_close_matches(text, choices, MAX_CHOICES, 0.4)]
    return tuple(dict.fromkeys(near))[:MAX_CHOICES] or choices[:MAX_CHOICES]


def _in_the_way(page: Page) -> tuple[str, ...]:
    """Return the filters without which a page has an answer: one of a list if that suffices, else all; none if that fails."""
    if page.hurry or page.name not in (*LISTS, "recommend"):
        return ()
    defaults = page.view.defaults
    fields = page.view.fields if page.name in LISTS else CONSTRAINTS
    filters = tuple(name for name in fields if page.state[name] != defaults[name] and name not in ("sort", SENTENCE))
    single = [(name,) for name in filters[:MAX_PROBES]] if page.name in LISTS else []
    for names in (*single, filters):
        state = page.state | {name: defaults[name] for name in names}
        if names and page.view.show(replace(page, state=state, problem=None, problems={}, hurry=True)).status == HTTP_OK:
            return names
    return ()


def _with_labels(message: Message, page: Page) -> Message:
    """Return a message in which the labels of the page's fields replace their names."""

    def value_of(name: str, value: object) -> object:
        if isinstance(value, Message):
            return _with_labels(value, page)
        is_field = name == "name" and str(value).lower() in page.view.fields
        return _label(str(value).lower(), page) if is_field else value

    return Message(message.id, {name: value_of(name, value) for name, value in message.values.items()})


def _choice_url(choice: str, fields: tuple[str, ...], error: WhichGpuError, page: Page) -> str:
    """Return the URL of the page with a choice in place of what its one invalid field has; empty if there are several."""
    if len(fields) != 1:
        return ""
    field = fields[0]
    if not page.view.fields[field].is_list:
        return page.url(field, **{field: choice})
    texts = _quoted(error)
    others = tuple(choice if text in texts else text for text in page.state[field])
    return page.url(**{field: others if choice in others else (choice,)})


def _relaxation(change: Mapping[str, Any], page: Page) -> dict[str, Any] | None:
    """Return the changes of a relaxation as texts and the URL of the page with them; None if the page lacks a field of it."""
    if not change or not change.keys() <= page.view.fields.keys():
        return None
    state = {name: _value(name, value, page) for name, value in change.items()}
    texts = [_change(name, state[name] if page.view.defaults[name] else value, page) for name, value in change.items()]
    return {"url": page.url(**state), "changes": texts}


def _value(name: str, value: Any, page: Page) -> Any:
    """Return a changed field's value as the page's state has it: a tuple for a list, a text otherwise, the default if dropped."""
    if value is None:
        return page.view.defaults[name]
    if not page.view.fields[name].is_list:
        return str(value)
    return value if isinstance(value, tuple) else (str(value),)


def _change(name: str, value: Any, page: Page) -> str:
    language, field = page.language, _label(name, page)
    if value is None:
        return language.text("web.relax-drop", field=field)
    return language.text("web.relax-set", field=field, value=language.listed(value) if isinstance(value, tuple) else value)


def _label(name: str, page: Page) -> str:
    id = f"web.field-{LABELS.get((page.name, name), name).replace('_', '-')}"
    return page.language.text(id) if id in page.language else name
