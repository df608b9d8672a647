"""Which candidates are shown: the best of each GPU and count, the cheapest and fastest, the front, and what to fall back on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from whichgpu.decide.candidates import Candidates, pareto
from whichgpu.decide.configurations.groups import Groups
from whichgpu.decide.constraints import RANKS
from whichgpu.decide.framework_support import CUDA
from whichgpu.decide.market import Market
from whichgpu.price.table import Ints


@dataclass(frozen=True, slots=True)
class Rows:
    """Places of candidates; `spare` is the best that is not spot and `able` the best with CUDA, where the first is not so."""

    listed: tuple[int, ...]
    cheapest: int
    fastest: int
    front: tuple[int, ...]
    spare: int | None
    able: int | None
    asked_after: tuple[int, ...]

    @property
    def all(self) -> tuple[int, ...]:
        """Each once, in this order."""
        beside = [place for place in (self.spare, self.able) if place is not None]
        return tuple(dict.fromkeys((*self.listed, self.cheapest, self.fastest, *self.front, *beside, *self.asked_after)))


def rows_of(told: Candidates, order: Ints, groups: Groups, found: Market, limit: int, asked_after: Iterable[str] = ()) -> Rows:
    """The rows of an order that holds at least one."""
    of_kept = set(order.tolist())
    cheapest, fastest = (next(place for place in told.order(by, found).tolist() if place in of_kept) for by in RANKS[:2])
    terms = found.terms[told.offer[order]]
    others = order[terms != "spot"]
    best = (best_of(gpu, told, groups, order) for gpu in asked_after)
    return Rows(
        listed=tuple(distinct(told, order, groups, limit)),
        cheapest=cheapest,
        fastest=fastest,
        front=tuple(pareto(told, order)),
        spare=int(others[0]) if terms[0] == "spot" and len(others) else None,
        able=_with_cuda(told, order, groups),
        asked_after=tuple(place for place in best if place is not None),
    )


def distinct(told: Candidates, order: Ints, groups: Groups, limit: int) -> list[int]:
    """The best of each GPU and count."""
    seen: dict[tuple[str, float], int] = {}
    for place in order.tolist():
        key = (groups.groups[int(told.group[place])].gpu.id, float(told.gpus[place]))
        seen.setdefault(key, place)
        if len(seen) >= limit:
            break
    return list(seen.values())


def _with_cuda(told: Candidates, order: Ints, groups: Groups) -> int | None:
    """The best that runs CUDA, where the first does not."""
    able = [CUDA in group.gpu.supports for group in groups.groups]
    if able[int(told.group[order[0]])]:
        return None
    return next((place for place in order.tolist() if able[int(told.group[place])]), None)


def best_of(gpu: str, told: Candidates, groups: Groups, order: np.ndarray) -> int | None:
    """The best place of a GPU."""
    mine = np.array([group.gpu.id == gpu for group in groups.groups], dtype=bool)
    found = order[mine[told.group[order]]] if len(order) else order
    return int(found[0]) if len(found) else None
