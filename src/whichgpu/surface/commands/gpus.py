"""`whichgpu gpus`: list GPU specifications."""

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
from whichgpu.surface.commands.command import command
from whichgpu.surface.commands.render.listing import show_listing
from whichgpu.surface.commands.session import Session

if TYPE_CHECKING:
    from whichgpu.api.facts.relative_speed import RelativeAnswer

COLUMNS = ("name", "memory_bytes", "memory_bandwidth", "peaks.fp16", "tdp_watts", "launch_date")


@command("gpus", GpusRequest, verbs.gpus, row_type=Gpu)
def show(session: Session, answer: verbs.GpusAnswer) -> None:
    """Print a list of GPUs, or every fact about the one named."""
    if answer.relative is not None:
        _show_relative(session, answer, answer.relative)
        return
    document = {"gpus": answer.gpus, "sources": answer.sources}
    count = msg("gpus.count", n=len(answer.gpus))
    show_listing(session, document, answer.gpus, answer.sources, COLUMNS, count, gpu_sentence)


def _show_relative(session: Session, answer: verbs.GpusAnswer, speeds: RelativeAnswer) -> None:
    """Print the list with a column for each speed index; JSON has these figures next to the facts."""
    sort = session.request.get("sort") or ""
    rows = [
        flat(gpu) | {f"{RELATIVE}{index}": figure.value for index, figure in row.relative.items()}
        for gpu, row in zip(answer.gpus, speeds.rows, strict=True)
    ]
    if sort.lstrip("-").startswith(RELATIVE):
        rows = _by_index(rows, sort)
    names = list(dict.fromkeys(f"{RELATIVE}{item.index}" for item in speeds.mix))
    session.say(msg("gpus.count", n=len(answer.gpus)))
    session.show(answer, rows, ("name", *names))
    session.say(msg("relative.against", against=speeds.against_name, n=len(speeds.mix)))


def _by_index(rows: Sequence[dict[str, Cell]], sort: str) -> list[dict[str, Cell]]:
    """Sort rows by a speed index, largest first with a leading minus; rows without one come last."""
    name = sort.lstrip("-")
    indices = {field for row in rows for field in row if field.startswith(RELATIVE)}
    if name not in indices:
        raise unknown_word("field", name, sorted(indices))
    sign = -1 if sort.startswith("-") else 1

    def key(row: dict[str, Cell]) -> tuple[bool, Any]:
        value = row.get(name)
        return value is None, sign * value if isinstance(value, float) else 0.0

    return sorted(rows, key=key)


def gpu_sentence(gpu: Gpu) -> Message:
    """Return a sentence about a GPU: memory, bandwidth, rate of its fastest common precision, and launch date."""
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
