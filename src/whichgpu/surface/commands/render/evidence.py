"""Text about measurements: how a workload was run, and the nearest ones beside an estimate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from whichgpu.base.messages import Language, Message, msg
from whichgpu.base.units import format_seconds
from whichgpu.estimate.nearest_evidence import NearMeasurement
from whichgpu.surface.commands.session import Session

SIZES = {"batch": "batch", "seq_in": "seq-in", "seq_out": "seq-out", "image": "image"}  # Fields with a message `web.size-…`.


class MeasuredRun(Protocol):
    """What the text about a measurement needs of it."""

    @property
    def precision(self) -> str: ...


def settings_text(row: MeasuredRun, language: Language) -> str:
    """Return how a measured workload was run: precision, layout, batch, lengths and, of an operator, its sizes."""
    sizes = [language.text(f"web.size-{id}", n=size) for name, id in SIZES.items() if (size := getattr(row, name, None))]
    details = getattr(row, "details", "").replace(",", " ")
    return language.listed(
        part for part in (row.precision, getattr(row, "layout", "").replace(",", " "), *sizes, details) if part
    )


def gpus_text(gpus: int | None, gpu: str) -> str:
    """Return a number of GPUs with their name; the name alone for one."""
    return f"{gpus}x {gpu}" if (gpus or 1) > 1 else gpu


def say_evidence(session: Session, evidence: Sequence[NearMeasurement], error: float | None) -> None:
    """Print the measurements nearest to an estimate, one per line, and how far the model is off around them."""
    session.say(msg("evidence.nearest" if evidence else "evidence.none"))
    for row in evidence:
        session.say(nearest_line(row, session.language))
    if error is not None:
        session.say(neighbourhood(evidence, error))


def nearest_line(row: NearMeasurement, language: Language) -> Message:
    """Return one of the nearest measurements as a line: times, error, what was run, source, and on what it differs."""
    values = {
        "measured": format_seconds(row.measured), "kind": msg(f"evidence.kind-{row.kind}"), "gpus": gpus_text(row.gpus, row.gpu),
        "software": row.software, "model": row.model, "settings": settings_text(row, language), "source": row.source,
        "date": row.date, "axes": tuple(msg(f"evidence.axis-{axis}") for axis in row.differs_on) or "–",
    }  # fmt: skip
    if row.estimated is None or row.error is None:
        return msg("evidence.line-measured", **values)
    return msg("evidence.line", estimated=format_seconds(row.estimated), error=f"{row.error:+.0%}", **values)


def neighbourhood(evidence: Sequence[NearMeasurement], error: float) -> Message:
    """Return a sentence on how far the model is off on the measurements nearest to a question; of other GPUs it says so."""
    own = any("gpu" not in row.differs_on for row in evidence)
    return msg("evidence.neighbourhood" if own else "evidence.neighbourhood-other-gpus", error=f"{error:.0%}")
