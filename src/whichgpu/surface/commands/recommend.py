"""`whichgpu recommend`: the answer in a sentence, the runners-up in a table, the reasons, the assumptions, the sources."""

from __future__ import annotations

from whichgpu.api.recommend import recommend_verb as verbs
from whichgpu.api.request.recommend import RecommendRequest
from whichgpu.base.messages import Message, msg
from whichgpu.base.units import format_amount as format_amount
from whichgpu.base.units import significant
from whichgpu.decide.answer.recommend_answer import RecommendAnswer
from whichgpu.surface.candidate_cells import cell, columns, short, unit_costs
from whichgpu.surface.candidate_cells import run_time as run_time  # pages tell lengths with it
from whichgpu.surface.commands.command import Request, command
from whichgpu.surface.commands.render.plot_file import check_plot, plot_path
from whichgpu.surface.commands.render.sources import say_sources
from whichgpu.surface.commands.session import Session
from whichgpu.surface.documents import document

SOURCES = 6


@command("recommend", RecommendRequest, has_examples=True)
def recommend(session: Session, request: Request) -> RecommendAnswer:
    """Which GPU."""
    check_plot(request)
    answer = verbs.recommend(request, session.context())  # type: ignore[arg-type]
    if path := plot_path(request):
        from whichgpu.surface.charts.front import front_chart
        from whichgpu.surface.charts.vega import write_chart

        write_chart(front_chart(answer, session.language), path)
    return answer


@recommend.shows
def show(session: Session, answer: RecommendAnswer) -> None:
    """The sentence, the candidates, the reasons."""
    if session.format == "json":
        session.emit(document(answer, session.language))
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
            msg("recommend.cost-line", name=msg(f"cost.{name}"), cost=format_amount(one.amount), currency=one.currency)
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
            msg(
                "recommend.share",
                share=f"{one.on_demand:.0%}",
                cost=format_amount(one.cost.amount),
                currency=one.cost.currency,
            )
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
