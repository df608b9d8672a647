"""`whichgpu compare`: GPUs and machines side by side."""

from __future__ import annotations

from collections.abc import Sequence

from whichgpu.api.request.load import CompareRequest
from whichgpu.api.workloads import compare as verbs
from whichgpu.base.codec import Cell
from whichgpu.base.figure import Figure
from whichgpu.base.messages import Language, Message, msg
from whichgpu.base.units import format_memory, format_seconds, significant, with_unit
from whichgpu.surface.cells import cell_text, chosen_columns, flat_rows, heading
from whichgpu.surface.commands.command import command
from whichgpu.surface.commands.render.listing import say_sources
from whichgpu.surface.commands.render.workload import assumptions
from whichgpu.surface.commands.session import Session
from whichgpu.surface.documents import document
from whichgpu.workload.models import own_name

GPU_FACTS = (
    "architecture form_factor memory_bytes memory_type memory_bandwidth peaks.fp64 peaks.fp32 peaks.tf32 peaks.bf16 peaks.fp16 "
    "peaks.fp8 peaks.fp4 peaks.int8 link.kind link.bandwidth pcie.generation l2_bytes tdp_watts compute_capability launch_date "
    "software.toolkit_last software.pytorch_last"
).split()
MACHINE_FACTS = "provider gpus vcpus ram_bytes local_disk_bytes network_gbps interconnect.kind topology".split()
SPEED_FIGURES = ("time", "throughput", "memory_device")  # Figures of an estimate that are rows of the table.


@command("compare", CompareRequest, verbs.compare)
def show(session: Session, answer: verbs.Comparison) -> None:
    """Print a table with facts as rows and GPUs or machines as columns; speeds come first if a workload was given."""
    speeds = answer.speed
    rows = flat_rows([column.gpu for column in answer.compared])
    machines = flat_rows([column.instance or {} for column in answer.compared])
    machine_facts = [name for name in MACHINE_FACTS if name in machines[0]]
    merged: list[dict[str, Cell]] = [
        card | {name: machine.get(name) for name in machine_facts} for card, machine in zip(rows, machines, strict=True)
    ]
    facts = chosen_columns(session.columns, merged, (*machine_facts, *GPU_FACTS), session.language)
    if answer.narrowed_from:
        precision = next(one.estimate.request["precision"] for one in speeds or () if one.estimate)
        session.say(msg("compare.narrowed", usual=answer.narrowed_from, precision=precision))
    for line in _verdicts(speeds or ()):
        session.say(line)
    session.say(msg("compare.count", n=len(answer.compared)))
    if session.format == "json":
        speed = {} if speeds is None else {"speed": document(speeds, session.language)}
        session.emit({"compared": answer.compared, **speed, "sources": answer.sources})
        return
    stated = [name for name in facts if any(row[name] not in (None, "") for row in merged)]
    header = [session.language.text("column.fact"), *(column.name for column in answer.compared)]
    if session.format == "csv":
        numbers = [[name, *row] for name, row in _speeds(speeds or (), None)]
        session.table(["field", *header[1:]], [*numbers, *([name, *(row[name] for row in merged)] for name in stated)])
        return
    language = session.language
    speed_rows = [[heading(name, language), *row] for name, row in _speeds(speeds or (), language)]
    fact_rows = [
        [heading(name, session.language), *(cell_text(name, row[name], session.language) for row in merged)] for name in stated
    ]
    session.table_of_columns(header, [*speed_rows, *fact_rows])
    if requests := [speed.estimate.request for speed in speeds or () if speed.estimate]:
        first = requests[0]
        shared = [name for name in first["defaults"] if name != "gpu" and all(one[name] == first[name] for one in requests)]
        what = assumptions({**first, "defaults": shared})
        same_batch = all(one["batch"] == first["batch"] for one in requests)
        session.say(msg("compare.assumed", batch=first["batch"], what=what) if same_batch else what)
    for one in speeds or ():
        for what in (one.problem,) if one.problem else one.estimate.warnings if one.estimate else ():
            session.say(msg("fit.warning", what=msg("compare.problem", name=one.name, what=what)))
    say_sources(session, answer.sources)


def _verdicts(speeds: Sequence[verbs.ComparedSpeed]) -> list[Message]:
    """Return a message with the speeds of the GPUs that hold the workload, and one with the others and what each lacks."""
    lines = [ranked] if (ranked := _ranked([speed for speed in speeds if speed.is_held])) is not None else []
    lacking = tuple(
        msg(
            "compare.lacks", name=speed.name, need=format_memory(int(speed.estimate.memory_device.value)),
            usable=format_memory(speed.estimate.usable or 0),
        )
        for speed in speeds
        if speed.estimate and not speed.is_held
    )  # fmt: skip
    if not lacking:
        return lines
    return [*lines, msg("compare.not-held" if any(speed.is_held for speed in speeds) else "compare.none-held", what=lacking)]


def _ranked(speeds: Sequence[verbs.ComparedSpeed]) -> Message | None:
    """Return a message with each GPU's speed relative to the first, and the batch if all have the same."""
    timed = [(speed, speed.estimate.request) for speed in speeds if speed.estimate and speed.relative]
    if not timed or timed[0][1]["rate"] is not None:  # Under a request rate the engine chooses the batch.
        return None
    request = timed[0][1]
    model = request["model"] if isinstance(request["model"], str) else own_name(request["model"])
    what = tuple(f"{speed.name} {significant(speed.relative or 0.0)}x" for speed, _ in timed)
    if any(one["batch"] != request["batch"] for _, one in timed):
        return msg("compare.ranked-batches", task=request["task"], model=model, what=what)
    return msg("compare.ranked", task=request["task"], model=model, batch=request["batch"], what=what)


def _speeds(speeds: Sequence[verbs.ComparedSpeed], words: Language | None) -> list[tuple[str, list[Cell]]]:
    """Return table rows of estimates (figures, memory verdict, bottleneck, relative speed): text in a language, else values."""
    if not speeds:
        return []
    rows: list[tuple[str, list[Cell]]] = [
        (name, [_cell(getattr(speed.estimate, name, None), words) for speed in speeds]) for name in SPEED_FIGURES
    ]
    fits = [speed.estimate.fits if speed.estimate else None for speed in speeds]
    rows.append(("fits", [words.text(f"verdict.{one}") if words and one else one for one in fits]))
    rows.append(("bound", [speed.estimate.bound if speed.estimate else None for speed in speeds]))
    ratios = [speed.relative for speed in speeds]
    rows.append(("relative", [f"{significant(one)}x" if words and one is not None else one for one in ratios]))
    blank: Cell = None if words is None else ""
    return [(name, [blank if cell is None else cell for cell in cells]) for name, cells in rows]


def _cell(figure: Figure | None, words: Language | None) -> Cell:
    if figure is None or words is None:
        return figure.value if figure else None
    if figure.unit == "byte":
        return format_memory(int(figure.value))
    spans = [format_seconds(number) if figure.unit == "s" else significant(number) for number in (figure.low, figure.high)]
    value = format_seconds(figure.value) if figure.unit == "s" else with_unit(figure.value, figure.unit)
    return words.cell("compare.range", value=value, low=spans[0], high=spans[1])
