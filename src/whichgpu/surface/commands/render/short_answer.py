"""A recommendation within a screen: the sentence, a small table, three reasons, what could go wrong, what would change it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from whichgpu.base.messages import Message, msg
from whichgpu.decide.answer.explain import COMPARED
from whichgpu.decide.answer.precision_steps import step_messages
from whichgpu.decide.answer.recommend_answer import RecommendAnswer
from whichgpu.decide.candidate import Candidate
from whichgpu.surface import tables
from whichgpu.surface.candidate_cells import (
    CHEAPER_REASONS,
    any_seller_line,
    columns,
    fallback_lines,
    front_lines,
    has_older_price,
    purchase_lines,
    short_cell,
    short_heading,
    terms_line,
    uncertainty_lines,
    unit_cost_lines,
)
from whichgpu.surface.commands.session import Session

MAX_LINES = 25  # Lines of a short answer on a terminal.
MAX_ROWS = 6  # Rows of its table.
MAX_REASONS, MAX_RISKS, MAX_CHANGES = 3, 2, 2
# Beginnings of the ids of messages that come first among the risks: software that does not run, then limits that may be missed.
SOFTWARE, MISSED_LIMITS = "recommend.quirk-software", "recommend.may-"
QUIRK = "recommend.quirk"  # Quirks that are no risk are left to the long answer.
INTERRUPTIONS = ("because.reruns", "because.rerun-chance")
STALE = "recommend.stale"  # The sentence says how old the price is.
# Warnings that name what would cost less.
SAVINGS = ("recommend.long-inputs", "recommend.qlora", "recommend.no-commitment", "recommend.no-commitment-aws")
# Reasons that come first, since the table does not say them.
FIRST_REASONS = (
    "because.power", "because.power-room", "because.break-even", "because.mfu", "because.cluster", "because.moe",
    "because.sequences", "because.pictures", "because.pictures-guided", "because.pictures-fewer",
    "because.pictures-guided-fewer", "because.memory", "because.memory-served", "because.memory-training",
)  # fmt: skip
# Assumptions without which the figures mean little: another engine, the length of a run, tokens of a request, the traffic.
WORK_ASSUMED = ("assumed.engine-of-owned", "assumed.team", "assumed.work", "assumed.sequence", "assumed.rate")
COMPACT = partial(tables.write_terminal, compact=True)
DROPPED_COLUMNS = ("machine", "term", "offer")  # The sentence has the machine and the region of the answer.


def say_short(session: Session, answer: RecommendAnswer) -> None:
    """Print a recommendation in at most 25 lines of whole words, each line within the terminal's width."""
    names = _columns(answer)
    all_rows = [
        [short_cell(name, one, session.language.text, answer.answer) for name in names] for one in answer.candidates[:MAX_ROWS]
    ]
    rows = list(all_rows)
    reasons, risks, changes = _reasons(answer.answer), _risks(answer), _changes(answer)
    steps = [msg("recommend.precision-step", what=step) for step in _steps(answer)]
    purchases = purchase_lines(answer)
    costs = [] if _one_user(answer) or answer.answer.purchase else unit_cost_lines(answer)
    costs += terms_line(answer) if answer.answer.break_even_hours is not None else []
    serve = [msg("recommend.serve", command=answer.serve)] if answer.serve else []
    assumed = _work_assumed(answer)
    absent_gpus = [reason for one in answer.why_not.values() for reason in one[:1]]
    last = msg("recommend.more")

    def under() -> list[Message]:
        return [*assumed, *costs, *steps, *reasons, *risks, *purchases, *changes, *absent_gpus, *serve]

    def line_count() -> int:
        texts = _lines(session, [answer.sentence, *under(), last])
        return len(texts) + tables.text_of(COMPACT, _header(session, answer, names, len(rows)), rows).count("\n")

    for part, min_length in (
        (rows, 4), (risks, 1), (changes, 1), (rows, 3), (steps, 1), (reasons, 2), (rows, 2), (serve, 0),
        (changes, 0 if answer.answer.purchase else 1), (steps, 0), (rows, 1), (changes, 0),
    ):  # fmt: skip
        while line_count() > MAX_LINES and len(part) > min_length:
            part.pop(-2 if part is reasons else -1)  # The last reason compares the answer with the next candidate.
    fitting_rows = len(rows)
    rows += all_rows[fitting_rows:]  # Rows come back as far as what was left out since makes space.
    while line_count() > MAX_LINES and len(rows) > fitting_rows:
        rows.pop()
    session.say(answer.sentence)
    header = _header(session, answer, names, len(rows))
    COMPACT(session.out, header, [[session.language.localize(cell) for cell in row] for row in rows])
    for message in (*under(), last):
        session.say(message)


