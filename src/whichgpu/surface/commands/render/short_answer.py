"""A recommendation within a screen: the sentence, a small table, three reasons, what could go wrong, what would change it."""

from __future__ import annotations

from collections.abc import Sequence

from whichgpu.base.messages import Message, msg
from whichgpu.decide.answer.precision_steps import step_messages
from whichgpu.decide.answer.recommend_answer import RecommendAnswer
from whichgpu.decide.candidate import Candidate
from whichgpu.surface import tables
from whichgpu.surface.candidate_cells import (
    any_seller_line,
    candidate_cell,
    candidate_summary,
    columns,
    purchase_lines,
    uncertainty_lines,
    unit_costs,
)
from whichgpu.surface.commands.session import Session

MAX_LINES = 25  # Lines of a short answer on a terminal.
MAX_ROWS = 5  # Rows of its table.
MAX_REASONS, MAX_RISKS, MAX_CHANGES = 3, 2, 2
MISSED_LIMITS, QUIRK = "recommend.may-", "recommend.quirk"  # Beginning of message ids, and an id, that order the risks.
INTERRUPTIONS = "because.reruns"
STALE = "recommend.stale"  # The sentence says how old the price is.
SAVINGS = ("recommend.long-inputs", "recommend.qlora", "recommend.no-commitment")  # Warnings that name what would cost less.
# Reasons that come first, since the table does not say them.
FIRST_REASONS = (
    "because.break-even", "because.mfu", "because.moe", "because.sequences", "because.pictures", "because.pictures-guided",
    "because.memory", "because.memory-training",
)  # fmt: skip
# Assumptions without which the figures mean little: the length of a run, tokens of a request, the traffic.
WORK_ASSUMED = ("assumed.work", "assumed.sequence", "assumed.rate")
DROPPED_COLUMNS = ("machine", "term", "offer")  # The sentence has the machine and the region of the answer.


def say_short(session: Session, answer: RecommendAnswer) -> None:
    """Print a recommendation in at most 25 lines of whole words, each line within the terminal's width."""
    header, rows = _table(session, answer)
    reasons, risks, changes = _reasons(answer.answer), _risks(answer), _changes(answer)
    steps = [msg("recommend.precision-step", what=step) for step in step_messages(answer.precisions)]
    step_count, precisions = len(steps), [one.precision for one in answer.precisions]
    chosen_step = precisions.index(answer.answer.precision) if answer.answer.precision in precisions else 0
    purchases = purchase_lines(answer)
    costs = [msg("recommend.unit-costs", what=what)] if answer.kind != "mix" and (what := unit_costs(answer.answer)) else []
    serve = [msg("recommend.serve", command=answer.serve)] if answer.serve else []
    assumed = _work_assumed(answer)
    absent_gpus = [reason for one in answer.why_not.values() for reason in one[:1]]
    last = msg("recommend.more")

    def under() -> list[Message]:
        return [*assumed, *costs, *steps, *reasons, *risks, *purchases, *changes, *absent_gpus, *serve]

    def line_count() -> int:
        texts = _lines(session, [answer.sentence, *under(), last])
        return len(texts) + tables.text_of(tables.write_terminal, header, rows).count("\n")

    for part, min_length in (
        (rows, 3), (risks, 1), (changes, 1), (steps, 1), (reasons, 2), (rows, 2), (serve, 0), (changes, 0 if purchases else 1),
        (steps, 0), (rows, 1),
    ):  # fmt: skip
        while line_count() > MAX_LINES and len(part) > min_length:
            part.pop(_least_needed(part, steps, reasons, step_count - len(steps) < chosen_step))
    session.say(answer.sentence)
    session.table(header, rows)
    for message in (*under(), last):
        session.say(message)


def _least_needed(part: Sequence[object], steps: object, reasons: object, before_answer: bool) -> int:
    """Return the index of the entry to leave out: a precision above the answer's, a reason before the last, else the last."""
    if part is steps and before_answer:
        return 0
    return -2 if part is reasons else -1


