"""`whichgpu recommend`: the answer in a sentence, the runners-up in a table, the reasons, the assumptions, the sources."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from whichgpu import api
from whichgpu.api.desk import Desk
from whichgpu.api.recommending import ANY_MODEL, RecommendAnswer
from whichgpu.api.refusals import MOST_SHOWN, bad_wish
from whichgpu.api.saying import amount as amount
from whichgpu.api.shopping import Query
from whichgpu.base.codec import to_json
from whichgpu.base.errors import UsageError
from whichgpu.base.messages import Message, msg
from whichgpu.base.units import significant
from whichgpu.catalog.offer import TERMS
from whichgpu.catalog.select import parse_span
from whichgpu.decide.wishes import RANKS
from whichgpu.surface.cli.frame import GPU, INSTANCE, SELLER, Parsed, Words, catalog_of, command, option
from whichgpu.surface.cli.session import Session
from whichgpu.surface.cli.settings import user_path
from whichgpu.surface.cli.sources import say_sources
from whichgpu.surface.cli.workload import MODEL, Spelling, spelled, workload_options
from whichgpu.surface.recommended import cell, columns, short, unit_costs
from whichgpu.surface.recommended import run_time as run_time  # pages tell lengths with it
from whichgpu.surface.replies import document

TASKS = ("train", "finetune", "serve", "batch")
SOURCES = 6


def parse_limit(text: str) -> int:
    """A number of rows; "all" is as many as may be shown.

    >>> parse_limit("20"), parse_limit("all") == MOST_SHOWN
    (20, True)
    """
    digits = text.strip()
    if digits == "all":
        return MOST_SHOWN
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
        raise bad_wish("limit", repr(text[:40]), msg("wants.rows", most=f"{MOST_SHOWN:,}"))
    return int(digits)


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
    option("--max-age", metavar="TIME", help="option.recommend-max-age"),
    option("--why-not", type=GPU, metavar="GPU"),
    option("--limit", type=Parsed("limit", parse_limit), metavar="N"),
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
) -> RecommendAnswer:
    """Which GPU."""
    if plot is not None:
        from whichgpu.surface.charts import check_plot

        check_plot(plot)
    if task not in TASKS:
        raise UsageError("bad-field", msg("error.bad-field", name="TASK", value=task), msg("hint.choices", choices=TASKS), TASKS)
    if model is not None and not model.strip():
        raise UsageError("bad-field", msg("error.bad-field", name="MODEL", value=repr(model)), msg("hint.empty-model"))
    names = Query.__dataclass_fields__
    asked = {name: value for name, value in flags.items() if name in names and value is not None}
    work = {name: value for name, value in flags.items() if name not in names}
    desk = Desk(catalog_of(session), own=not no_own_measurements)
    read = spelled({"task": task, "model": model or ANY_MODEL.name, **work})
    answer = api.recommend_spelled(read, Query(**asked), session.as_of, desk, overlay, model is not None)
    if plot is not None:
        from whichgpu.surface.charts import write_chart
        from whichgpu.surface.frontchart import front_chart

        write_chart(front_chart(answer, session.language), plot)
    return answer


@recommend.shows
def show(session: Session, answer: RecommendAnswer) -> None:
    """The sentence, the candidates, the reasons."""
    if session.format == "json":
        session.out.write(to_json(document(answer, session.language)))
        return
    if session.format == "csv" or session.columns:
        session.show(answer, [document(one, session.language) for one in answer.candidates], (), answer.sentence)
        return
    session.say(answer.sentence)
    text = session.language.text
    heads = columns(answer)
    cells = [[cell(name, one, text, answer.answer) for name in heads] for one in answer.candidates]
    session.table([text(f"recommend.column-{name}") for name in heads], cells)
    for line in _lines(answer):
        session.say(line)
    say_sources(session, answer.sources, SOURCES)
    session.say(msg("recommend.verify", command=answer.verify))
    session.say(msg("recommend.lacks", what=answer.verify_note))
    session.say(msg("recommend.reproduce", command=answer.reproduce.command))


def _lines(answer: RecommendAnswer) -> list[Message]:
    """Everything under the table, in the order it is read."""
    said = [msg("recommend.because", what=one) for one in answer.answer.because]
    kind = answer.kind
    if len(lines := answer.answer.cost_lines) > 1:
        told = tuple(
            msg("recommend.cost-line", name=msg(f"cost.{name}"), cost=amount(one.amount), currency=one.currency)
            for name, one in lines.items()
        )
        said.append(msg("recommend.cost-lines", what=told))
    if kind != "mix" and (told := unit_costs(answer.answer)):
        said.append(msg("recommend.unit-costs", what=told))
    if answer.answer.purchase is None or kind != "mix":
        said.append(msg("recommend.front", cheapest=short(answer.cheapest, kind), fastest=short(answer.fastest, kind)))
    if answer.fallback is not None:
        term = msg(f"term.{answer.fallback.term}")
        said.append(msg("recommend.fallback", what=short(answer.fallback, kind), term=term))
    if answer.shares:
        told = tuple(
            msg("recommend.share", share=f"{one.on_demand:.0%}", cost=amount(one.cost.amount), currency=one.cost.currency)
            for one in answer.shares
        )
        said.append(msg("recommend.shares", what=told))
    if answer.with_cuda is not None:
        said.append(msg("recommend.with-cuda", what=short(answer.with_cuda, kind)))
    said += [one for lines in answer.why_not.values() for one in lines]
    said += [msg("recommend.lacks", what=one) for one in (*answer.lacks, *answer.warnings)]
    said += [msg("recommend.host", what=one) for one in answer.host]
    said += [msg("recommend.assumed", what=one) for one in answer.assumptions]
    if answer.engines:
        others = tuple(msg("recommend.engine", name=one.engine, speed=significant(one.speed, 2)) for one in answer.engines)
        said.append(msg("recommend.engines", what=others))
    counts = answer.rejected.reasons.items()
    why = tuple(msg("rejected.counted", why=msg(f"rejected.{name}", n=n), n=f"{n:,}") for name, n in counts if n)
    said.append(msg("recommend.considered" if why else "recommend.considered-all", considered=f"{answer.considered:,}", why=why))
    return said