def _work_assumed(answer: RecommendAnswer) -> list[Message]:
    """Return what was assumed about the work itself."""
    return [msg("recommend.assumed", what=one) for one in answer.assumptions if one.id in WORK_ASSUMED]


def say_brief(session: Session, answer: RecommendAnswer) -> None:
    """Print a recommendation for a chat message on stdout: the sentence, the cost per unit, and the first risk."""
    for message in (answer.sentence, *unit_cost_lines(answer), *_risks(answer)[:1]):
        session.out.write(session.language.render(message) + "\n")


def _columns(answer: RecommendAnswer) -> list[str]:
    """Return the names of the columns of a table that fits 80 columns: GPUs, seller, speed and cost."""
    names = [name for name in columns(answer) if name not in DROPPED_COLUMNS]
    if _one_user(answer):  # One user has no request rate, and no tokens of others to share the cost.
        names = ["month-alone" if name == "month" else name for name in names if name != "sustained"]
    if answer.answer.purchase is None:
        names.insert(1, "seller")
    return names


def _header(session: Session, answer: RecommendAnswer, names: Sequence[str], rows: int) -> list[str]:
    """Return the headings of a table of the first `rows` candidates, some of which may have older prices than the answer."""
    aged = any(has_older_price(one, answer.answer) for one in answer.candidates[:rows])
    aged_name = {"seller": "seller-aged"} if aged else {}
    return [short_heading(aged_name.get(name, name), answer.answer, session.language) for name in names]


def _steps(answer: RecommendAnswer) -> tuple[Message, ...]:
    """Return lines on the answer's precision, if it is not the published one, and on those that would save more."""
    precisions = [one.precision for one in answer.precisions]
    first = precisions.index(answer.answer.precision) if answer.answer.precision in precisions else 0
    return step_messages(answer.precisions, answer.answer)[max(1, first) :]


def _one_user(answer: RecommendAnswer) -> bool:
    return answer.kind == "service" and answer.request.get("rate") is None and answer.answer.tpot is not None


def _reasons(best: Candidate) -> list[Message]:
    """Return the first reasons of the answer, and the one that compares it with a cheaper or the next candidate."""
    compared = [reason for reason in best.because if reason.id in CHEAPER_REASONS or reason.id.startswith(COMPARED)]
    others = sorted((one for one in best.because if one not in compared), key=lambda reason: _rank_of(reason.id, FIRST_REASONS))
    return [msg("recommend.because", what=reason) for reason in (*others[: MAX_REASONS - len(compared[:1])], *compared[:1])]


def _rank_of(id: str, ids: Sequence[str]) -> int:
    """Return the place of a message's id in an order; those not in it come last."""
    return ids.index(id) if id in ids else len(ids)


def _risks(answer: RecommendAnswer) -> list[Message]:
    """Return the first risks: software that does not run, limits missed at the slow end of the 90% range, other warnings."""
    interruptions = [reason for reason in answer.answer.because if reason.id in INTERRUPTIONS]
    warnings = [one for one in (*answer.lacks, *interruptions, *answer.warnings) if one.id not in (*SAVINGS, STALE, QUIRK)]
    firsts = (SOFTWARE, MISSED_LIMITS)
    order = sorted(warnings, key=lambda one: (*(not one.id.startswith(first) for first in firsts), one.id not in INTERRUPTIONS))
    return [msg("recommend.risk", what=one) for one in order][:MAX_RISKS]


def _changes(answer: RecommendAnswer) -> list[Message]:
    """Return what another priority would pick: the best that is not spot, the safest, the cheapest and the fastest."""
    kind = answer.kind
    changes = [msg("recommend.saving", what=one) for one in answer.warnings if one.id in SAVINGS]
    changes += fallback_lines(answer)
    if answer.any_seller is not None:
        changes.append(any_seller_line(answer.any_seller, kind))
    return [*changes, *uncertainty_lines(answer), *front_lines(answer)][:MAX_CHANGES]


def _lines(session: Session, messages: Sequence[Message]) -> list[str]:
    """Return messages as lines of whole words within the terminal's width."""
    return [line for message in messages for line in session.text_lines(session.language.render(message))]
