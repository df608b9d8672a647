"""Every row of a recommendation is estimated the same way: a GPU's figures do not depend on the other rows."""

from __future__ import annotations

from datetime import date

from whichgpu.api.recommend.recommend import recommend
from whichgpu.decide.candidate import Candidate
from whichgpu.decide.requirements import Requirements

DAY = date(2026, 8, 1)


def rows(**constraints: object) -> dict[tuple[float, str], Candidate]:
    answer = recommend("finetune", "llama-3.1-8b", Requirements(**constraints), DAY, qlora=True)  # type: ignore[arg-type]
    return {(one.gpus, one.gpu): one for one in answer.candidates}


def test_a_gpu_is_as_fast_and_as_full_in_every_list() -> None:
    """On 24 GB an 8B QLoRA step fits for sure with checkpointing alone: a screen that takes it without would be cheaper."""
    alone, beside, by_cost = rows(gpu="RTX A5000"), rows(gpu="RTX A5000,H100 SXM"), rows(rank="cost")
    for others in (beside, by_cost):
        for place in alone.keys() & others.keys():
            one, other = alone[place], others[place]
            assert (one.checkpointing, one.time.value, one.memory.value) == (
                other.checkpointing, other.time.value, other.memory.value
            )  # fmt: skip
    assert alone.keys() & beside.keys()
    assert alone.keys() & by_cost.keys()
