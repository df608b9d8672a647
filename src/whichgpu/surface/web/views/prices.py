"""Prices: what GPUs rent for, as of any day, and how that went."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from whichgpu.api.prices.history import HistoryAnswer
from whichgpu.api.request.catalog import HistoryRequest
from whichgpu.base.errors import WhichGpuError
from whichgpu.base.messages import Language
from whichgpu.base.units import parse_bytes, parse_seconds
from whichgpu.catalog.offer import TERMS
from whichgpu.catalog.select import parse_span
from whichgpu.price.offers import GROUPS, Offer
from whichgpu.surface.cells import field_named
from whichgpu.surface.commands.offers import headline, money, notes, term_of, trip
from whichgpu.surface.web.page import Page, Shown, view
from whichgpu.surface.web.views.chart_parts import coloured, dashed, picture, quantity, tips
from whichgpu.surface.web.views.forms import Form, day_of, given, problem_of
from whichgpu.surface.web.views.shared_catalog import context_of, lookups
from whichgpu.surface.web.views.words import words

if TYPE_CHECKING:
    from whichgpu.api.prices.offers import OffersAnswer, OffersQuery

WANTED = ("gpu", "instance", "provider", "region", "near", "term", "currency", "group_by")
MOST_LINES = 8
CURRENCIES = ("USD", "EUR", "GBP", "JPY", "KRW", "INR", "CNY", "CAD", "AUD", "CHF", "SGD")
# column -> the field of an offer it is ordered by
SORTS = {
    "machine": "instance", "gpus": "gpus", "region": "region", "term": "term", "hour": "price", "month": "price_month",
    "gpu-hour": "price_per_gpu_hour", "round-trip": "round_trip", "seen": "observed_at",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class State:
    """What the page can be asked."""

    gpu: tuple[str, ...] = ("H100 SXM",)
    provider: tuple[str, ...] = ()
    region: tuple[str, ...] = ()
    near: str | None = None
    max_latency: str | None = None
    term: tuple[str, ...] = ()
    gpus: str | None = None
    min_memory: str | None = None
    instance: tuple[str, ...] = ()
    currency: str | None = None
    per: str = "hour"
    as_of: str | None = None
    group_by: tuple[str, ...] = ()
    sort: str | None = None
    limit: int = 50
    every_gpu: bool = False


@view("prices", State)
def prices(page: Page[State]) -> Shown:
    """Offers of a day, and the history of the first GPU named."""
    from whichgpu.api.prices.offers import list_offers

    state, language = page.state, page.language
    gpu = () if state.every_gpu else state.gpu
    texts = given(state, (*WANTED[1:], "max_latency", "gpus", "min_memory", "sort", "as_of")) | given(state, ("limit",))
    command = "offers", {"gpu": gpu, "per": state.per, **texts}
    context: dict[str, Any] = {"form": _form(page), **words(page.language), "answer": None, "error": None}
    try:
        answer = list_offers(_query(state, gpu, language), day_of(state.as_of), lookups().catalog)
    except WhichGpuError as error:
        told, status = problem_of(error, language)
        return Shown("prices.html", context | {"error": told}, command, status=status)
    charts: dict[str, Any] = {}
    past = _history(gpu, state)
    if past is not None:
        charts["history"] = history_picture(past, ", ".join(gpu), language)
    columns = _columns(answer, state.per, language)
    return Shown(
        "prices.html",
        context
        | {
            "answer": answer,
            "headline": headline(answer, language),
            "notes": notes(answer, (state.per,), state.sort, state.max_latency is not None, language),
            "heads": [(name, language.text(f"offers.{name}"), SORTS.get(name), _order(state.sort, name)) for name, _ in columns],
            "rows": [[cell(offer) for _, cell in columns] for offer in answer.offers],
            "numeric": {"hour", "month", "gpu-hour", "round-trip"},
            "more": answer.matching - len(answer.offers),
            "past": past,
        },
        command,
        charts,
    )


def _query(state: State, gpu: Sequence[str], language: Language) -> OffersQuery:
    from whichgpu.api.prices.offers import OffersQuery

    return OffersQuery(
        gpu=gpu,
        instance=state.instance,
        gpus=parse_span(state.gpus) if state.gpus else None,
        min_memory=parse_bytes(state.min_memory) if state.min_memory else None,
        provider=state.provider,
        region=state.region,
        term=state.term,
        near=state.near,
        max_latency=parse_seconds(state.max_latency) if state.max_latency else None,
        currency=state.currency,
        sort=field_named(state.sort, Offer, language),
        group_by=state.group_by,
        limit=max(1, min(state.limit, 2000)),
    )


def _history(gpu: Sequence[str], state: State) -> HistoryAnswer | None:
    """How the first GPU's prices went; None where nothing is known of it."""
    from whichgpu.api.prices.history import history

    if not gpu:
        return None
    terms = tuple(term for term in state.term if term in TERMS) or ("on-demand", "spot")
    request: HistoryRequest = {"gpu": gpu[0], "term": terms}
    if len(state.provider) == 1:
        request["provider"] = state.provider[0]
    try:
        return history(request, context_of())
    except WhichGpuError:
        return None


