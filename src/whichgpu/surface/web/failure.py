"""What a page says about a question without an answer: the invalid field, the reasons, and a change that has an answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whichgpu.base.errors import NoAnswer, UsageError, WhichGpuError
from whichgpu.base.messages import Language
from whichgpu.surface.web.command_replies import client_error, status_of
from whichgpu.surface.web.page import Page, PageContent


def error_content(template: str, context: Mapping[str, Any], error: WhichGpuError, page: Page, **content: Any) -> PageContent:
    """Return the content of a page that displays an error next to its form."""
    body = client_error(error, page.language)
    document = {"ok": False, "error": body}
    values = {**context, "error": body, **failure_content(error, page)}
    return PageContent(template, values, document=document, status=status_of(error), **content)


def failure_content(error: WhichGpuError, page: Page) -> dict[str, Any]:
    """Return template values: the name of the invalid field, the reasons with counts, and the relaxation with its URL."""
    content: dict[str, Any] = {"bad_field": _bad_field(error, page), "reasons": (), "relaxation": None}
    if isinstance(error, NoAnswer) and error.rejected:
        reasons = sorted(error.rejected.items(), key=lambda item: -item[1])
        content["reasons"] = [(page.language.text(f"rejected.{why}", n=count), f"{count:,}") for why, count in reasons]
        content["relaxation"] = _relaxation(error.relaxation, page)
    return content


def _bad_field(error: WhichGpuError, page: Page) -> str:
    """Return the field that an error is about: the one it names, else one with the text that it quotes; empty if neither."""
    if not isinstance(error, UsageError):
        return ""
    texts = {str(value).strip("'") for value in error.message.values.values()}
    names = [name for name in page.view.fields if name in {text.lower() for text in texts}]
    values = {name: value if isinstance(value, tuple) else (value,) for name, value in page.state.items()}
    names += [
        name for name, words in values.items() if page.state[name] != page.view.defaults[name] and texts & {*map(str, words)}
    ]
    return names[0] if names else ""


def _relaxation(relaxation: Mapping[str, Any] | None, page: Page) -> dict[str, Any] | None:
    """Return the changes of a relaxation as texts and the URL of the page with them; None if the page lacks a field of it."""
    change = relaxation["change"] if relaxation else {}
    if not change or not change.keys() <= page.view.fields.keys():
        return None
    state = {name: _value(name, value, page) for name, value in change.items()}
    return {"url": page.url(**state), "changes": [_change(name, value, page.language) for name, value in change.items()]}


def _value(name: str, value: Any, page: Page) -> Any:
    """Return a changed field's value as the page's state has it: a tuple for a list, a text otherwise, None if dropped."""
    if page.view.fields[name].is_list:
        return () if value is None else (str(value),)
    return page.view.defaults[name] if value is None else str(value)


def _change(name: str, value: Any, language: Language) -> str:
    id = f"web.field-{name.replace('_', '-')}"
    field = language.text(id) if id in language else name
    return (
        language.text("web.relax-drop", field=field)
        if value is None
        else language.text("web.relax-set", field=field, value=value)
    )
