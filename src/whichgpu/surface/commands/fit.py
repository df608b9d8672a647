"""`whichgpu fit`: whether a model fits each GPU, what takes the memory, and remedies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from whichgpu.api.request.load import FitRequest
from whichgpu.api.workloads.fit import FitAnswer, FitRow
from whichgpu.api.workloads.fit_verb import fit
from whichgpu.base.errors import NoAnswer
from whichgpu.base.messages import Message, msg
from whichgpu.base.units import format_memory
from whichgpu.estimate.remedies import Remedy
from whichgpu.surface.commands.command import command
from whichgpu.surface.commands.render.workload import assumptions, model_label, part_name
from whichgpu.surface.commands.session import Session
from whichgpu.surface.documents import document, error_body

COLUMNS = ("gpu_name", "needed", "usable", "fits", "headroom", "largest_batch", "largest_context")
VERDICTS = ("fits", "tight", "no")
MAX_TERMINAL_ROWS = 40  # Largest number of rows in a table of all GPUs on a terminal.
MAX_REMEDY_GPUS = 3  # Number of GPUs whose remedies are printed; JSON has those of all.


@command("fit", FitRequest, fit, chart="memory.memory_chart")
def show(session: Session, answer: FitAnswer) -> int:
    """Print verdicts by GPU, memory parts and remedies; exit code 1 if the model fits on none."""
    error = nothing_fits(answer) if all(row.fits == "no" for row in answer.gpus) else None
    if session.format == "json":
        failure = {"error": error_body(error, session.language)} if error else {}
        session.emit({"ok": error is None, **document(answer, session.language)} | failure)
    else:
        _show(session, answer, error)
    return error.exit_code if error else 0


def _show(session: Session, answer: FitAnswer, error: NoAnswer | None) -> None:
    if error:
        session.fail(error)
    else:
        session.say(sentence(answer))
    if session.show_files(answer.emitted):
        return
    gpus, left = _ordered(session, answer)
    rows = [fit_row(row) for row in gpus]
    usual = [name for name in COLUMNS if name != "largest_context" or any(row.largest_context is not None for row in answer.gpus)]
    session.show(answer, rows, usual)
    if session.format == "csv":
        return
    if left:
        session.say(msg("fit.limited", n=len(gpus), all=len(answer.gpus)))
    if any(row.largest_batch for row in gpus):
        session.say(msg("fit.largest"))
    _parts(session, answer)
    missing = [row for row in answer.gpus if row.remedies]
    for row in missing[-MAX_REMEDY_GPUS:] if answer.request["gpu"] else missing[-1:] if error else ():
        _remedies(session, row)
    # In a list of all GPUs, the warnings of all rows would be too many.
    named_gpus = answer.gpus if answer.request["gpu"] else ()
    for warning in dict.fromkeys([*answer.warnings, *(warning for row in named_gpus for warning in row.warnings)]):
        session.say(msg("fit.warning", what=warning))
    session.say(assumptions(answer.request))


def _ordered(session: Session, answer: FitAnswer) -> tuple[Sequence[FitRow], int]:
    """Return the rows with those that fit first, led by the smallest, and how many rows are left out on a terminal."""
    if answer.request["gpu"] or session.format == "csv":
        return answer.gpus, 0
    rows = sorted(answer.gpus, key=lambda row: (VERDICTS.index(row.fits), row.gpu != answer.smallest))
    first = rows[:MAX_TERMINAL_ROWS] if session.is_terminal_table else rows
    return first, len(rows) - len(first)


def fit_row(row: FitRow) -> dict[str, Any]:
    """Return a GPU's verdict as a row of a table."""
    return {name: getattr(row, name) for name in ("gpu", *COLUMNS)} | {"remedies": [remedy.id for remedy in row.remedies]}


def sentence(answer: FitAnswer) -> Message:
    """Return a message that says which of the named GPUs hold the model, or how many of all do."""
    need = _need(answer)
    verdicts = {word: [row.gpu_name for row in answer.gpus if row.fits == word] for word in VERDICTS}
    if not answer.request["gpu"]:
        count, all, tight = len(verdicts["fits"]), len(answer.gpus), len(verdicts["tight"])
        id = "fit.all-tight" if not answer.smallest_name else "fit.all" if tight else "fit.all-sure"
        return msg(id, what=_what(answer), need=need, n=count, all=all, smallest=answer.smallest_name or "", tight=tight)
    parts = tuple(msg(f"fit.{word}", gpus=_few(names)) for word, names in verdicts.items() if names)
    return msg("fit.named", what=_what(answer), need=need, verdicts=parts)


