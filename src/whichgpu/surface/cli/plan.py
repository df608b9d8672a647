"""`whichgpu plan`: the fleet in a sentence, its groups in a table, the bill, what breaks first, how to start it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from whichgpu.api.planfile import (
    LISTED,
    WISHES,
    model_asked,
    owned_text,
    quotas_text,
    read_flag,
    read_plan,
)
from whichgpu.api.planrequest import ModelAsked, OwnedAsked, PlanRequest
from whichgpu.api.shopping import Query
from whichgpu.base.codec import to_json
from whichgpu.base.errors import NoAnswer, UsageError
from whichgpu.base.figure import Figure
from whichgpu.base.messages import msg
from whichgpu.base.units import significant
from whichgpu.catalog.engine_registry import default_engine
from whichgpu.catalog.offer import TERMS
from whichgpu.decide.plan.answer import GroupRow, PlanAnswer
from whichgpu.decide.plan.hints import exported, tools
from whichgpu.decide.relax import up
from whichgpu.surface.cli.frame import GPU, INSTANCE, SELLER, Parsed, Words, catalog_of, command, option
from whichgpu.surface.cli.planlines import lines
from whichgpu.surface.cli.session import Session
from whichgpu.surface.cli.settings import user_path
from whichgpu.surface.cli.sources import say_sources
from whichgpu.surface.cli.workload import MODEL
from whichgpu.surface.replies import document, error_body

HEADS = ("group", "serves", "machines", "seen", "layout", "use", "cost")
SOURCES = 6
GOALS = ("ttft", "tpot", "latency")
STAGES = {
    "reading": (0.0, 0.05),
    "estimates": (0.05, 0.05),
    "solving": (0.1, 0.4),
    "simulating": (0.5, 0.2),
    "telling": (0.7, 0.2),
    "roles": (0.9, 0.1),
}
SERVING = ("rate", "seq_in", "seq_out", "ttft_max", "tpot_max", "percentile", "engine", "precision", "kv_precision", "year")
SHORT = {"seq_in": "--in", "seq_out": "--out", "ttft_max": "--ttft", "tpot_max": "--tpot"}
METAVARS = {
    "rate": "N/s",
    "seq_in": "N",
    "seq_out": "N",
    "ttft_max": "TIME",
    "tpot_max": "TIME",
    "percentile": "N",
    "year": "YEAR",
}
OWN = {
    "horizon": "TIME",
    "headroom": "SHARE",
    "slices": "N",
    "levels": "N",
    "current": "GPUS",
    "change_cost": "MONEY",
    "spot_share": "SHARE",
    "tolerance": "SHARE",
    "time_limit": "TIME",
    "seed": "N",
}
TRAFFIC = {
    "trace": "FILE",
    "hourly": "N,N,…",
    "in_spread": "N",
    "out_spread": "N",
    "in_histogram": "TOKENS:WEIGHT,…",
    "out_histogram": "TOKENS:WEIGHT,…",
    "latency": "TIME",
}
NAMED = {"gpu": GPU, "instance": INSTANCE, "provider": SELLER, "term": Words("term", TERMS, many=True)}
WISH_HELP = {
    "gpu": "option.recommend-gpu",
    "instance": "option.instance-names",
    "region": "option.region-names",
    "min_memory": "option.min-memory-gpu",
    "max_age": "option.recommend-max-age",
}


def _options(function: Any) -> Any:
    """Flags of a model's serving, of its traffic, of the plan, and of the offers looked at."""
    for name in reversed(WISHES):
        dashed = name.replace("_", "-")
        help = WISH_HELP.get(name, f"option.{dashed}")
        function = option(f"--{dashed}", type=NAMED.get(name, str), metavar="NAMES" if name in LISTED else "VALUE", help=help)(
            function
        )
    for name, metavar in reversed(OWN.items()):
        dashed = name.replace("_", "-")
        function = option(f"--{dashed}", metavar=metavar, help=f"option.plan-{dashed}")(function)
    for name, metavar in reversed(TRAFFIC.items()):
        dashed = name.replace("_", "-")
        function = option(f"--{dashed}", metavar=metavar, help=f"option.plan-{dashed}")(function)
    for name in reversed(SERVING):
        dashed = f"--{name.replace('_', '-')}"
        short = [SHORT[name]] if name in SHORT else []
        help = f"option.workload-{name.replace('_', '-')}"
        function = option(dashed, *short, name, metavar=METAVARS.get(name, "NAME"), help=help)(function)
    return function


