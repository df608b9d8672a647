"""A smaller fleet that falls just short of a service's request rate, or of the margin for slow steps, and costs clearly less."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from whichgpu.base.messages import Message, msg
from whichgpu.base.units import format_amount, significant
from whichgpu.decide.answer.explain import age_class, gpu_count_label
from whichgpu.decide.candidate import Candidate

NEAR = 0.85  # Share of the request rate from which a smaller fleet is named (assumed).
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
        "recommend.near-miss" if _reach(one) < rate else "recommend.near-miss-margin",
        gpus=gpu_count_label(int(gpus) if gpus == int(gpus) else gpus), gpu=one.gpu_name, precision=one.precision,
        provider=one.provider, day=one.price_observed_at, capacity=significant(_reach(one)), rate=significant(rate),
        cost=format_amount(one.cost_per_month.amount * (one.copies - 1) / one.copies), currency=one.cost.currency,
    )  # fmt: skip


def _reach(one: Candidate) -> float:
    """Return the requests per second that one replica less would hold at the estimated times."""
    assert one.capacity is not None
    return one.capacity.value * (one.copies - 1) / one.copies


def _cost(one: Candidate) -> float:
    return float(one.cost.amount) * (one.copies - 1) / one.copies