def nothing_fits(answer: FitAnswer) -> NoAnswer:
    """Return the error for a workload that fits on none of the GPUs, with remedies."""
    largest = max(answer.gpus, key=lambda row: row.usable, default=None)
    if largest is None:
        return NoAnswer("no-gpu", msg("error.no-gpu", n=0), msg("hint.loosen"))
    values = {"what": _what(answer), "need": _need(answer), "gpu": largest.gpu_name, "usable": format_memory(largest.usable)}
    cure = _cure(largest.remedies)
    hint = msg("hint.remedy" if len(cure) == 1 else "hint.remedies", what=cure) if cure else msg("hint.no-remedy")
    if len(answer.gpus) == 1:
        return NoAnswer("nothing-fits", msg("error.does-not-fit", **values), hint)
    return NoAnswer("nothing-fits", msg("error.nothing-fits", n=len(answer.gpus), **values), hint)


def _cure(remedies: Sequence[Remedy]) -> tuple[Message, ...]:
    """Return a message with the first remedy that suffices by itself, or with the first ones that suffice together."""
    for index, remedy in enumerate(remedies):
        if remedy.fits == "fits":
            return (remedy.what,)
        if remedy.together == "fits":
            return tuple(one.what for one in remedies[: index + 1])
    return ()


def _few(names: list[str], max_count: int = 6) -> Message | tuple[str, ...]:
    if len(names) <= max_count:
        return tuple(names)
    return msg("list.and-more", names=tuple(names[: max_count - 1]), n=len(names) - max_count + 1)


def _what(answer: FitAnswer) -> Message:
    """Return a message with model, task, precision, batch and sequence lengths."""
    request = answer.request
    micro = request.get("micro_batch")
    is_split = bool(micro) and (request.get("accumulation") or 1) > 1
    batch = msg("fit.what-micro-batch" if is_split else "fit.what-batch", batch=request["batch"], micro=micro)
    words: list[str | Message] = [request["task"], *_trained_weights(request), request["precision"], batch]
    reads = any(row.largest_context is not None for row in answer.gpus)
    lengths = [str(request[name]) for name in ("seq_in", "seq_out") if request[name] and reads]
    words += [msg("fit.what-tokens", lengths="+".join(lengths))] if lengths else []
    return msg("fit.what", model=model_label(request), words=tuple(words))


def _trained_weights(request: Mapping[str, Any]) -> tuple[Message, ...]:
    """Return which weights a fine-tuning trains: all, or adapters of a rank; nothing for other tasks."""
    if request["task"] != "finetune":
        return ()
    method = "qlora" if request.get("qlora") else "lora" if request.get("lora_rank") else "full"
    return (msg(f"fit.what-{method}", rank=request.get("lora_rank")),)


def _need(answer: FitAnswer) -> Message:
    sizes = {name: format_memory(int(getattr(answer.needed, name))) for name in ("value", "low", "high")}
    gpus = answer.request["gpus"]
    return msg("fit.need-each", n=gpus, **sizes) if gpus > 1 else msg("fit.need", **sizes)


def _parts(session: Session, answer: FitAnswer) -> None:
    """Print the memory of the workload by part: weights, KV cache, activations and so on."""
    total = answer.needed.value
    device = "device" if answer.memory_device.value <= total else "reserved"
    figures = {**answer.memory_parts, "allocated": answer.memory, device: answer.memory_device}
    rows = [
        (part_name(name, session.language), format_memory(int(figure.value)), f"{figure.value / total * 100:.0f}%")
        for name, figure in figures.items()
    ]
    _aside(session, [session.language.text(f"column.{name}") for name in ("part", "memory", "share")], rows)


def _remedies(session: Session, row: FitRow) -> None:
    text = session.language.text
    session.say(msg("fit.remedies", gpu=row.gpu_name))
    header = [text(f"column.{name}") for name in ("remedy", "saves", "alone", "together")]
    rows = [
        (
            session.language.render(remedy.what),
            format_memory(remedy.saves) if remedy.saves else "",
            text(f"verdict.{remedy.fits}"),
            text(f"verdict.{remedy.together}"),
        )
        for remedy in row.remedies
    ]
    _aside(session, header, rows)


def _aside(session: Session, header: Sequence[str], rows: Sequence[tuple[str, ...]]) -> None:
    """Print a second table on stdout; in formats for programs (CSV, TSV), print it as lines on stderr instead."""
    if session.format == "markdown" or session.format == "table" or (session.format is None and session.out.isatty()):
        session.out.write("\n")
        session.table(header, rows)
        return
    for row in (header, *rows):
        session.note("  " + "  ".join(session.language.localize(cell) or "–" for cell in row))
