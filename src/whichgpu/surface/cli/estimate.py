"""`whichgpu estimate`: one workload on one stated device group, or a file of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from whichgpu import api
from whichgpu.api.desk import Desk
from whichgpu.api.estimates import EstimateAnswer
from whichgpu.api.group_layouts import laid_out_best
from whichgpu.api.stream import Reply
from whichgpu.base.codec import to_json
from whichgpu.base.errors import UsageError
from whichgpu.base.figure import Figure
from whichgpu.base.messages import Message, msg
from whichgpu.base.units import format_memory, format_seconds, significant, with_unit
from whichgpu.surface.cli import serving
from whichgpu.surface.cli.frame import GPU, catalog_of, command, option
from whichgpu.surface.cli.many import answer_requests, reply_document
from whichgpu.surface.cli.session import Session
from whichgpu.surface.cli.workload import MODEL, Spelling, assumed, part_name, spelled, workload_options
from whichgpu.workload.spelling import Spelled
from whichgpu.workload.workload import TASKS, TRAINING

if TYPE_CHECKING:
    from whichgpu.api.runs import Run

TIMED = ("time", "time_device", "time_host", "throughput", "ttft")


@command("estimate", "[OPTIONS]", epilog=True)
@click.argument("task", type=Spelling("task", TASKS), required=False, metavar="TASK")
@click.argument("model", type=MODEL, required=False, metavar="MODEL")
@option("--gpu", type=GPU, metavar="NAME", help="option.estimate-gpu")
@option("--requests", metavar="FILE")
@option("--no-own-measurements", is_flag=True)
@option("--best-layout", is_flag=True, default=None, help="option.estimate-best-layout")
@serving.load_options
@workload_options
def estimate(
    session: Session,
    task: str | None,
    model: str | None,
    requests: str | None,
    no_own_measurements: bool,
    best_layout: bool | None,
    **flags: Any,
) -> EstimateAnswer | int:
    """Time and memory of one request; of a file of them, each told as it comes, and then the exit code."""
    if requests is not None:
        if task or model or best_layout or any(value is not None for value in flags.values()):
            raise UsageError("usage", msg("error.requests-alone"), msg("hint.requests-alone"))
        return answer_requests(session, requests, own=not no_own_measurements)
    for name, value in (("TASK", task), ("MODEL", model)):
        if value is None:
            hint = msg("hint.see-help", command="whichgpu estimate")
            raise UsageError("missing-argument", msg("error.missing-argument", name=name), hint)
    load = serving.taken(flags)
    if "plot" in load:
        from whichgpu.surface.charts import check_plot

        check_plot(load["plot"])
    desk = Desk(catalog_of(session), own=not no_own_measurements, as_of=session.as_of)
    asked = spelled({"task": task, "model": model, **flags})
    chosen = _laid_out(asked, desk, load) if best_layout else asked
    return _loaded(session, chosen, desk, load) if load or _rated(chosen) else api.estimate_spelled(chosen, desk)


def _laid_out(asked: Spelled, desk: Desk, load: dict[str, Any]) -> Spelled:
    """In the best layout: for a load where there is one, for a single step otherwise."""
    if asked.workload.task == "serve" and (_rated(asked) or "trace" in load):
        from whichgpu.api.serving_layouts import laid_out_for_load

        return laid_out_for_load(asked, desk, serving.asked(load))
    return laid_out_best(asked, desk)


def _rated(asked: Spelled) -> bool:
    return asked.workload.task == "serve" and asked.workload.rate is not None


def _loaded(session: Session, asked: Spelled, desk: Desk, load: dict[str, Any]) -> EstimateAnswer:
    """Under a load, with a bar while it is simulated, and its curve as a picture where one is wanted."""
    if asked.workload.task != "serve":
        flags = tuple("--" + name.replace("_", "-") for name in load)
        raise UsageError("usage", msg("error.load-not-served", flags=flags), msg("hint.no-rate"))
    with serving.progress(session) as progress:
        answer = api.serve_spelled(asked, desk, serving.asked(load), progress)
    if "plot" in load:
        from whichgpu.surface.charts import write_chart
        from whichgpu.surface.servingchart import curve_chart

        write_chart(curve_chart(answer, session.language), load["plot"])
    return answer


@estimate.shows
def show(session: Session, answer: EstimateAnswer | int) -> int:
    """How fast, how large, and every figure."""
    if isinstance(answer, int):
        return answer
    _show(session, answer)
    return 0


def _show(session: Session, answer: EstimateAnswer) -> None:
    if session.format == "json":
        session.out.write(to_json(reply_document(Reply(1, None, answer), session.language)))
        return
    if answer.fits == "no":
        session.say(_sentence(answer))
    if answer.serving and answer.serving.saturated:
        session.say(serving.overloaded(answer, answer.serving))
    if answer.time:
        session.say(_speed(answer) if answer.fits != "no" else msg("estimate.if-it-fitted", what=_speed(answer)))
    serving.tell(session, answer)
    if answer.run:
        session.say(_run(answer.run) if answer.fits != "no" else msg("estimate.run-if-it-fitted", what=_run(answer.run)))
    if answer.fits != "no":
        session.say(_sentence(answer))
    rows = _figures(answer)
    if session.format == "csv":
        session.table(["part", "value", "low", "high", "unit"], [(name, *_numbers(figure), figure.unit) for name, figure in rows])
        return
    text = session.language.text
    told = [(part_name(name, session.language), *_words(figure)) for name, figure in rows]
    session.table([text(f"column.{name}") for name in ("part", "value", "low", "high")], told)
    for warning in answer.warnings:
        session.say(msg("fit.warning", what=warning))
    if session.as_of is not None and answer.run is None:
        session.say(msg("fit.warning", what=msg("estimate.as-of-unused")))
    session.say(assumed(answer.request))
    if answer.tier:
        session.say(msg(f"estimate.tier-{answer.tier}", engine=str(answer.request["engine"])))


def _figures(answer: EstimateAnswer) -> list[tuple[str, Figure]]:
    """Every figure of the answer in the order it is shown."""
    first = serving.of_one_token(answer.serving)
    timed = ((name, getattr(answer, name)) for name in TIMED if not (first and name == "time"))
    shown = [(name, figure) for name, figure in timed if figure is not None]
    return [
        *shown,
        *serving.figures(answer),
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


def _speed(answer: EstimateAnswer) -> Message:
    """How fast, in a sentence: the step, what it gets done, what holds it back."""
    assert answer.time is not None
    assert answer.throughput is not None
    rate, time = answer.throughput, answer.time
    kind = "train" if answer.request["task"] in TRAINING else answer.request["task"]
    kind = "forward" if kind in ("serve", "batch") and "token" not in rate.unit else kind
    if rate.unit.startswith("denoising"):
        kind = next((one.id.removeprefix("note.") for one in answer.warnings if one.id.startswith("note.denoiser-")), kind)
    if serving.of_one_token(answer.serving) and answer.ttft is not None:
        kind, time = "first", answer.ttft
    return msg(
        f"estimate.time-{kind}",
        time=format_seconds(time.value),
        low=format_seconds(time.low),
        high=format_seconds(time.high),
        gpu=_devices(answer),
        rate=with_unit(rate.value, rate.unit),
        bound=msg(f"bound.{answer.bound}"),
        engine=str(answer.request["engine"]),
        date=answer.calibrated or "",
    )


def _run(run: Run) -> Message:
    """The whole run, and its cost where such GPUs are for rent."""
    from whichgpu.api.saying import long  # with all of `recommend`, which few estimates need

    time = run.time
    values: dict[str, Any] = {"amount": f"{run.amount:,.0f}", "unit": msg(f"unit.{run.unit}"), "time": long(time.value)}
    values |= {"low": long(time.low), "high": long(time.high)}
    if run.cost is None or run.offer is None:
        return msg("estimate.run", **values)
    offer = run.offer
    several = f"{offer.machines}x " if offer.machines > 1 else ""
    values |= {"machine": f"{offer.provider} {several}{offer.instance}", "day": offer.observed_at}
    values |= {"price": significant(float(offer.price.amount) * offer.machines), "cost": significant(float(run.cost.amount))}
    return msg("estimate.run-cost", currency=run.cost.currency, **values)


def _devices(answer: EstimateAnswer) -> Message | str:
    """The GPU's name; where there are several, how many and in which layout."""
    name, group = str(answer.request["gpu"]), answer.group
    return msg("estimate.devices", gpu=name, gpus=answer.request["gpus"], layout=group.layout) if group else name


def _sentence(answer: EstimateAnswer) -> Message:
    request = answer.request
    model = request["model"] if isinstance(request["model"], str) else request["model"].get("model_type", "config.json")
    memory = format_memory(int(answer.memory.value))
    values = {
        "task": request["task"],
        "model": model,
        "memory": msg("estimate.each", memory=memory, n=request["gpus"]) if request["gpus"] > 1 else memory,
        "device": format_memory(int(answer.memory_device.value)),
    }
    if answer.fits is None or answer.usable is None:
        return msg("estimate.memory", **values)
    where = {"gpu": request["gpu"], "usable": format_memory(answer.usable), "date": answer.checked or ""}
    return msg(f"estimate.memory-{answer.fits}", **values, **where)
