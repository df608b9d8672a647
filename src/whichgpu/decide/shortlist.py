"""The candidates displayed: the best of each GPU and count, the cheapest and fastest, the Pareto front, and fallbacks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec
import numpy as np

from whichgpu.decide.candidates import Candidates, pareto
from whichgpu.decide.configurations.groups import Groups
from whichgpu.decide.constraints import QUALITY_RANK
from whichgpu.decide.framework_support import CUDA
from whichgpu.decide.market import OLD_DAYS, Market
from whichgpu.price.table import Ints

MAX_PER_GPU = 2  # Rows of one GPU before rows of others are left out.
FRESHER = 2.0  # A fallback with a fresher price is named if it costs at most this many times as much (assumed).


class Shortlist(msgspec.Struct, frozen=True):
    """Indices of displayed candidates; `without_spot` and `with_cuda` are the best such ones, unless the first already is."""

    listed: tuple[int, ...]
    cheapest: int
    fastest: int
    front: tuple[int, ...]
    without_spot: int | None
    with_cuda: int | None
    compared: tuple[int, ...]

    @property
    def all(self) -> tuple[int, ...]:
        """Return the index of every displayed candidate once, in the order of the fields."""
        fallbacks = [at for at in (self.without_spot, self.with_cuda) if at is not None]
        return tuple(dict.fromkeys((*self.listed, self.cheapest, self.fastest, *self.front, *fallbacks, *self.compared)))


def shortlist(
    candidates: Candidates, order: Ints, groups: Groups, market: Market, limit: int, compared_gpus: Iterable[str] = ()
) -> Shortlist:
    """Return the candidates to display from a non-empty ranking; `compared_gpus` are ids of GPUs the user wants explained."""
    passing = set(order.tolist())
    supported = order[candidates.poorly_supported[order] == candidates.poorly_supported[order[0]]]
    cheapest = int(supported[np.argmin(candidates.run_cost.cost[supported])])
    fastest = next(at for at in candidates.order("time", market).tolist() if at in passing)
    terms = market.terms[candidates.offer[order]]
    without_spot = order[terms != "spot"]
    best = (best_of(gpu, candidates, groups, order) for gpu in compared_gpus)
    return Shortlist(
        listed=tuple(distinct(candidates, order, groups, limit)),
        cheapest=cheapest,
        fastest=fastest,
        front=tuple(pareto(candidates, _at_known_prices(candidates, order))),
        without_spot=_fresher(candidates, without_spot, market) if terms[0] == "spot" and len(without_spot) else None,
        with_cuda=_with_cuda(candidates, order, groups),
        compared=tuple(at for at in best if at is not None),
    )


def _at_known_prices(candidates: Candidates, order: Ints) -> Ints:
    """Return a service's ranking without outdated prices, which a table of it shows last; unchanged if all are, or for a run."""
    fresher = order[~candidates.outdated[order]]
    return fresher if np.isinf(candidates.outdated_lead) and len(fresher) else order


def _fresher(candidates: Candidates, order: Ints, market: Market) -> int:
    """Return the first of a ranking, or the first with a fresher price if the former's is over half a year old and it is near."""
    ages = market.age_days[candidates.offer[order]]
    near = (ages <= OLD_DAYS) & (candidates.run_cost.cost[order] <= candidates.run_cost.cost[order[0]] * FRESHER)
    return int(order[np.argmax(near)]) if ages[0] > OLD_DAYS and near.any() else int(order[0])


def distinct(candidates: Candidates, order: Ints, groups: Groups, limit: int) -> list[int]:
    """Return indices of up to `limit` candidates, the best one for each GPU and number of GPUs.

    At most two are of one GPU, so that other GPUs can be compared, unless there are no others.
    """
    ids: dict[str, int] = {}
    number = np.array([ids.setdefault(group.gpu.id, len(ids)) for group in groups.groups] or [0])
    keys = number[candidates.group[order]] + len(ids) * candidates.gpus[order]
    firsts = order[np.sort(np.unique(keys, return_index=True)[1])].tolist()
    best = {(groups.groups[int(candidates.group[at])].gpu.id, float(candidates.gpus[at])): at for at in firsts}
    counts = Counter[str]()
    first: list[int] = []
    more: list[int] = []
    for (gpu, _), at in best.items():
        counts[gpu] += 1
        (first if counts[gpu] <= MAX_PER_GPU else more).append(at)
    chosen = {*first[:limit], *more[: max(0, limit - len(first))]}
    return [at for at in best.values() if at in chosen]


def best_by_quality(candidates: Candidates, order: Ints, groups: Groups) -> dict[str, int]:
    """Return the index of the best candidate of a ranking at each level of quality that its precisions keep."""
    levels = np.array([QUALITY_RANK[group.quality] for group in groups.groups] or [0])[candidates.group[order]]
    return {name: int(order[np.argmax(levels == rank)]) for name, rank in QUALITY_RANK.items() if (levels == rank).any()}


def best_of(gpu: str, candidates: Candidates, groups: Groups, order: Ints) -> int | None:
    """Return the index of the best candidate on a GPU; None if no candidate uses that GPU."""
    return next((at for at in order.tolist() if groups.groups[int(candidates.group[at])].gpu.id == gpu), None)


def _with_cuda(candidates: Candidates, order: Ints, groups: Groups) -> int | None:
    """Return the index of the best candidate whose GPU supports CUDA; None if the first does or none does."""
    cuda = [CUDA in group.gpu.supports for group in groups.groups]
    if cuda[int(candidates.group[order[0]])]:
        return None
    return next((at for at in order.tolist() if cuda[int(candidates.group[at])]), None)
