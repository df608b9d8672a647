"""Other cards to buy than the answer: fewer of a larger card, more memory for the budget, and why some are left out."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from whichgpu.base.messages import Message, msg
from whichgpu.base.units import format_amount, format_memory
from whichgpu.decide.answer.explain import gpu_count_label
from whichgpu.decide.candidate import Candidate
from whichgpu.decide.candidates import Candidates
from whichgpu.decide.configurations.configuration import Configuration, Infeasibility
from whichgpu.decide.framework_support import CUDA
from whichgpu.decide.question import EvaluatedQuestion
from whichgpu.decide.recommend import RankedCandidates
from whichgpu.price.table import Ints

MORE_MEMORY = 1.2  # A card with this many times the memory of the answer's counts as roomier (assumed).


def other_purchases(candidates: Candidates, order: Ints, screened: EvaluatedQuestion) -> tuple[int, ...]:
    """Return the index of the cheapest candidate with fewer cards, else of the best with more memory; for purchases."""
    if not screened.selection.purchase or not len(order):
        return ()
    gpus = np.array([group.gpus for group in screened.groups.groups])[candidates.group[order]]
    memory = np.array([float(group.gpu.memory_marketed_bytes) for group in screened.groups.groups])[candidates.group[order]]
    supported = candidates.poorly_supported[order] == candidates.poorly_supported[order[0]]
    fewer, roomier = supported & (gpus < gpus[0]), supported & (gpus == gpus[0]) & (memory >= memory[0] * MORE_MEMORY)
    if fewer.any():
        return (int(order[np.argmin(np.where(fewer, candidates.run_cost.cost[order], np.inf))]),)
    return (int(order[np.argmax(roomier)]),) if roomier.any() else ()


def best_unsupported(candidates: Candidates, order: Ints, screened: EvaluatedQuestion) -> tuple[int, ...]:
    """Return the index of the best candidate on a card that software supports badly, if the answer is none; for purchases."""
    if not screened.selection.purchase or not len(order) or candidates.poorly_supported[order[0]]:
        return ()
    poor = order[candidates.poorly_supported[order]]
    return (int(poor[0]),) if len(poor) else ()


def left_out(
    best: Candidate, unsupported: Candidate | None, ranked: RankedCandidates, screened: EvaluatedQuestion
) -> Iterator[Message]:
    """Yield why cards with less memory, and cards that software supports badly, are not the answer; for purchases."""
    if best.purchase is None:
        return
    pairs = zip(screened.groups.groups, ranked.results, strict=True)
    with_cuda = [(group.gpu, result) for group, result in pairs if CUDA in group.gpu.supports]
    small = [gpu for gpu, result in with_cuda if isinstance(result, Infeasibility) and result.reason == "memory"]
    holding = [(gpu, result) for gpu, result in with_cuda if isinstance(result, Configuration)]
    needed = min((int(best.needed.value), *(result.need for _, result in holding)))
    smallest = min((gpu.memory_marketed_bytes for gpu, _ in holding), default=needed)
    if too_small := [gpu for gpu in small if gpu.memory_marketed_bytes < min(needed, smallest)]:
        largest = max(too_small, key=lambda gpu: gpu.memory_marketed_bytes)
        yield msg("recommend.too-small", memory=largest.memory_label, need=format_memory(needed))
    if unsupported is not None:
        count = gpu_count_label(unsupported.gpus)
        yield msg(
            "recommend.ranks-behind", n=int(unsupported.gpus), gpus=count, gpu=unsupported.gpu_name, price=_price(unsupported)
        )


def _price(one: Candidate) -> str:
    assert one.purchase is not None
    return f"{format_amount(one.purchase.amount)} {one.purchase.currency}"
