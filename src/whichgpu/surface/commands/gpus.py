"""`whichgpu gpus`: specs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from whichgpu.api.facts import catalog as verbs
from whichgpu.api.facts.catalog import RELATIVE
from whichgpu.api.request.catalog import GpusRequest
from whichgpu.base.codec import Cell, flat
from whichgpu.base.messages import Message, msg
from whichgpu.base.names import unknown_word
from whichgpu.base.units import format_bandwidth, format_flops
from whichgpu.catalog.gpu import Gpu
from whichgpu.surface.cells import sorted_by
from whichgpu.surface.commands.command import Request, command
from whichgpu.surface.commands.render.sources import say_sources, say_where_from
from whichgpu.surface.commands.session import Session

if TYPE_CHECKING:
    from whichgpu.api.facts.catalog import GpusAnswer
    from whichgpu.api.facts.relative_speed import RelativeAnswer, RelativeRow

USUAL = ("name", "memory_bytes", "memory_bandwidth", "peaks.fp16", "tdp_watts", "launch_date")


@command("gpus", GpusRequest, has_examples=True)
def gpus(session: Session, request: Request) -> GpusAnswer:
    """GPUs, ordered by a field's name or heading."""
    return verbs.gpus(sorted_by(request, Gpu, session.language, RELATIVE), session.context())  # type: ignore[arg-type]


@gpus.shows
def show(session: Session, answer: GpusAnswer) -> None:
    """A list, or every fact about the one named."""
    document = {"gpus": answer.gpus, "sources": answer.sources}
    if answer.relative is not None:
        _show_relative(session, answer, answer.relative)
    elif session.named and len(answer.gpus) == 1:
        gpu = answer.gpus[0]
        session.show_one(document, gpu, _sentence(gpu))
        say_sources(session, answer.sources)
    else:
        session.show(document, answer.gpus, USUAL, msg("gpus.count", n=len(answer.gpus)))
        say_where_from(session, answer.gpus, answer.sources)


def _show_relative(session: Session, answer: GpusAnswer, speeds: RelativeAnswer) -> None:
    """The list with a column for each index; as JSON the figures stand beside the facts."""
    sort = session.asked.get("sort") or ""
    rows = _by(
        [flat(gpu) | _indices(row) for gpu, row in zip(answer.gpus, speeds.rows, strict=True)],
        sort if sort.lstrip("-").startswith(RELATIVE) else None,
    )
    names = list(dict.fromkeys(f"{RELATIVE}{item.index}" for item in speeds.mix))
    session.say(msg("gpus.count", n=len(answer.gpus)))
    session.show(answer, rows, ("name", *names))
    session.say(msg("relative.against", against=speeds.against_name, n=len(speeds.mix)))


def _indices(row: RelativeRow) -> dict[str, Cell]:
    return {f"{RELATIVE}{index}": figure.value for index, figure in row.relative.items()}


def _by(rows: Sequence[dict[str, Cell]], sort: str | None) -> Sequence[dict[str, Cell]]:
    """Rows by an index, largest first with a leading minus; those without it last."""
    if sort is None:
        return rows
    name = sort.lstrip("-")
    known = {field for row in rows for field in row if field.startswith(RELATIVE)}
    if name not in known:
        raise unknown_word("field", name, sorted(known))
    sign = -1 if sort.startswith("-") else 1

    def key(row: dict[str, Cell]) -> tuple[bool, Any]:
        value = row.get(name)
        return value is None, sign * value if isinstance(value, float) else 0.0

    return sorted(rows, key=key)


def _sentence(gpu: Gpu) -> Message:
    fastest = next((dtype for dtype in ("bf16", "fp16", "fp32", "int8") if dtype in gpu.peaks), None)
    return msg(
        "gpus.sentence" if fastest else "gpus.sentence-no-rate",
        name=gpu.name,
        memory=gpu.memory_label,
        type=gpu.memory_type,
        bandwidth=format_bandwidth(gpu.memory_bandwidth),
        rate=format_flops(gpu.peaks[fastest]) if fastest else "",
        dtype=fastest or "",
        launched=gpu.launch_date,
    )