def _columns(answer: OffersAnswer, per: str, language: Language) -> list[tuple[str, Any]]:
    columns: list[tuple[str, Any]] = [
        ("machine", lambda offer: f"{offer.provider} {offer.instance}"),
        ("gpu-hour", lambda offer: money(offer.price_per_gpu_hour)),
        ("hour", lambda offer: money(offer.price))
        if per != "month"
        else ("month", lambda offer: money(offer.price_month, month=True)),
        ("gpus", lambda offer: f"{offer.gpus:g}× {offer.gpu_name}"),
        ("region", lambda offer: offer.region),
        ("term", lambda offer: term_of(offer, language)),
    ]
    if answer.near:
        columns.append(("round-trip", lambda offer: trip(offer, language)))
    if any(offer.cheapest_of for offer in answer.offers):
        columns.append(("cheapest-of", lambda offer: str(offer.cheapest_of or "")))
    columns.append(
        ("seen", lambda offer: language.text(f"offers.seen-{offer.confidence}", day=offer.observed_at, n=offer.age_days))
    )
    columns.append(("source", lambda offer: offer.source))
    return columns


def _order(sort: str | None, name: str) -> str:
    field = SORTS.get(name)
    if sort is None:
        return "ascending" if name == "gpu-hour" else "none"
    return "none" if sort.lstrip("-") != field else "descending" if sort.startswith("-") else "ascending"


def history_picture(past: HistoryAnswer, gpu: str, language: Language) -> dict[str, Any]:
    """Step lines of the lowest price of each provider and term; of very many, those with the most changes."""
    text = language.text
    lines: dict[str, list[dict[str, Any]]] = {}
    for row in past.history:
        name = language.listed((row.provider, text(f"term.{row.term}")))
        price = float(row.price_per_gpu_hour.amount.quantize(Decimal("0.0001")))
        points = lines.setdefault(name, [])
        points += [
            {"line": name, "day": day, "date": day, "price": price} for day in dict.fromkeys((row.observed, row.last_observed))
        ]
    names = sorted(lines, key=lambda name: (-len(lines[name]), name))[:MOST_LINES]
    values = [point for name in names for point in sorted(lines[name], key=lambda point: str(point["day"]))]
    axis = {"tickCount": 6, "title": None, "format": "%Y-%m"}
    x = {"field": "day", "type": "temporal", "title": text("web.tip-day"), "axis": axis}
    y = quantity("price", text("web.axis-gpu-hour", currency="USD"))
    return picture(
        text("web.described-history", gpu=gpu, n=len(names)),
        320,
        data={"values": values},
        mark={"type": "line", "interpolate": "step-after", "strokeWidth": 2},
        encoding={
            "x": x, "y": y,
            "color": coloured("line", names, legend={"columns": 3}), "strokeDash": dashed("line", names),
            "tooltip": tips(("line", text("web.tip-line")), ("date", text("web.tip-day")), ("price", y["title"])),
        },
    )  # fmt: skip


def _form(page: Page[State]) -> dict[str, Any]:
    form = Form(page)
    return {
        "gpu": form.field("gpu", known="gpus"),
        "every_gpu": form.field("every_gpu", "switch"),
        "filters": [
            form.field("provider", known="providers"),
            form.select("currency", CURRENCIES),
            form.field("as_of", "date"),
            form.field("region", example="Seoul"),
            form.field("near", example="Berlin"),
            form.field("max_latency", example="100ms"),
            form.field("gpus", example="1..8"),
            form.field("min_memory", example="40GB"),
        ],
        "term": form.checks("term", TERMS, "term."),
        "per": form.radios("per", ("hour", "month"), "web.per-"),
        "group_by": form.checks("group_by", GROUPS, "web.group-"),
    }
