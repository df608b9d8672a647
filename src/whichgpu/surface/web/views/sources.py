"""Sources: every number's origin and age."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Any

from whichgpu.base.dates import last_day
from whichgpu.base.errors import WhichGpuError
from whichgpu.base.messages import Language
from whichgpu.catalog.schema import schema
from whichgpu.surface.web.page import Page, Shown, view
from whichgpu.surface.web.views.forms import Form, problem_of
from whichgpu.surface.web.views.shared_catalog import lookups

COLUMNS = ("id", "title", "publisher", "url", "published", "read", "recorded", "rows", "checked")
HEADS = ("title", "publisher", "published", "read", "rows", "checked")


@dataclass(frozen=True, slots=True)
class State:
    """What the page can be asked."""

    find: str | None = None
    table: str | None = None
    sort: str = "-rows"
    limit: int = 100


@view("sources", State)
def sources(page: Page[State]) -> Shown:
    """How old each table is, and the documents behind it."""
    from whichgpu.api.facts import sources as verbs

    state, language = page.state, page.language
    context: dict[str, Any] = {"form": _form(page), "answer": None, "error": None}
    try:
        answer = verbs.sources(state.find, state.table, state.sort, lookups().catalog)
    except WhichGpuError as error:
        told, status = problem_of(error, language)
        return Shown("sources.html", context | {"error": told}, document={"ok": False, "error": told}, status=status)
    limit = max(1, min(state.limit, 5000))
    heads = [(name, language.text(f"web.column-{name}"), _order(state.sort, name)) for name in HEADS]
    tables = [(one, _table_name(one.table, language), _age(one.checked_oldest)) for one in answer.tables if one.rows]
    shown = {
        "answer": answer,
        "heads": heads,
        "rows": [(row, _safe(row.url), [_table_name(name, language) for name in row.tables]) for row in answer.sources[:limit]],
        "more": max(0, len(answer.sources) - limit),
        "tables": tables,
        "price_age": _age(answer.prices_seen),
    }
    rows = [[getattr(row, name) for name in COLUMNS] for row in answer.sources]
    return Shown("sources.html", context | shown, None, {}, answer, (COLUMNS, rows))


def _table_name(table: str, language: Language) -> str:
    dashed = table.replace("_", "-")
    return language.text(f"web.table-{dashed}")


def _safe(url: str) -> str:
    """An address that a link may have."""
    return url if url.startswith(("https://", "http://")) else ""


def _order(sort: str, name: str) -> str:
    return "none" if sort.lstrip("-") != name else "descending" if sort.startswith("-") else "ascending"


def _age(day: str | None) -> int | None:
    """Days since."""
    return (date.today() - last_day(day)).days if day else None


def _form(page: Page[State]) -> dict[str, Any]:
    form = Form(page)
    tables = [name for name, fields in schema().items() if "source" in fields or "sources" in fields]
    choices = tuple((name, _table_name(name, page.language)) for name in (*tables, "pairs"))
    return {"find": form.field("find"), "table": form.field("table", "select", choices=choices)}
