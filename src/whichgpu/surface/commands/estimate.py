"""`whichgpu estimate`: speed and memory of one workload on one group of GPUs, or of a file of workloads."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING, Any

from whichgpu.api.request.load import EstimateRequest
from whichgpu.api.workloads import estimate_verb as verbs
from whichgpu.api.workloads.estimate import EstimateAnswer
from whichgpu.api.workloads.stream import Reply
from whichgpu.base.errors import NoAnswer, UsageError
from whichgpu.base.figure import Figure
from whichgpu.base.messages import Message, msg
from whichgpu.base.units import format_duration, format_memory, format_seconds, significant, with_unit
from whichgpu.surface.commands.command import Request, command
from whichgpu.surface.commands.render import serving
from whichgpu.surface.commands.render.evidence import say_evidence
from whichgpu.surface.commands.render.progress import progress
from whichgpu.surface.commands.render.workload import assumptions, model_label, part_name
from whichgpu.surface.commands.request_lines import answer_requests, reply_document
from whichgpu.surface.commands.session import Session
from whichgpu.workload.tasks import TASK_OF_WORD, TASK_TRAITS

if TYPE_CHECKING:
    from whichgpu.api.workloads.runs import Run

START_FIGURES = ("kv_tokens", "startup")  # figures of an engine that sizes its KV cache at start
TIME_FIGURES = ("time", "time_device", "time_host", "throughput", "ttft")


def estimate(session: Session, request: Request) -> EstimateAnswer | int:
    """Return the estimate of one request; a file of requests is answered line by line, and the exit code is returned."""
    if "requests" in request:
        if request.keys() - {"requests", "no_own_measurements", "evidence"}:
            raise UsageError("usage", msg("error.requests-alone"), msg("hint.requests-alone"))
        return answer_requests(session, str(request["requests"]), own=not request.get("no_own_measurements"))
    for name in ("task", "model"):
        if name not in request:
            hint = msg("hint.see-help", command="whichgpu estimate")
            if "task" in request and request["task"] not in (*TASK_TRAITS, *TASK_OF_WORD):  # The one word is a model.
                hint = msg("hint.try", command=f"whichgpu estimate serve {quote(str(request['task']))} --gpu h100-sxm")
            raise UsageError("missing-argument", msg("error.missing-argument", name=name.upper()), hint)
    with progress(session, {"simulating": (0.0, 1.0)}, lambda _, language: language.text("serving.progress")) as follow:
        return verbs.estimate(request, session.context(follow))  # type: ignore[arg-type]


@command("estimate", EstimateRequest, ask=estimate, chart="serving.curve_chart")
def show(session: Session, answer: EstimateAnswer | int) -> int:
    """Print an estimate: speed, memory and every figure with its range. A number is the exit code of answered request lines."""
    if isinstance(answer, int):
        return answer
    if session.format == "json":
        session.emit(reply_document(Reply(1, None, answer), session.language))
        return 0
    _say(session, answer)
    if session.show_files(answer.emitted):
        return 0
    if (target := session.request.get("emit")) and not answer.emitted:
        return session.fail(NoAnswer("emit-no-fit", msg("error.emit-no-fit", target=target), msg("hint.emit-no-fit")))
    _show(session, answer)
    return 0


def _say(session: Session, answer: EstimateAnswer) -> None:
    """Print speed, load, run and memory in sentences."""
    if answer.fits == "no":
        session.say(_sentence(answer))
    if answer.serving and answer.serving.saturated:
        session.say(serving.overload(answer, answer.serving))
    if answer.time:
        session.say(speed(answer) if answer.fits != "no" else msg("estimate.if-it-fitted", what=speed(answer)))
    serving.say_load(session, answer)
    if answer.run:
        session.say(_run(answer.run) if answer.fits != "no" else msg("estimate.run-if-it-fitted", what=_run(answer.run)))
    if answer.fits != "no":
        session.say(_sentence(answer))


def _show(session: Session, answer: EstimateAnswer) -> None:
    """Print every figure with its range, warnings, assumptions and evidence."""
    rows = _figures(answer)
    if session.format == "csv":
        session.table(["part", "value", "low", "high", "unit"], [(name, *_numbers(figure), figure.unit) for name, figure in rows])
        return
    text = session.language.text
    cells = [(part_name(name, session.language), *_words(figure)) for name, figure in rows]
    session.table([text(f"column.{name}") for name in ("part", "value", "low", "high")], cells)
    for warning in answer.warnings:
        session.say(msg("fit.warning", what=warning))
    if session.request and answer.request["gpu"] is None:  # A report or a notebook has no command line to complete.
        task, model = answer.request["task"], model_label(answer.request)
        session.say(msg("fit.warning", what=msg("estimate.no-gpu", task=task, model=model)))
    if session.as_of is not None and answer.run is None:
        session.say(msg("fit.warning", what=msg("estimate.as-of-unused")))
    session.say(assumptions(answer.request))
    if answer.tier:
        axes = [msg(f"axis.{axis}") for axis in answer.new_on]
        session.say(msg(f"estimate.tier-{answer.tier}", engine=str(answer.request["engine"]), axes=axes))
    if session.request.get("evidence") and answer.time:
        say_evidence(session, answer.evidence, answer.evidence_error)


def _figures(answer: EstimateAnswer) -> list[tuple[str, Figure]]:
    """Return the figures of an estimate (times, throughput, memory) with their names, in display order."""
    first = serving.has_single_token_answers(answer.serving)
    timed = ((name, getattr(answer, name)) for name in TIME_FIGURES if not (first and name == "time"))
    figures = [(name, figure) for name, figure in timed if figure is not None]
    return [
        *figures,
        *serving.figures(answer),
        *((name, figure) for name in START_FIGURES if (figure := getattr(answer, name)) is not None),
        *answer.memory_parts.items(),
        ("allocated", answer.memory),
        ("device", answer.memory_device),
    ]


def _numbers(figure: Figure) -> tuple[float, ...]:
    numbers = (figure.value, figure.low, figure.high)
    return tuple(round(number) for number in numbers) if figure.unit == "byte" else numbers


def _words(figure: Figure) -> tuple[str, ...]:
    if figure.unit == "byte":
        return tuple(format_memory(int(number)) for number in _numbers(figure))
    if figure.unit == "s":
        return tuple(format_seconds(number) for number in _numbers(figure))
    return tuple(with_unit(number, figure.unit) for number in _numbers(figure))


def speed(answer: EstimateAnswer) -> Message:
    """Return a sentence with the time of a step, throughput, and what bounds it (memory, compute or launches)."""
    assert answer.time is not None
    assert answer.throughput is not None
    rate, time = answer.throughput, answer.time
    traits = TASK_TRAITS[answer.request["task"]]
    kind: str = answer.request["task"] if traits.generating and "token" in rate.unit else traits.step
    if rate.unit.startswith("denoising"):
        kind = next((one.id.removeprefix("note.") for one in answer.warnings if one.id.startswith("note.denoiser-")), kind)
    if rate.unit.startswith(("picture", "video")):
        plural = rate.unit.removesuffix("/s")
        kind = plural.removesuffix("s") if answer.request["batch"] == 1 else plural
    if serving.has_single_token_answers(answer.serving) and answer.ttft is not None:
        kind, time = "first", answer.ttft
    return msg(
        f"estimate.time-{kind}",
        time=format_seconds(time.value),
        low=format_seconds(time.low),
        high=format_seconds(time.high),
        gpu=_devices(answer),
        batch=answer.request["batch"] or 1,
        rate=with_unit(rate.value, rate.unit),
        bound=msg(f"bound.{answer.bound}"),
        engine=str(answer.request["engine"]),
        date=answer.calibrated or "",
    )


def _run(run: Run) -> Message:
    """Return a message with the time of the whole run, and its cost if such GPUs can be rented."""
    time = run.time
    values: dict[str, Any] = {"amount": f"{run.amount:,.0f}", "unit": msg(f"unit.{run.unit}")}
    values |= {"time": format_duration(time.value), "low": format_duration(time.low), "high": format_duration(time.high)}
    if run.cost is None or run.offer is None:
        return msg("estimate.run", **values)
    offer = run.offer
    several = f"{offer.machines}x " if offer.machines > 1 else ""
    values |= {"machine": f"{offer.provider} {several}{offer.instance}", "day": offer.observed_at}
    values |= {"price": significant(float(offer.price.amount) * offer.machines), "cost": significant(float(run.cost.amount))}
    return msg("estimate.run-cost", currency=run.cost.currency, **values)


def _devices(answer: EstimateAnswer) -> Message | str:
    """Return the name of an estimate's GPU; for several GPUs, with their count and layout."""
    name, group = str(answer.request["gpu"]), answer.group
    return msg("estimate.devices", gpu=name, gpus=answer.request["gpus"], layout=group.layout) if group else name


def _sentence(answer: EstimateAnswer) -> Message:
    request = answer.request
    memory = format_memory(int(answer.memory.value))
    values = {
        "task": request["task"],
        "model": model_label(request),
        "memory": msg("estimate.each", memory=memory, n=request["gpus"]) if request["gpus"] > 1 else memory,
        "device": format_memory(int(answer.memory_device.value)),
    }
    if answer.fits is None or answer.usable is None:
        return msg("estimate.memory", **values)
    where = {"gpu": request["gpu"], "usable": format_memory(answer.usable), "date": answer.checked or ""}
    if answer.fits == "fits" and answer.memory_device.value > answer.usable:  # CUDA graphs lie beside the engine's share.
        return msg("estimate.memory-fits-share", engine=request["engine"], **values, **where)
    return msg(f"estimate.memory-{answer.fits}", **values, **where)
