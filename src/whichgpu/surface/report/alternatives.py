"""Table of a report on an estimate: its workload on other GPUs, with their lowest prices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whichgpu.api.workloads.alternatives import Alternative, alternatives
from whichgpu.api.workloads.estimate import EstimateAnswer
from whichgpu.base.messages import Language
from whichgpu.base.units import format_seconds, significant, with_unit
from whichgpu.surface.commands.render.recording_session import RecordedTable
from whichgpu.surface.commands.session import Session

COLUMNS = ("field.gpu_name", "field.time", "field.throughput", "field.fits", "report.cheapest", "recommend.column-offer")


def alternatives_table(answer: EstimateAnswer, request: Mapping[str, Any], session: Session) -> list[RecordedTable]:
    """Return the table with the estimate's own GPU first; empty if there is nothing to compare."""
    rows = alternatives(answer, request, session.context())
    text = session.language.text
    cells = tuple(_cells(row, session.language) for row in rows)
    return [RecordedTable(tuple(map(text, COLUMNS)), cells)] if len(cells) > 1 else []


def _cells(row: Alternative, language: Language) -> tuple[str, ...]:
    time, rate, price = row.estimate.time, row.estimate.throughput, row.cost_per_hour
    return (
        row.gpu_name,
        str(format_seconds(time.value)) if time else "–",
        str(with_unit(rate.value, rate.unit)) if rate else "–",
        language.text(f"verdict.{row.estimate.fits}") if row.estimate.fits else "–",
        f"{significant(float(price.amount))} {price.currency} ({row.price_observed_at})" if price else "–",
        row.offer or "–",
    )
