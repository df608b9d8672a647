"""What a workload costs on each GPU of a comparison: the cheapest price of the GPU, divided by its speed."""

from __future__ import annotations

import msgspec

from whichgpu.api.context import Context
from whichgpu.api.prices.offers import offers
from whichgpu.api.workloads.compare import Comparison
from whichgpu.base.errors import WhichGpuError
from whichgpu.base.figure import Figure
from whichgpu.price.offers import Offer

PER_UNITS = 10**6  # Units of throughput (tokens, images) that a cost is of.


class ComparedCost(msgspec.Struct, frozen=True):
    """The cheapest offer of a compared GPU or machine, and the cost of a million units of its throughput; None if unknown."""

    offer: Offer | None
    cost: Figure | None


def compared_costs(answer: Comparison, context: Context) -> tuple[ComparedCost, ...]:
    """Return the cheapest offer of each GPU or machine of a comparison, and what the workload costs there."""
    costs = []
    for place, column in enumerate(answer.compared):
        request = {"instance": [column.instance.instance]} if column.instance else {"gpu": [column.gpu.id]}
        try:
            offer = offers({**request, "sort": "price_per_gpu_hour", "limit": 1}, context).offers[0]  # type: ignore[typeddict-item]
        except WhichGpuError:  # Nobody offers it.
            costs.append(ComparedCost(None, None))
            continue
        estimate = answer.speed[place].estimate if answer.speed else None
        costs.append(ComparedCost(offer, _cost(offer, estimate.throughput, estimate.request["gpus"]) if estimate else None))
    return tuple(costs)


def _cost(offer: Offer, throughput: Figure | None, gpus: int) -> Figure | None:
    """Return the dollars of a million units at the price of a GPU hour."""
    if throughput is None or not throughput.low > 0:
        return None
    dollars = float(offer.price_per_gpu_hour.amount) * gpus / 3600 * PER_UNITS
    ends = (dollars / throughput.value, dollars / throughput.high, dollars / throughput.low)
    return Figure(*ends, f"USD/million {throughput.unit.partition('/')[0]}", throughput.basis, throughput.sources)
