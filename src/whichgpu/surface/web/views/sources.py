"""The sources page: origin and age of every number."""

from __future__ import annotations

from datetime import date
from typing import Any

from whichgpu.api.request.field import Field
from whichgpu.api.request.kinds import Plain, Words
from whichgpu.base.dates import last_day
from whichgpu.base.errors import WhichGpuError
from whichgpu.base.messages import Language
from whichgpu.catalog.schema import schema
from whichgpu.surface.web.command_replies import catalog
from whichgpu.surface.web.failure import error_content
from whichgpu.surface.web.page import Page, PageContent, view
from whichgpu.surface.web.views.forms import Form
from whichgpu.surface.web.views.shared import sort_order

COLUMNS = ("id", "title", "publisher", "url", "published", "read", "recorded", "rows", "checked")
SHOWN_COLUMNS = ("title", "publisher", "published", "read", "rows", "checked")
MAX_ROWS = 5000  # Largest number of rows on a page.


def _tables() -> tuple[str, ...]:
    return (*(name for name, fields in schema().items() if "source" in fields or "sources" in fields), "pairs")


@view(
    "sources",
    extra={
        "find": Field(Plain()), "table": Field(Words("table", _tables)), "sort": Field(Plain()), "limit": Field(Plain(), "N"),
    },
    defaults={"sort": "-rows", "limit": "100"},
)  # fmt: skip
def sources(page: Page) -> PageContent:
    """Return the sources page: the age of each table of the catalog, and the documents it is based on."""
    from whichgpu.api.facts import sources as verbs

    state, language = page.state, page.language
    context: dict[str, Any] = {"form": _form(page), "answer": None, "error": None}
    try:
        page.check()
        limit = page.number("limit", MAX_ROWS)
        answer = verbs.sources(state["find"], state["table"], state["sort"], catalog())
    except WhichGpuError as error:
        return error_content("sources.html", context, error, page)
    context |= {
        "answer": answer,
        "heads": [(name, language.text(f"web.column-{name}"), sort_order(state["sort"], name)) for name in SHOWN_COLUMNS],
        "rows": [
            (row, _safe_url(row.url), [_table_name(name, language) for name in row.tables]) for row in answer.sources[:limit]
        ],
        "more": max(0, len(answer.sources) - limit),
        "tables": [(one, _table_name(one.table, language), _age(one.checked_oldest)) for one in answer.tables if one.rows],
        "price_age": _age(answer.prices_seen),
    }
    rows = [[getattr(row, name) for name in COLUMNS] for row in answer.sources]
    return PageContent("sources.html", context, document=answer, table=(COLUMNS, rows))


def _table_name(table: str, language: Language) -> str:
    dashed = table.replace("_", "-")
    return language.text(f"web.table-{dashed}")


def _safe_url(url: str) -> str:
    """Return a URL that is safe in a link; empty if its scheme is not http or https."""
    return url if url.startswith(("https://", "http://")) else ""


def _age(day: str | None) -> int | None:
    """Return the number of days from a day (2026-08-01) until today; None if the day is None."""
    return (date.today() - last_day(day)).days if day else None


def _form(page: Page) -> dict[str, Any]:
    form = Form(page)
    return {"find": form.field("find"), "table": form.field("table")}
