"""`whichgpu recommend`: the answer in a sentence, other candidates in a table, reasons, assumptions, sources."""

from __future__ import annotations

from decimal import Decimal

from whichgpu.api.recommend import recommend_verb as verbs
from whichgpu.api.request.recommend import RecommendRequest
from whichgpu.base.messages import Message, msg
from whichgpu.base.units import format_amount, significant
from whichgpu.decide.answer.build_answer import UNABLE, VERIFY_GPU
from whichgpu.decide.answer.other_engines import EngineLine
from whichgpu.decide.answer.precision_steps import step_messages
from whichgpu.decide.answer.recommend_answer import RecommendAnswer
from whichgpu.surface.candidate_cells import (
    any_seller_line,
    candidate_cell,
    candidate_summary,
    columns,
    cost_parts,
    fallback_lines,
    front_lines,
    purchase_lines,
    terms_line,
    uncertainty_lines,
    unit_cost_lines,
)
from whichgpu.surface.commands.command import command
from whichgpu.surface.commands.render.evidence import say_evidence
from whichgpu.surface.commands.render.listing import say_sources
from whichgpu.surface.commands.render.short_answer import STALE, say_brief, say_short
from whichgpu.surface.commands.session import Session

MAX_SOURCES = 6  # Sources listed under an answer.


@command("recommend", RecommendRequest, verbs.recommend, chart="front.front_chart")
def show(session: Session, answer: RecommendAnswer) -> None:
    """Print a recommendation: the answer in a sentence, the candidates in a table, and the reasons."""
    if session.show_data(answer, answer.candidates, answer.sentence):
        return
    if answer.emitted:
        session.say(answer.sentence)
        session.show_files(answer.emitted)
        return
    if session.request.get("brief"):
        say_brief(session, answer)
        return
    if session.is_terminal_table and not session.request.get("long"):
        say_short(session, answer)
        if session.request.get("evidence"):
            say_evidence(session, answer.evidence, answer.evidence_error)
        return
    session.say(answer.sentence)
    text = session.language.text
    names = columns(answer)
    cells = [[candidate_cell(name, one, text, answer.answer) for name in names] for one in answer.candidates]
    session.table([text(f"recommend.column-{name}") for name in names], cells)
    for line in _lines(answer):
        session.say(line)
    if session.request.get("evidence"):
        say_evidence(session, answer.evidence, answer.evidence_error)
    say_sources(session, answer.sources, MAX_SOURCES)
    session.say(msg("recommend.verify", command=verify_command(answer)))
    session.say(msg("recommend.lacks", what=answer.verify_note))
    if answer.narrow is not None:
        session.say(answer.narrow)
    if answer.serve is not None:
        session.say(msg("recommend.serve", command=answer.serve))
    session.say(msg("recommend.reproduce", command=answer.reproduce.command))


def verify_command(answer: RecommendAnswer) -> str:
    """Return the command that checks the estimate: of its own step, or of the GPU alone if `measure` cannot run that step."""
    return VERIFY_GPU if answer.verify_note.id == UNABLE else answer.verify


def _engine(one: EngineLine, answer: RecommendAnswer) -> Message:
    """Return a message with another engine's speed, and for a run its cost on the answer's machine."""
    values = {"name": one.engine, "speed": significant(one.speed, 2)}
    if answer.kind != "run" or one.speed <= 0:
        return msg("recommend.engine", **values)
    cost = answer.answer.cost
    return msg(
        "recommend.engine-cost", cost=format_amount(cost.amount / Decimal(str(one.speed))), currency=cost.currency, **values
    )


def alternative_lines(answer: RecommendAnswer) -> list[Message]:
    """Return messages on other choices: cheaper, faster or safer ones, other terms, cards to buy, and why some rank behind."""
    lines = [*front_lines(answer), *uncertainty_lines(answer), *terms_line(answer), *fallback_lines(answer)]
    if answer.shares:
        shares = tuple(
            msg("recommend.share", share=f"{one.on_demand:.0%}", cost=format_amount(one.cost.amount), currency=one.cost.currency)
            for one in answer.shares
        )
        lines.append(msg("recommend.shares", what=shares))
    lines += purchase_lines(answer)
    if answer.any_seller is not None:
        lines.append(any_seller_line(answer.any_seller, answer.kind))
    if answer.with_cuda is not None:
        lines.append(msg("recommend.with-cuda", what=candidate_summary(answer.with_cuda, answer.kind)))
    return lines


def _lines(answer: RecommendAnswer) -> list[Message]:
    """Return the messages under the table of candidates (costs, reasons, assumptions), in reading order."""
    best = answer.answer
    lines = [msg("recommend.because", what=reason) for reason in best.because]
    lines += [msg("recommend.precision-step", what=step) for step in step_messages(answer.precisions, answer.answer)]
    if len(best.cost_lines) > 1:
        lines.append(msg("recommend.cost-lines", what=cost_parts("cost.", best.cost_lines)))
    lines += unit_cost_lines(answer)
    lines += alternative_lines(answer)
    lines += [reason for reasons in answer.why_not.values() for reason in reasons]
    lines += [msg("recommend.lacks", what=one) for one in (*answer.lacks, *answer.warnings) if one.id != STALE]
    lines += [msg("recommend.host", what=one) for one in answer.host]
    lines += [msg("recommend.assumed", what=one) for one in answer.assumptions]
    if answer.engines:
        others = tuple(_engine(one, answer) for one in answer.engines)
        lines.append(msg("recommend.engines", what=others))
    counts = answer.rejected.reasons.items()
    why = tuple(msg("rejected.counted", why=msg(f"rejected.{name}", n=n), n=f"{n:,}") for name, n in counts if n)
    lines.append(msg("recommend.considered" if why else "recommend.considered-all", considered=f"{answer.considered:,}", why=why))
    return lines
