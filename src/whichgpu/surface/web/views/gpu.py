"""The page of one GPU: facts with sources, speed among its neighbours, what fits, prices, strengths and cautions."""

from __future__ import annotations

from typing import Any

from whichgpu.api.facts.gpu_profile import GpuProfile, gpu_profile
from whichgpu.api.facts.relative_speed import RelativeAnswer
from whichgpu.api.prices.history import history
from whichgpu.api.request.field import Field
from whichgpu.api.request.kinds import Names
from whichgpu.base.errors import WhichGpuError
from whichgpu.base.messages import Fact, Language
from whichgpu.base.units import significant
from whichgpu.surface.charts.prices import history_picture
from whichgpu.surface.commands.gpus import gpu_sentence
from whichgpu.surface.web.command_replies import catalog
from whichgpu.surface.web.page import Page, PageContent, view
from whichgpu.surface.web.panels.subjects import FULL_BAR, MAX_OFFERS, facts, fit_rows, instance_url, offer_rows
from whichgpu.surface.web.views.shared import context_of, lookup_cache, page_words


@view("gpu", extra={"gpu": Field(Names("gpus", many=False))}, defaults={"gpu": "h100-sxm"}, subject="gpu")
def gpu(page: Page) -> PageContent:
    """Return the page of one GPU."""
    language, the_catalog = page.language, catalog()
    profile = gpu_profile(page.state["gpu"], the_catalog, lookup_cache())
    card = profile.gpu
    request = {"gpu": [card.id], "group_by": ["provider"], "sort": "price_per_gpu_hour", "limit": MAX_OFFERS}
    offered, _ = offer_rows(request, context_of(page), language)
    context: dict[str, Any] = {
        **page_words(language),
        "card": card,
        "sentence": gpu_sentence(card),
        "facts": facts(card, language),
        "speed": _speed(profile.speed, language) if profile.speed else None,
        "models": fit_rows(profile.models),
        "offers": offered,
        "strengths": profile.strengths,
        "cautions": _cautions(profile, language),
        "software": language.fact(Fact(card.software.note)) if card.software and card.software.note else "",
        "sources": the_catalog.cited_sources(card.sources),
        "instance_link": instance_url,
    }
    try:
        charts = {"history": history_picture(history({"gpu": card.id}, context_of(page)), card.name, language)}
    except WhichGpuError:  # Nobody has rented it by the hour.
        charts = {}
    return PageContent("gpu.html", context, ("gpus", {"names": [card.id]}), charts)


def _cautions(profile: GpuProfile, language: Language) -> list[str]:
    return [language.fact(one) if isinstance(one, Fact) else language.render(one) for one in profile.cautions]


def _speed(answer: RelativeAnswer, language: Language) -> dict[str, Any]:
    """Return the table of relative speeds: a column for each kind of work, a bar and whisker in each cell."""
    indices = list(dict.fromkeys(item.index for item in answer.mix))
    longest = {
        index: max((row.relative[index].high for row in answer.rows if index in row.relative), default=1.0) for index in indices
    }

    def cell(row: Any, index: str) -> dict[str, Any] | None:
        figure = row.relative.get(index)
        if figure is None:
            return None
        lengths = (round(FULL_BAR * value / longest[index]) for value in (figure.value, figure.low, figure.high))
        text = language.text("web.times", n=significant(figure.value))
        return {"text": text, "bar": tuple(lengths), "raw": figure.value}

    return {
        "heads": [language.text(f"web.index-{index}") for index in indices],
        "rows": [
            {"gpu": row.gpu, "name": row.gpu_name, "own": row.gpu == answer.against, "cells": [cell(row, one) for one in indices]}
            for row in answer.rows
        ],
    }
