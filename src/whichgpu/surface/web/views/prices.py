"""The price page: rents of GPUs as of any day, and their history."""

from __future__ import annotations

from typing import Any

from whichgpu.api.context import Context
from whichgpu.api.prices import offers as verbs
from whichgpu.api.prices.history import HistoryAnswer
from whichgpu.api.prices.history import history as price_history
from whichgpu.api.request.catalog import HistoryRequest
from whichgpu.api.request.field import Field
from whichgpu.api.request.kinds import Words
from whichgpu.api.request.limits import parse_row_limit
from whichgpu.api.request.offers import PERIODS, OffersRequest
from whichgpu.base.errors import WhichGpuError
from whichgpu.base.kinds import Flag
from whichgpu.base.messages import Language
from whichgpu.price.offers import Offer
from whichgpu.surface.cells import with_sort_field
from whichgpu.surface.charts.prices import history_picture
from whichgpu.surface.commands.offers import COMMON, Column, headline, notes, term_text, trailing_columns
from whichgpu.surface.web.command_replies import catalog
from whichgpu.surface.web.failure import error_content
from whichgpu.surface.web.page import Page, PageContent, view
from whichgpu.surface.web.panels.subjects import instance_url
from whichgpu.surface.web.views.forms import Form
from whichgpu.surface.web.views.shared import context_of, page_words, sort_order

MAX_ROWS = 2000  # Largest number of rows on a page.
CURRENCIES = ("USD", "EUR", "GBP", "JPY", "KRW", "INR", "CNY", "CAD", "AUD", "CHF", "SGD")
# Field of an offer by which each column sorts.
SORT_FIELDS = {
    "machine": "instance", "gpus": "gpus", "region": "region", "term": "term", "hour": "price", "month": "price_month",
    "gpu-hour": "price_per_gpu_hour", "round-trip": "round_trip", "seen": "observed_at",
}  # fmt: skip


@view(
    "prices",
    OffersRequest,
    extra={"every_gpu": Field(Flag()), "per": Field(Words("period", PERIODS))},
    defaults={"gpu": ("H100 SXM",), "per": "hour", "limit": "50"},
)
def prices(page: Page) -> PageContent:
    """Return the price page: offers of GPUs on a day, and the price history of the first GPU named."""
    state, language = page.state, page.language
    unused = ("gpu",) if state["every_gpu"] else ()
    command = "offers", page.request(OffersRequest, *unused)
    context: dict[str, Any] = {"form": _form(page), **page_words(language), "answer": None, "error": None}
    try:
        page.check()
        limit = min(parse_row_limit(state["limit"]), MAX_ROWS)
        request = with_sort_field(page.request(OffersRequest, "as_of", *unused), Offer, language)
        answer = verbs.offers({**request, "limit": limit}, context_of(page))  # type: ignore[typeddict-item]
    except WhichGpuError as error:
        return error_content("prices.html", context, error, page, command=command)
    history = None if state["every_gpu"] else _history(state)
    charts = {} if history is None else {"history": history_picture(history, ", ".join(state["gpu"]), language)}
    columns = _columns(answer, state["per"], language)
    all_notes = notes(answer, (state["per"],), state["sort"], state["max_latency"] is not None, language)
    sort = state["sort"] or "price_per_gpu_hour"
    context |= {
        "answer": answer,
        "headline": headline(answer, language),
        "notes": [one for one in all_notes if one.id != "offers.limited"],  # A button shows more.
        "heads": [
            (name, language.text(f"offers.{name}"), SORT_FIELDS.get(name), sort_order(sort, SORT_FIELDS.get(name)))
            for name, _ in columns
        ],
        "rows": [(instance_url(offer.provider, offer.instance), [cell(offer) for _, cell in columns]) for offer in answer.offers],
        "numeric": {"hour", "month", "gpu-hour", "round-trip"},
        "more": answer.matching - len(answer.offers),
        "next_limit": 4 * limit,
        "past": history,
    }
    return PageContent("prices.html", context, command, charts)


def _history(state: dict[str, Any]) -> HistoryAnswer | None:
    """Return the price history of the first GPU named; None if there is none."""
    request: HistoryRequest = {"gpu": state["gpu"][0]}
    if state["term"]:
        request["term"] = state["term"]
    if len(state["provider"]) == 1:
        request["provider"] = state["provider"][0]
    try:
        return price_history(request, Context(catalog()))
    except WhichGpuError:
        return None


def _columns(answer: verbs.OffersAnswer, per: str, language: Language) -> list[Column]:
    return [
        COMMON["machine"],
        COMMON["gpu-hour"],
        COMMON["month" if per == "month" else "hour"],
        ("gpus", lambda offer: f"{offer.gpus:g}× {offer.gpu_name}"),
        COMMON["region"],
        ("term", lambda offer: term_text(offer, language)),
        *trailing_columns(answer, language),
    ]


def _form(page: Page) -> dict[str, Any]:
    form = Form(page)
    return {
        "gpu": form.field("gpu"),
        "every_gpu": form.field("every_gpu"),
        "filters": [
            form.field("provider"),
            form.field("currency", choices=CURRENCIES),
            *form.fields("as_of", "region", "near", "max_latency", "gpus", "min_memory"),
        ],
        "term": form.field("term"),
        "per": form.field("per"),
        "group_by": form.field("group_by"),
    }
