"""What a workload costs on each GPU of a comparison: the cheapest recent price of the GPU, divided by its speed."""

from __future__ import annotations

import msgspec

from whichgpu.api.context import Context
from whichgpu.api.prices.offers import offers
from whichgpu.api.request.offers import OffersRequest
from whichgpu.api.workloads.compare import Comparison
from whichgpu.base.errors import NoAnswer
from whichgpu.base.figure import Figure
from whichgpu.catalog.currency import DOLLAR
from whichgpu.price.offers import Offer

TERMS: tuple[tuple[str, ...], ...] = (("on-demand",), ())  # On demand, or else on any term.
PER_UNITS = 10**6  # Units of throughput (tokens, images) that a cost is of.


class ComparedCost(msgspec.Struct, frozen=True):
    """The cheapest recent offer of a compared GPU or machine, and the cost of a million units there; None if unknown."""

    offer: Offer | None
    cost: Figure | None


def compared_costs(answer: Comparison, context: Context) -> tuple[ComparedCost, ...]:
    """Return the cheapest recent offer of each GPU or machine of a comparison, and what the workload costs there."""
    costs = []
    for place, column in enumerate(answer.compared):
        offer = _offer({"instance": [column.instance.instance]} if column.instance else {"gpu": [column.gpu.id]}, context)
        estimate = answer.speed[place].estimate if answer.speed else None
        cost = _cost(offer, estimate.throughput, estimate.request["gpus"]) if offer and estimate else None
        costs.append(ComparedCost(offer, cost))
    return tuple(costs)


def _offer(request: OffersRequest, context: Context) -> Offer | None:
    """Return the cheapest recent offer of a GPU or machine in dollars, on demand if there is one; None if nobody offers it."""
    for term in TERMS:
        try:
            return offers({**request, "term": term, "currency": DOLLAR, "limit": 1}, context).recent
        except NoAnswer:
            continue
    return None


def _cost(offer: Offer, throughput: Figure | None, gpus: int) -> Figure | None:
    """Return the dollars of a million units at the price of a GPU hour."""
    if throughput is None or not throughput.low > 0:
        return None
    dollars = float(offer.price_per_gpu_hour.amount) * gpus / 3600 * PER_UNITS
    ends = (dollars / throughput.value, dollars / throughput.high, dollars / throughput.low)
    return Figure(*ends, f"USD/million {throughput.unit.partition('/')[0]}", throughput.basis, throughput.sources)
