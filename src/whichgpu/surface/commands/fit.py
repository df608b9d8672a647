"""`whichgpu fit`: does it fit, what takes the space, what to do if not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from whichgpu.api.request.load import FitRequest
from whichgpu.api.workloads import fit as verbs
from whichgpu.api.workloads.fit import FitAnswer, FitRow
from whichgpu.base.errors import NoAnswer
from whichgpu.base.messages import Message, msg
from whichgpu.base.units import format_memory
from whichgpu.estimate.remedies import Remedy
from whichgpu.surface.commands.command import Request, command
from whichgpu.surface.commands.render.plot_file import check_plot, plot_path
from whichgpu.surface.commands.render.workload import assumed, part_name
from whichgpu.surface.commands.session import Session
from whichgpu.surface.documents import document, error_body

USUAL = ("gpu_name", "needed", "usable", "fits", "headroom", "largest_batch", "largest_context")
VERDICTS = ("fits", "tight", "no")
ROWS = 40  # of a table of all GPUs on a terminal
SHOWN_REMEDIES = 3  # GPUs whose remedies are written out; JSON has all


@command("fit", FitRequest, has_examples=True)
def fit(session: Session, request: Request) -> FitAnswer:
    """What it needs, and which GPUs have it."""
    check_plot(request)
    answer = verbs.fit(request, session.context())  # type: ignore[arg-type]
    if path := plot_path(request):
        from whichgpu.surface.charts.vega import memory_chart, write_chart

        write_chart(memory_chart(answer, session.language), path)
    return answer


@fit.shows
def show(session: Session, answer: FitAnswer) -> int:
    """Verdicts by GPU, then the parts, then remedies; exit 1 where nothing fits."""
    error = _refusal(answer) if all(row.fits == "no" for row in answer.gpus) else None
    if session.format == "json":
        reply = document(answer, session.language)
        told = {"ok": error is None, **reply} | ({"error": error_body(error, session.language)} if error else {})
        session.emit(told)
    else:
        _show(session, answer, error)
    return error.exit_code if error else 0


def _show(session: Session, answer: FitAnswer, error: NoAnswer | None) -> None:
    if error:
        session.fail(error)
    else:
        session.say(sentence(answer))
    gpus, left = _ordered(session, answer)
    rows = [_row(row) for row in gpus]
    usual = [name for name in USUAL if name != "largest_context" or any(row.largest_context is not None for row in answer.gpus)]
    session.show(answer, rows, usual)
    if session.format == "csv":
        return
    if left:
        session.say(msg("fit.limited", n=len(gpus), all=len(answer.gpus)))
    if any(row.largest_batch for row in gpus):
        session.say(msg("fit.largest"))
    _parts(session, answer)
    missing = [row for row in answer.gpus if row.remedies]
    for row in missing[-SHOWN_REMEDIES:] if answer.request["gpu"] else missing[-1:] if error else ():
        _remedies(session, row)
    for warning in dict.fromkeys([*answer.warnings, *(told for row in answer.gpus for told in _warnings(answer, row))]):
        session.say(msg("fit.warning", what=warning))
    session.say(assumed(answer.request))


def _ordered(session: Session, answer: FitAnswer) -> tuple[Sequence[FitRow], int]:
    """Rows as people read them, what fits first and on a terminal no more than they can; how many are left out."""
    if answer.request["gpu"] or session.format == "csv":
        return answer.gpus, 0
    rows = sorted(answer.gpus, key=lambda row: VERDICTS.index(row.fits))
    shown = rows[:ROWS] if session.for_eyes else rows
    return shown, len(rows) - len(shown)


def _warnings(answer: FitAnswer, row: FitRow) -> tuple[Message, ...]:
    """Of GPUs that were named; a list of all would drown in them."""
    return row.warnings if answer.request["gpu"] else ()


def _row(row: FitRow) -> dict[str, Any]:
    told = {"gpu": row.gpu, "gpu_name": row.gpu_name, "needed": row.needed, "usable": row.usable}
    sizes = {
        "fits": row.fits,
        "headroom": row.headroom,
        "largest_batch": row.largest_batch,
        "largest_context": row.largest_context,
    }
    return told | sizes | {"remedies": [remedy.id for remedy in row.remedies]}


def sentence(answer: FitAnswer) -> Message:
    """The answer in a line: which of the GPUs asked for hold it, or how many of all."""
    need = _need(answer)
    verdicts = {word: [row.gpu_name for row in answer.gpus if row.fits == word] for word in VERDICTS}
    if not answer.request["gpu"]:
        count, all, tight = len(verdicts["fits"]), len(answer.gpus), len(verdicts["tight"])
        id = "fit.all-tight" if not answer.smallest_name else "fit.all" if tight else "fit.all-sure"
        return msg(id, what=_what(answer), need=need, n=count, all=all, smallest=answer.smallest_name or "", tight=tight)
    parts = tuple(msg(f"fit.{word}", gpus=_few(names)) for word, names in verdicts.items() if names)
    return msg("fit.named", what=_what(answer), need=need, verdicts=parts)


def _refusal(answer: FitAnswer) -> NoAnswer:
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
    """The least painful way out: the first remedies that do it together, or the first that does it alone."""
    for index, remedy in enumerate(remedies):
        if remedy.fits == "fits":
            return (remedy.what,)
        if remedy.together == "fits":
            return tuple(each.what for each in remedies[: index + 1])
    return ()


def _few(names: list[str], most: int = 6) -> Message | tuple[str, ...]:
    if len(names) <= most:
        return tuple(names)
    return msg("list.and-more", names=tuple(names[: most - 1]), n=len(names) - most + 1)


def _what(answer: FitAnswer) -> Message:
    """The model and the choices that matter most."""
    request = answer.request
    model = request["model"] if isinstance(request["model"], str) else request["model"].get("model_type", "config.json")
    words: list[str | Message] = [request["task"], request["precision"], msg("fit.what-batch", batch=request["batch"])]
    reads = any(row.largest_context is not None for row in answer.gpus)
    lengths = [str(request[name]) for name in ("seq_in", "seq_out") if request[name] and reads]
    words += [msg("fit.what-tokens", lengths="+".join(lengths))] if lengths else []
    return msg("fit.what", model=model, words=tuple(words))


def _need(answer: FitAnswer) -> Message:
    told = {name: format_memory(int(getattr(answer.needed, name))) for name in ("value", "low", "high")}
    gpus = answer.request["gpus"]
    return msg("fit.need-each", n=gpus, **told) if gpus > 1 else msg("fit.need", **told)


def _parts(session: Session, answer: FitAnswer) -> None:
    """The breakdown: a table where people read, lines on stderr where a program reads the table before."""
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
    """A second table: beside the first for readers, as words on stderr where stdout is one table for a program."""
    if session.format == "markdown" or session.format == "table" or (session.format is None and session.out.isatty()):
        session.out.write("\n")
        session.table(header, rows)
        return
    for row in (header, *rows):
        session.note("  " + "  ".join(session.language.localize(cell) or "–" for cell in row))
