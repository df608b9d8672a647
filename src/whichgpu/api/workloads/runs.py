"""Duration of a whole run on the GPUs of an estimate, and its cost at the cheapest on-demand offer."""

from __future__ import annotations

from datetime import date

import msgspec

from whichgpu.base.errors import NoAnswer
from whichgpu.base.figure import Figure
from whichgpu.base.money import Money
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.store import Catalog
from whichgpu.decide.candidate import Cost, money
from whichgpu.decide.market import terms_of
from whichgpu.decide.offers import select_offers
from whichgpu.decide.requirements import Requirements
from whichgpu.decide.work import work_of
from whichgpu.workload.shapes import Shape
from whichgpu.workload.workload import Workload

LENGTHS = ("epochs", "steps", "tokens", "samples")
TERM = "on-demand"


class RunPrice(msgspec.Struct, frozen=True):
    """The cheapest on-demand offer, whose price is used for the cost of a whole training or inference run."""

    provider: str
    instance: str
    region: str
    machines: int
    price: Money  # price per hour of one machine with its host
    observed_at: str
    source: str


class Run(msgspec.Struct, frozen=True):
    """Duration of a whole run of `amount` tokens or samples without start-up, and its cost (None if no offer has such GPUs)."""

    amount: float
    unit: str
    time: Figure
    cost: Cost | None
    offer: RunPrice | None


def run_of(
    workload: Workload, shape: Shape, throughput: Figure, gpu: Gpu, day: date, catalog: Catalog, user_fields: frozenset[str]
) -> Run | None:
    """Return duration and cost of the run that a request describes; None if it does not state the run's length."""
    if not user_fields & set(LENGTHS) or not workload.traits.ends:
        return None
    work = work_of(workload, shape, None)
    if not work.amount or throughput.value <= 0:
        return None
    seconds = work.amount / throughput.value
    low, high = throughput.relative_range
    time = Figure(seconds, seconds / high, seconds / low, "s", throughput.basis, throughput.sources)
    offer = cheapest(gpu, workload.gpus, day, catalog, workload.nodes)
    cost = None
    if offer is not None:
        hour = float(offer.price.amount) * offer.machines / 3600.0
        amount, lowest, highest = (
            money(value * hour, offer.price.currency).amount for value in (time.value, time.low, time.high)
        )
        cost = Cost(amount, lowest, highest, offer.price.currency)
    return Run(work.amount, work.unit, time, cost, offer)


def cheapest(gpu: Gpu, gpus: int, day: date, catalog: Catalog, nodes: int = 1) -> RunPrice | None:
    """Return the cheapest on-demand machines on a day with `gpus` of a GPU, each node in one machine; None if there are none."""
    each = gpus // nodes
    try:
        market = select_offers(Requirements(gpu=gpu.id, term=TERM, gpus=(float(each), float(each))), day, catalog, None).market
    except NoAnswer:
        return None
    table, terms = market.table.select_rows(market.rows), terms_of(market)
    price = terms.price + terms.host  # If the GPU is priced without a host, the host's price is added.
    best: tuple[float, int] | None = None
    for row in range(len(table)):
        if table.gpus[row] == each:
            best = min(best or (float("inf"), row), (float(price[row]), row))
    if best is None:
        return None
    row = best[1]
    last_day = min(int(table.days[1][row]), day.toordinal())
    return RunPrice(
        table.word("provider", row), table.word("instance", row), table.word("region", row), nodes,
        money(float(price[row]), "USD"), date.fromordinal(last_day).isoformat(), table.word("source", row),
    )  # fmt: skip