def _work_assumed(answer: RecommendAnswer) -> list[Message]:
    """Return what was assumed about the work itself."""
    return [msg("recommend.assumed", what=one) for one in answer.assumptions if one.id in WORK_ASSUMED]


def say_brief(session: Session, answer: RecommendAnswer) -> None:
    """Print a recommendation for a chat message on stdout: the sentence, the cost per unit, and the first risk."""
    costs = [msg("recommend.unit-costs", what=unit_costs(answer.answer))] if unit_costs(answer.answer) else []
    for message in (answer.sentence, *costs, *_risks(answer)[:1]):
        session.out.write(session.language.render(message) + "\n")


def _table(session: Session, answer: RecommendAnswer) -> tuple[list[str], list[list[str]]]:
    """Return heading and rows of a table that fits 80 columns: GPUs, seller, speed and cost of the first candidates."""
    text = session.language.text
    names = [name for name in columns(answer) if name not in DROPPED_COLUMNS]
    is_rented = answer.answer.purchase is None
    header = [text(f"recommend.column-{name}") for name in names]
    rows = [[candidate_cell(name, one, text, answer.answer) for name in names] for one in answer.candidates[:MAX_ROWS]]
    if is_rented:
        header.insert(1, text("recommend.column-seller"))
        for row, one in zip(rows, answer.candidates, strict=False):
            row.insert(1, text("list.separator").join((one.provider, text(f"term.{one.term}"))))
    return header, rows


def _reasons(best: Candidate) -> list[Message]:
    """Return the first reasons of the answer and the last, which compares it with the next candidate."""
    *first, last = sorted(best.because, key=lambda reason: _rank_of(reason.id, FIRST_REASONS)) if best.because else [None]
    because = [*first, last] if len(best.because) <= MAX_REASONS else [*first[: MAX_REASONS - 1], best.because[-1]]
    return [msg("recommend.because", what=reason) for reason in because]


def _rank_of(id: str, ids: Sequence[str]) -> int:
    """Return the place of a message's id in an order; those not in it come last."""
    return ids.index(id) if id in ids else len(ids)


def _risks(answer: RecommendAnswer) -> list[Message]:
    """Return the first risks: limits missed at the slow end of the 90% range, then missing support, other warnings, quirks."""
    interruptions = [reason for reason in answer.answer.because if reason.id == INTERRUPTIONS]
    warnings = [one for one in (*answer.lacks, *interruptions, *answer.warnings) if one.id not in (*SAVINGS, STALE)]
    order = sorted(warnings, key=lambda one: (not one.id.startswith(MISSED_LIMITS), one.id != INTERRUPTIONS, one.id == QUIRK))
    return [msg("recommend.risk", what=one) for one in order][:MAX_RISKS]


def _changes(answer: RecommendAnswer) -> list[Message]:
    """Return what another priority would pick: the best that is not spot, the safest, the cheapest and the fastest."""
    kind = answer.kind
    changes = [msg("recommend.saving", what=one) for one in answer.warnings if one.id in SAVINGS]
    if answer.fallback is not None:
        term = msg(f"term.{answer.fallback.term}")
        changes.append(msg("recommend.fallback", what=candidate_summary(answer.fallback, kind), term=term))
    if answer.any_seller is not None:
        changes.append(any_seller_line(answer.any_seller, kind))
    ends = {"cheapest": candidate_summary(answer.cheapest, kind), "fastest": candidate_summary(answer.fastest, kind)}
    return [*changes, *uncertainty_lines(answer), msg("recommend.front", **ends)][:MAX_CHANGES]


def _lines(session: Session, messages: Sequence[Message]) -> list[str]:
    """Return messages as lines of whole words within the terminal's width."""
    return [line for message in messages for line in session.text_lines(session.language.render(message))]