@command("plan", "[OPTIONS]", epilog=True)
@click.argument("what", type=MODEL, nargs=-1, metavar="[FILE.toml | MODEL…]")
@_options
@option("--owned", metavar="GPUS")
@option("--only-owned", is_flag=True, help="option.plan-only-owned")
@option("--quota", metavar="GPU=N,…", help="option.plan-quota")
@option("--profiles", metavar="FILE", help="option.plan-profiles")
@option("--simulate/--no-simulate", "simulate", default=None, help="option.plan-simulate")
@option("--curve/--no-curve", "curve", default=None, help="option.plan-curve")
@option("--sweep", metavar="NAME=VALUES", help="option.plan-sweep")
@option("--roles", is_flag=True, default=None, help="option.plan-roles")
@option("--policies", is_flag=True, default=None, help="option.plan-policies")
@option("--jobs", "workers", metavar="N", help="option.plan-jobs")
@option("--ray", metavar="ADDRESS", help="option.plan-ray")
@option("--hints", type=Words("tool", tools), metavar="TOOL", help="option.plan-hints")
@option("--export", metavar="DIR", help="option.plan-export")
@option("--plot", metavar="FILE", help="option.plan-plot")
@option("--prices", "--overlay", "overlay", type=Parsed("path", user_path), metavar="FILE")
@option("--no-own-measurements", is_flag=True)
def plan(
    session: Session,
    what: tuple[str, ...],
    overlay: Path | None,
    hints: str | None,
    export: str | None,
    plot: str | None,
    no_own_measurements: bool,
    **flags: Any,
) -> PlanAnswer:
    """Plan a fleet."""
    from whichgpu.api.planning import plan as planned

    if plot is not None:
        from whichgpu.surface.charts import check_plot

        check_plot(plot)
    request = request_of(what, flags)
    with progress(session) as told:
        answer = planned(request, session.as_of, catalog_of(session), overlay, not no_own_measurements, told)
    if plot is not None:
        from whichgpu.surface.charts import write_chart
        from whichgpu.surface.planchart import plan_chart

        write_chart(plan_chart(answer, session.language), plot)
    if export is not None:
        _export(session, answer, hints or default_engine("serve"), export)
    return answer


def request_of(what: tuple[str, ...], flags: dict[str, Any]) -> PlanRequest:
    """The plan a command line asks for: a file, or models that share the flags' traffic."""
    given = {
        name: value
        for name, value in flags.items()
        if (value is not None and value is not False) or name in ("simulate", "curve")
    }
    given = {name: value for name, value in given.items() if value is not None}
    files = [word for word in what if word.endswith(".toml")]
    if files:
        if len(what) > 1:
            raise UsageError("bad-plan", msg("error.plan-file-alone", name=files[0]), msg("hint.plan"))
        return _over(read_plan(user_path(files[0])), given)
    serving = {name: given[name] for name in SERVING if name in given}
    traffic = {name: given[name] for name in TRAFFIC if name in given}
    profiled = "profiles" in given
    models: tuple[ModelAsked, ...] = tuple(model_asked({"name": word, **serving, **traffic}, "plan") for word in what)
    if profiled and what:
        raise UsageError("bad-plan", msg("error.plan-file-alone", name="--profiles"), msg("hint.plan"))
    return _over(PlanRequest(models=models), given)


def _over(request: PlanRequest, given: dict[str, Any]) -> PlanRequest:
    """With the plan's own flags over what a file says."""
    from dataclasses import replace

    changes: dict[str, Any] = {name: read_flag(name, given[name]) for name in OWN if name in given}
    changes |= {name: read_flag(name, given[name]) for name in ("sweep", "workers", "ray") if name in given}
    changes |= {name: given[name] for name in ("only_owned", "simulate", "curve", "roles", "policies") if name in given}
    if "owned" in given:
        owned: tuple[OwnedAsked, ...] = owned_text(given["owned"])
        changes["owned"] = owned
    if "quota" in given:
        changes["quotas"] = quotas_text(given["quota"])
    if "profiles" in given:
        changes["profiles"] = user_path(given["profiles"])
        if "rate" in given:
            changes["rate"] = read_flag("rate", given["rate"])
    wishes = {name: given[name] for name in WISHES if name in given}
    if wishes:
        changes["query"] = replace(request.query, **wishes) if request.query != Query() else Query(**wishes)
    return replace(request, **changes)


@plan.shows
def show(session: Session, answer: PlanAnswer) -> int:
    """The answer in the form in force; exit 1 where its own simulation says that no fleet keeps the objectives."""
    error = missing(answer)
    if session.format == "json":
        told = document(answer, session.language)
        failed = {"ok": False, "error": error_body(error, session.language)} if error else {}
        session.out.write(to_json({**failed, **told}))
    else:
        if error:
            session.fail(error)
        _show(session, answer)
    return error.exit_code if error else 0


