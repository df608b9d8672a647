"""Smaller fleets that cost clearly less: one just short of a service's request rate, one without a margin for slow steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from whichgpu.base.messages import Message, msg
from whichgpu.base.units import format_amount, significant
from whichgpu.decide.answer.explain import age_class, gpu_count_label
from whichgpu.decide.candidate import Candidate

NEAR = 0.85  # Share of the request rate from which a smaller fleet is named (assumed).
NEAR_MISS = "recommend.near-miss"  # Beginning of the ids of the messages on near misses.
CLEARLY_CHEAPER = 0.9  # Share of the answer's cost below which it is named (assumed).


def near_misses(best: Candidate, rows: Sequence[Candidate], rate: float | None) -> Iterator[Message]:
    """Yield the cheapest displayed candidate that with one replica less would hold 85% of the rate or more, if any."""
    if rate is None:
        return
    fewer = [one for one in rows if one.copies > 1 and one.capacity is not None and age_class(one) <= age_class(best)]
    near = [one for one in fewer if _reach(one) >= NEAR * rate and _cost(one) < float(best.cost.amount) * CLEARLY_CHEAPER]
    if not near:
        return
    one = min(near, key=_cost)
    share = (one.copies - 1) / one.copies
    gpus = float(one.gpus) * share
    yield msg(
        NEAR_MISS if _reach(one) < rate else f"{NEAR_MISS}-margin",
        gpus=gpu_count_label(int(gpus) if gpus == int(gpus) else gpus), gpu=one.gpu_name, precision=one.precision,
        provider=one.provider, day=one.price_observed_at, capacity=significant(_reach(one)), rate=significant(rate),
        cost=format_amount(one.cost_per_month.amount * (one.copies - 1) / one.copies), currency=one.cost.currency,
    )  # fmt: skip


def smaller_fleets(best: Candidate, at_estimate: Candidate, others: Sequence[Message]) -> tuple[Message, ...]:
    """Return the messages on what is not the answer, with the candidate that would do if steps took as long as estimated.

    If it costs clearly less than the answer, it replaces the near misses among `others`, which are read off other rows.
    """
    if float(at_estimate.cost.amount) >= float(best.cost.amount) * CLEARLY_CHEAPER:
        return tuple(others)
    message = msg(
        "recommend.at-estimate", gpus=gpu_count_label(at_estimate.gpus), gpu=at_estimate.gpu_name,
        precision=at_estimate.precision, provider=at_estimate.provider, day=at_estimate.price_observed_at,
        cost=format_amount(at_estimate.cost_per_month.amount), currency=at_estimate.cost.currency,
        percent=f"{100.0 * (at_estimate.keeps_objective or 0.0):.0f}",
    )  # fmt: skip
    return (*(one for one in others if not one.id.startswith(NEAR_MISS)), message)


def _reach(one: Candidate) -> float:
    """Return the requests per second that one replica less would hold at the estimated times."""
    assert one.capacity is not None
    return one.capacity.value * (one.copies - 1) / one.copies


def _cost(one: Candidate) -> float:
    return float(one.cost.amount) * (one.copies - 1) / one.copies
