"""What each step to a lower precision saves: the best candidate at each level of quality, with its published loss."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from whichgpu.base.messages import Message, msg
from whichgpu.base.units import significant
from whichgpu.catalog.accuracy import AccuracyNote, published_loss
from whichgpu.catalog.store import Catalog
from whichgpu.decide.answer.explain import gpu_count_label
from whichgpu.decide.candidate import Candidate, Cost
from whichgpu.decide.constraints import QUALITIES, QUALITY_RANK, Quality

MIN_SAVING = 0.01  # Differences in cost below this share are not stated as a saving (assumed).


class PrecisionStep(msgspec.Struct, frozen=True):
    """The best candidate of one level of quality: its precision, GPUs, cost, what it saves, and the published loss."""

    precision: str
    quality: str  # lossless, near-lossless or any
    allowed: bool  # whether the question's `quality` allows it
    gpu: str
    gpu_name: str
    gpus: int | float
    cost: Cost
    saving: float | None  # share by which it costs less than the level before; negative if more; None for the first
    monthly: bool  # whether `cost` is of a month, as for a service, or of the run
    loss: Message | None  # published loss of quality; None if the model is published in this precision or nothing is known
    sources: tuple[str, ...]  # ids of the documents that state the loss


def precision_steps(
    by_quality: Mapping[str, Candidate], quality: Quality, model: str, catalog: Catalog, monthly: bool
) -> list[PrecisionStep]:
    """Return the levels of quality in falling order, each with the best candidate of that level; empty if there is one only.

    A level that is not allowed is left out unless it saves something. Costs are those of a month if `monthly`, else of the run.
    """
    steps: list[PrecisionStep] = []
    for level in QUALITIES:
        if (one := by_quality.get(level)) is None:
            continue
        cost = _month(one) if monthly else one.cost
        before = steps[-1].cost if steps else None
        saving = 1.0 - float(cost.amount / before.amount) if before is not None and before.amount else None
        note = None if level == QUALITIES[0] else _loss(catalog, model, one.precision)
        allowed = QUALITY_RANK[level] <= QUALITY_RANK[quality]
        steps.append(
            PrecisionStep(
                one.precision, level, allowed, one.gpu, one.gpu_name, one.gpus, cost, saving, monthly,
                note.message if note else None, note.sources if note else (),
            )
        )  # fmt: skip
    steps = [step for step in steps if step.allowed or (step.saving or 0.0) >= MIN_SAVING]
    return steps if len(steps) > 1 else []


def _month(one: Candidate) -> Cost:
    month = one.cost_per_month
    return Cost(month.amount, month.amount, month.amount, month.currency)


def _loss(catalog: Catalog, model: str, precision: str) -> AccuracyNote | None:
    return published_loss(catalog.accuracy, catalog.models, catalog.sources, model, precision)


def step_messages(steps: Iterable[PrecisionStep], best: Candidate) -> tuple[Message, ...]:
    """Return a line for each precision: its GPUs and cost, what it saves, its published loss, and how to allow it.

    The line of the answer (`best`) leaves out its GPUs and cost.
    """
    lines = list[Message]()
    before: Message | str = ""
    for step in steps:
        cost = f"{significant(float(step.cost.amount))} {step.cost.currency}"
        id = "precision-step.month" if step.monthly else "precision-step.cost"
        values = {"precision": step.precision, "gpus": gpu_count_label(step.gpus), "gpu": step.gpu_name, "cost": cost}
        is_answer = (step.precision, step.gpu, step.gpus) == (best.precision, best.gpu, best.gpus)
        line = msg("precision-step.answer", precision=step.precision) if is_answer and before else msg(id, **values)
        if step.saving is not None and abs(step.saving) >= MIN_SAVING:
            id = "precision-step.cheaper" if step.saving > 0 else "precision-step.dearer"
            line = msg(id, what=line, share=f"{abs(step.saving):.0%}", before=before)
        if step.loss is not None:
            line = msg("precision-step.loss", what=line, loss=step.loss)
        if not (step.allowed or is_answer):
            line = msg("precision-step.allow", what=line, quality=step.quality)
        lines.append(line)
        before = msg("precision-step.before", **values)
    return tuple(lines)
