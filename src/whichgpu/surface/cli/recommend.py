"""`whichgpu recommend`: the answer in a sentence, the runners-up in a table, the reasons, the assumptions, the sources."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import click

from whichgpu import api
from whichgpu.api.desk import Desk
from whichgpu.api.recommending import ANY_MODEL, RecommendAnswer
from whichgpu.api.shopping import Query
from whichgpu.base.codec import to_json
from whichgpu.base.messages import Message, msg
from whichgpu.base.units import format_seconds, significant
from whichgpu.catalog.offer import TERMS
from whichgpu.catalog.select import parse_span
from whichgpu.decide.answer import Candidate
from whichgpu.decide.wishes import RANKS
from whichgpu.surface.cli.frame import GPU, INSTANCE, SELLER, Parsed, Words, catalog_of, command, option
from whichgpu.surface.cli.session import Session
from whichgpu.surface.cli.settings import user_path
from whichgpu.surface.cli.sources import say_sources
from whichgpu.surface.cli.workload import MODEL, Spelling, spelled, workload_options
from whichgpu.surface.replies import document

TASKS = ("train", "finetune", "serve", "batch")
SOURCES = 6
WISHES = (
    option("--gpu", type=GPU, metavar="NAMES", help="option.recommend-gpu"),
    option("--instance", type=INSTANCE, metavar="NAMES", help="option.instance-names"),
    option("--gpus", type=Parsed("span", parse_span), metavar="N[..M]", help="option.recommend-gpus"),
    option("--provider", type=SELLER, metavar="NAMES"),
    option("--region", metavar="NAMES", help="option.region-names"),
    option("--near", metavar="CITY"),
    option("--max-latency", metavar="TIME"),
    option("--term", type=Words("term", TERMS, many=True), metavar="TERMS"),
    option("--needs", metavar="FEATURES"),
    option("--min-memory", metavar="SIZE", help="option.min-memory-gpu"),
    option("--budget", metavar="MONEY"),
    option("--deadline", metavar="TIME"),
    option("--rank", type=Words("rank", RANKS), metavar="ORDER"),
    option("--currency", metavar="CODE"),
    option("--exchange-rate", metavar="CODE=RATE"),
    option("--owned", metavar="GPUS"),
    option("--buy", is_flag=True),
    option("--price", metavar="GPU=MONEY", help="option.card-price"),
    option("--duration", metavar="TIME"),
    option("--startup", metavar="TIME"),
    option("--checkpoint-every", metavar="TIME"),
    option("--interruptions", metavar="N/h"),
    option("--idle", type=float, metavar="SHARE"),
    option("--disk", metavar="SIZE"),
    option("--egress", metavar="SIZE"),
    option("--power-price", metavar="MONEY"),
    option("--why-not", type=GPU, metavar="GPU"),
    option("--limit", type=int, metavar="N"),
)


def wishes(function: Any) -> Any:
    """Add a flag for every wish."""
    for decorate in reversed(WISHES):
        function = decorate(function)
    return function


@command("recommend", "[OPTIONS]", epilog=True)
@click.argument("task", type=Spelling("task", TASKS), metavar="TASK")
@click.argument("model", type=MODEL, required=False, metavar="MODEL")
@wishes
@option("--prices", "--overlay", "overlay", type=Parsed("path", user_path), metavar="FILE")
@option("--plot", metavar="FILE")
@option("--no-own-measurements", is_flag=True)
@lambda function: workload_options(function, without=("gpus",))
def recommend(
    session: Session,
    task: str,
    model: str | None,
    overlay: Path | None,
    plot: str | None,
    no_own_measurements: bool,
    **flags: Any,
) -> int:
    """Say which GPU."""
    names = Query.__dataclass_fields__
    asked = {name: value for name, value in flags.items() if name in names and value is not None}
    work = {name: value for name, value in flags.items() if name not in names}
    desk = Desk(catalog_of(session), own=not no_own_measurements)
    read = spelled({"task": task, "model": model or ANY_MODEL.name, **work})
    answer = api.recommend_spelled(read, Query(**asked), session.as_of, desk, overlay, model is not None)
    if plot is not None:
        from whichgpu.surface.charts import check_plot, write_chart
        from whichgpu.surface.frontchart import front_chart

        check_plot(plot)
        write_chart(front_chart(answer, session.language), plot)
    _show(session, answer)
    return 0


def _show(session: Session, answer: RecommendAnswer) -> None:
    if session.format == "json":
        session.out.write(to_json(document(answer, session.language)))
        return
    if session.format == "csv" or session.columns:
        session.show(answer, [document(one, session.language) for one in answer.candidates], (), answer.sentence)
        return
    session.say(answer.sentence)
    text = session.language.text
    heads = ("gpus", "machine", "term", "time", "speed", "cost")
    session.table([text(f"recommend.column-{name}") for name in heads], [_cells(session, one) for one in answer.candidates])
    for line in _lines(answer):
        session.say(line)
    say_sources(session, answer.sources, SOURCES)
    session.say(msg("recommend.verify", command=answer.verify))
    session.say(msg("recommend.reproduce", command=answer.reproduce.command))


def _lines(answer: RecommendAnswer) -> list[Message]:
    """Everything under the table, in the order it is read."""
    said = [msg("recommend.because", what=one) for one in answer.answer.because]
    said.append(msg("recommend.front", cheapest=_short(answer.cheapest), fastest=_short(answer.fastest)))
    said += [one for lines in answer.why_not.values() for one in lines]
    said += [msg("recommend.lacks", what=one) for one in (*answer.lacks, *answer.warnings)]
    said += [msg("recommend.host", what=one) for one in answer.host]
    said += [msg("recommend.assumed", what=one) for one in answer.assumptions]
    why = tuple(msg("rejected.counted", why=msg(f"rejected.{name}"), n=count) for name, count in answer.rejected.reasons.items())
    said.append(msg("recommend.considered", considered=f"{answer.considered:,}", why=why))
    return said


def _cells(session: Session, one: Candidate) -> list[str]:
    term = session.language.text(f"term.{one.term}")
    speed = f"{significant(one.throughput.value)} {one.throughput.unit}"
    machine = one.instance if one.machines == 1 else f"{one.machines}x {one.instance}"
    return [
        f"{one.gpus}x {one.gpu_name}",
        f"{one.provider} {machine}",
        f"{one.region}, {term}" if one.region else term,
        run_time(one.run_time.value),
        speed,
        f"{amount(one.cost.amount)} {one.cost.currency} ({amount(one.cost_per_hour.amount)}/h)",
    ]


def _short(one: Candidate) -> Message:
    time, cost = run_time(one.run_time.value), amount(one.cost.amount)
    return msg("recommend.candidate", gpus=one.gpus, gpu=one.gpu_name, cost=cost, currency=one.cost.currency, time=time)


def run_time(seconds: float) -> str:
    """A run's length: hours, or days where there are many.

    >>> run_time(90.0), run_time(36000.0), run_time(1e6)
    ('90 s', '10 h', '11.6 d')
    """
    if seconds < 3600:
        return format_seconds(seconds)
    return f"{significant(seconds / 3600)} h" if seconds < 2 * 86400 else f"{significant(seconds / 86400)} d"


def amount(value: Decimal) -> str:
    """Money to three digits."""
    return significant(float(value))
