"""Code shared by the pages of one GPU, model or instance: its facts, its offers, and the verdicts of what fits."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from whichgpu.api.context import Context
from whichgpu.api.facts.fit_grid import PRECISION_OF_BITS, FitLine
from whichgpu.api.prices.offers import offers
from whichgpu.base.codec import Cell
from whichgpu.base.errors import WhichGpuError
from whichgpu.base.messages import Language
from whichgpu.base.units import format_memory, significant
from whichgpu.catalog.store import Catalog
from whichgpu.price.offers import Offer
from whichgpu.surface.cells import cell_text, flat_rows, heading
from whichgpu.surface.commands.offers import money_text, term_text
from whichgpu.surface.web.command_replies import catalog

HIDDEN_FACTS = ("id", "name", "sources", "recorded", "quirk_ids", "quirks", "config", "gpu", "software.note")
FULL_BAR = 1000  # Units of a bar's whole length in its drawing.
MAX_OFFERS = 12  # Offers on the page of a GPU.


def facts(record: object, language: Language, without: Collection[str] = HIDDEN_FACTS) -> list[tuple[str, str]]:
    """Return the facts of a record that are known, each with its heading and its value with a unit."""
    (row,) = flat_rows([record])
    currency = row.pop("launch_price.currency", None)
    texts = {name: _fact_text(name, value, language) for name, value in row.items() if name not in without}
    if currency and texts.get("launch_price.amount"):
        texts["launch_price.amount"] += f" {currency}"
    return [(heading(name, language), text) for name, text in texts.items() if text]


def _fact_text(name: str, value: Cell, language: Language) -> str:
    """Return the value of a fact with its unit; a count without a unit has thousands separators."""
    is_count = isinstance(value, int) and not isinstance(value, bool)
    text = cell_text(name, value, language)
    return f"{value:,}" if is_count and text == str(value) else text


def offer_rows(request: dict[str, Any], context: Context, language: Language) -> tuple[list[dict[str, Any]], int]:
    """Return the rows of a table of offers, and how many match in all; none if nobody offers it."""
    try:
        answer = offers(request, context)  # type: ignore[arg-type]
    except WhichGpuError:
        return [], 0
    return [_offer_row(one, language) for one in answer.offers], answer.matching


def _offer_row(offer: Offer, language: Language) -> dict[str, Any]:
    return {
        "provider": offer.provider, "instance": offer.instance, "region": offer.region, "gpus": f"{offer.gpus:g}×",
        "term": term_text(offer, language), "hour": money_text(offer.price), "gpu_hour": money_text(offer.price_per_gpu_hour),
        "month": money_text(offer.price_month, month=True), "seen": offer.observed_at, "stale": offer.stale,
        "gpu_hour_raw": float(offer.price_per_gpu_hour.amount), "hour_raw": float(offer.price.amount),
    }  # fmt: skip


def fit_rows(lines: Sequence[FitLine]) -> list[dict[str, Any]]:
    """Return the rows of a table of what fits: verdicts by bits with the memory needed, and the speed for one user."""
    rows = []
    for line in lines:
        cells = {cell.bits: (cell.fits, format_memory(cell.needed)) for cell in line.cells}
        speed = line.throughput
        rows.append(
            {
                "model": line.model, "model_name": line.model_name, "gpu": line.gpu, "gpu_name": line.gpu_name,
                "cells": [cells.get(bits) for bits in PRECISION_OF_BITS],
                "speed": significant(speed.value) if speed else "",
                "speed_raw": speed.value if speed else 0.0,
                "range": (significant(speed.low), significant(speed.high)) if speed else None,
            }
        )  # fmt: skip
    return rows


def instance_url(provider: str, instance: str) -> str:
    """Return the URL of an instance's page; empty if the catalog does not have the instance."""
    providers = _providers(catalog()).get(instance, ())
    if provider not in providers:
        return ""
    url = f"/instance/{quote(instance, safe='')}"
    return url if len(providers) == 1 else f"{url}?provider={quote(provider)}"


@lru_cache(maxsize=2)
def _providers(catalog: Catalog) -> dict[str, tuple[str, ...]]:
    """Return the providers that have an instance of each name."""
    providers: dict[str, tuple[str, ...]] = {}
    for row in catalog.instances:
        providers[row.instance] = (*providers.get(row.instance, ()), row.provider)
    return providers