def missing(answer: PlanAnswer) -> NoAnswer | None:
    """Why the plan is no answer, where its simulation misses the objectives."""
    late = [one for one in answer.simulation if not one.holds]
    if not late:
        return None
    kept = tuple(
        msg("plan.keeps", model=one.model, percentile=f"{one.percentile:g}", **{n: _limit(getattr(one, n)) for n in GOALS})
        for one in late
        if math.isfinite(one.latency.value)
    )
    hint = msg("hint.plan-misses", kept=kept) if len(kept) == len(late) else msg("hint.plan-misses-lost")
    return NoAnswer("plan-misses", msg("error.plan-misses", models=tuple(one.model for one in late)), hint)


def _limit(figure: Figure) -> str:
    """As a flag takes it, rounded up: what is asked for is no less than what was seen."""
    return f"{up(figure.value * 1000)}ms"


def _show(session: Session, answer: PlanAnswer) -> None:
    hints = session.asked.get("hints") if session.asked.get("export") is None else None
    if session.format == "csv" or session.columns:
        session.show(answer, [document(row, session.language) for row in answer.groups], (), answer.sentence)
        return
    if hints is not None:
        for name, content in exported(hints, answer.hints).items():
            session.note(f"# {name}")
            session.out.write(content)
        return
    session.say(answer.sentence)
    text = session.language.text
    session.table([text(f"plan.column-{name}") for name in HEADS], [_cells(session, row, answer) for row in answer.groups])
    for line in lines(answer):
        session.say(line)
    say_sources(session, answer.sources, SOURCES)
    if answer.verify:
        session.say(msg("recommend.verify", command=answer.verify))
    if answer.verify_note is not None:
        session.say(msg("recommend.lacks", what=answer.verify_note))
    session.say(msg("recommend.reproduce", command=answer.reproduce))


def _cells(session: Session, row: GroupRow, answer: PlanAnswer) -> list[str]:
    text = session.language.text
    shares = [f"{one.bucket} {one.share:.0%}" for one in sorted(row.serves, key=lambda one: -one.rate)[:3]]
    what = f"{row.model}: {significant(row.rate)}/s" if row.model else f"{significant(row.rate)}/s"
    if len(answer.groups) > 1 and shares:
        what += f" ({'; '.join(shares)}{'; …' if len(row.serves) > 3 else ''})"
    machine = f"{row.provider} {row.instance}".strip()
    term = text(f"term.{row.term}")
    where = session.language.listed(part for part in (row.region, term) if part)
    layout = text("plan.layout", copies=row.copies, tp=row.gpus_per_copy, batch=row.batch) if row.batch else ""
    count = f"{row.machines}x {machine} ({where})" if machine and row.machines else where
    if row.machines * row.gpus_per_machine > row.gpus:
        count = text("plan.part-of-machines", n=row.gpus, all=row.machines * row.gpus_per_machine, machines=count)
    return [
        f"{row.gpus}x {row.gpu_name}",
        what,
        count,
        row.price_observed_at,
        layout,
        f"{row.utilisation:.0%}",
        f"{significant(float(row.cost_per_hour.amount))} {row.cost_per_hour.currency}/h",
    ]


def _export(session: Session, answer: PlanAnswer, tool: str, folder: str) -> None:
    """Files of deployment hints, and the plan itself as JSON beside them."""
    target = user_path(folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
        for name, text in exported(tool, answer.hints).items():
            (target / name).write_text(text, encoding="utf-8")
        (target / "plan.json").write_text(to_json(document(answer, session.language)), encoding="utf-8")
    except OSError as problem:
        message = msg("error.cannot-write-file", name=folder, why=problem.strerror or str(problem))
        raise UsageError("cannot-write-file", message, msg("hint.cannot-write-file")) from problem
    session.say(msg("plan.exported", n=len(answer.hints), folder=folder))


@contextmanager
def progress(session: Session) -> Iterator[Callable[[str, float], None] | None]:
    """What is being done, on a terminal's stderr; None where nobody would see it."""
    if session.progress is not None:
        follow = session.progress
        yield lambda stage, done: follow(STAGES[stage][0] + STAGES[stage][1] * done)
        return
    if session.format == "json" or not session.err.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    console = Console(file=session.err, emoji=False, highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        shown: list[str] = []
        task = bar.add_task("", total=1.0)

        def heard(stage: str, done: float) -> None:
            if shown != [stage]:  # what is left is of this stage, by how fast it goes
                shown[:] = [stage]
                bar.reset(task, total=1.0, description=session.language.text(f"plan.progress-{stage}"))
            bar.update(task, completed=done)

        yield heard
