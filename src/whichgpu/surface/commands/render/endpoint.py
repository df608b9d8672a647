"""Display of a server's measurements beside their estimates."""

from __future__ import annotations

from collections.abc import Iterator

from whichgpu.api.measure.endpoint import EndpointAnswer, LevelAnswer
from whichgpu.base.figure import Figure
from whichgpu.base.messages import Language, msg
from whichgpu.base.units import format_seconds, significant
from whichgpu.measure.bench.case import Timing
from whichgpu.surface.commands.session import Session
from whichgpu.surface.documents import document

COLUMNS = ("concurrency", "quantity", "measured", "spread", "predicted", "verdict")


def show_endpoint(session: Session, answer: EndpointAnswer) -> int:
    """Print latencies and throughput by concurrency, each beside its estimate; return the exit code."""
    if session.format == "json":
        session.emit({"ok": True, **document(answer, session.language)})
        return 0
    pairs = [pair for level in answer.levels for pair in _pairs(level)]
    judged = [(value, figure) for _, value, _, figure in pairs if figure is not None]
    inside = sum(figure.low <= value <= figure.high for value, figure in judged)
    software = " ".join(word for word in (answer.served.owner, answer.served.version) if word)
    model = f"{answer.served.id} ({software})" if software else answer.served.id
    session.say(msg("endpoint.headline", model=model, n=len(answer.levels), inside=inside, judged=len(judged)))
    text = session.language.text
    rows = [row for level in answer.levels for row in _rows(level, session.language)]
    session.table([text(f"endpoint.column.{name}") for name in COLUMNS], rows)
    for note in answer.notes:
        session.say(note)
    if answer.path:
        session.say(msg("measure.kept", path=answer.path))
    return 0


def _pairs(level: LevelAnswer) -> Iterator[tuple[str, float, Timing | None, Figure | None]]:
    """Yield quantity, measured value, timing and estimate of a level."""
    measured = level.measured
    yield "ttft", measured.ttft.seconds, measured.ttft, level.ttft
    if measured.tpot is not None:
        yield "tpot", measured.tpot.seconds, measured.tpot, level.tpot
    yield "throughput", measured.throughput, None, level.throughput


def _rows(level: LevelAnswer, language: Language) -> Iterator[tuple[str, ...]]:
    for name, value, timing, figure in _pairs(level):
        write = format_seconds if timing else _rate
        spread = f"{write(timing.low)} – {write(timing.high)}" if timing else ""
        predicted = f"{write(figure.value)} ({write(figure.low)} – {write(figure.high)})" if figure else ""
        inside = "" if figure is None else "measure.inside" if figure.low <= value <= figure.high else "measure.outside"
        verdict = language.text(inside) if inside else ""
        count = str(level.measured.concurrency)
        yield count, language.text(f"endpoint.{name}"), write(value), spread, predicted, verdict


def _rate(value: float) -> str:
    return f"{significant(value)} tokens/s"
