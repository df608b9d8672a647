"""The buy page: cards to own against renting the same, by price, power and use."""

from __future__ import annotations

from datetime import date
from typing import Any

from whichgpu.api.prices import buy as verbs
from whichgpu.api.prices.buy import BuyAnswer, BuyRow
from whichgpu.api.request.offers import BuyRequest
from whichgpu.base.errors import WhichGpuError
from whichgpu.base.messages import Language
from whichgpu.base.units import format_amount, significant
from whichgpu.price.card_prices import observed_price
from whichgpu.price.own import RESIDUAL, USE, YEARS
from whichgpu.surface.candidate_cells import money_text
from whichgpu.surface.charts.own_rent import own_rent_picture
from whichgpu.surface.commands.buy import row_lines, row_sentence
from whichgpu.surface.web.failure import error_content
from whichgpu.surface.web.page import Page, PageContent, view
from whichgpu.surface.web.panels.subjects import instance_url
from whichgpu.surface.web.views.forms import Form
from whichgpu.surface.web.views.shared import context_of, page_words

DEFAULTS = {"use": USE, "years": YEARS, "residual": RESIDUAL, "pue": 1.0, "gpus": 1}  # Values of the fields if they are empty.
DEFAULT_NAMES = ("RTX 3090", "RTX 4090", "RTX 5090")
# Shares of all hours at which the chart has a point: close together where the cost changes most.
USES = (0.05, 0.075, 0.1, 0.125, 0.15, 0.175, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.75, 1.0)


@view("buy", BuyRequest, defaults={"name": DEFAULT_NAMES})
def buy(page: Page) -> PageContent:
    """Return the buy page: what owning each GPU costs per hour of work, and from which use on it is cheaper than renting."""
    request = page.request(BuyRequest)
    command = "buy", request
    context: dict[str, Any] = {**page_words(page.language), "form": _form(page), "answer": None, "error": None}
    try:
        page.check()
        undated = page.request(BuyRequest, "as_of")
        answer = verbs.buy(undated, context_of(page))  # type: ignore[arg-type]
        by_use = {use: verbs.buy({**undated, "use": use}, context_of(page)) for use in USES}  # type: ignore[typeddict-item]
    except WhichGpuError as error:
        return error_content("buy.html", context, error, page, command=command)
    context |= {
        "answer": answer,
        "sentences": [row_sentence(row, answer) for row in answer.rows],
        "rows": [_row(row, answer, page.language) for row in answer.rows],
        "inputs": [(_label(name, page.language), value, name in answer.defaults) for name, value in answer.inputs.items()],
        "instance_link": instance_url,
    }
    return PageContent("buy.html", context, command, {"own": own_rent_picture(by_use, page.language)})


def _row(row: BuyRow, answer: BuyAnswer, language: Language) -> dict[str, Any]:
    rent, months = row.rent, row.break_even_months
    return {
        "gpu": row.gpu, "name": f"{row.gpus}× {row.gpu_name}", "purchase": money_text(row.purchase), "host": money_text(row.host),
        "basis": f"{language.text(f'web.price-{row.price_basis}')} {_observed_day(row, answer)}".strip(),
        "purchase_raw": float(row.purchase.amount),
        "own": format_amount(row.own_per_hour.amount), "own_raw": float(row.own_per_hour.amount),
        "rent": format_amount(row.rent_per_hour.amount) if row.rent_per_hour else "",
        "rent_raw": float(row.rent_per_hour.amount) if row.rent_per_hour else 0.0,
        "provider": rent.provider if rent else "", "instance": rent.instance if rent else "",
        "seen": rent.observed_at if rent else "", "stale": rent.stale if rent else False,
        "use": f"{row.break_even_use:.0%}" if row.break_even_use is not None else "",
        "use_raw": row.break_even_use if row.break_even_use is not None else 9.0,
        "months": significant(months) if months else "", "lines": row_lines(row, answer),
    }  # fmt: skip


def _observed_day(row: BuyRow, answer: BuyAnswer) -> str:
    """Return the day on which the price of a card was observed; empty if it is the user's or a list price."""
    observed = observed_price(row.gpu, date.fromisoformat(answer.as_of))
    return observed.day if observed is not None and observed.basis == row.price_basis else ""


def _label(name: str, language: Language) -> str:
    id = f"web.field-{name.replace('_', '-')}"
    return language.text(id) if id in language else name


def _form(page: Page) -> dict[str, Any]:
    form = Form(page)
    return {
        "name": form.field("name"),
        "money": form.fields("price", "host_price", "power_price", "upkeep"),
        "time": [form.field(name, placeholder=f"{value:g}") for name, value in DEFAULTS.items()],
        "rent": form.fields("provider", "currency", "as_of"),
    }
