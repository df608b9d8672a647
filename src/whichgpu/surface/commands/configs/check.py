"""`whichgpu check`: a test for CI that a config still fits its GPUs and a budget."""

from __future__ import annotations

from whichgpu.api.request.configs import CheckRequest
from whichgpu.api.workloads.check import CheckAnswer, CheckedGpu, check
from whichgpu.base.messages import Language, msg
from whichgpu.surface.commands.command import command
from whichgpu.surface.commands.session import Session
from whichgpu.surface.documents import document

COLUMNS = ("gpu", "fits", "cost", "offer", "budget")


@command("check", CheckRequest, check)
def show(session: Session, answer: CheckAnswer) -> int:
    """Print whether the workload fits each GPU and the budget; exit code 1 if it does not."""
    if session.format == "json":
        session.emit({"ok": answer.passed, **document(answer, session.language)})
        return 0 if answer.passed else 1
    session.say(msg("check.passed" if answer.passed else "check.failed", file=answer.file))
    for message in (*answer.reasons, *answer.warnings):
        session.say(message)
    text = session.language.text
    session.table([text(f"check.column.{name}") for name in COLUMNS], [_row(row, session.language) for row in answer.gpus])
    return 0 if answer.passed else 1


def _row(row: CheckedGpu, language: Language) -> tuple[str, ...]:
    cost = f"{row.cost_per_hour.amount:.4g} {row.cost_per_hour.currency}/h" if row.cost_per_hour else ""
    cost += f" ({row.price_observed_at})" if row.price_observed_at else ""
    over = "check.over" if row.cost_per_hour else "check.no-offer"
    within = "" if row.is_within_budget is None else language.text("check.within" if row.is_within_budget else over)
    return row.gpu_name, language.text(f"verdict.{row.fits}"), cost, row.offer or "", within
