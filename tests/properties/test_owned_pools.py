"""`plan` on owned GPUs is beaten by no fleet of the same GPUs that `recommend` shows."""

from __future__ import annotations

import random
from typing import Any

import pytest

import whichgpu
from whichgpu.base.errors import NoAnswer

MODELS = ("llama-3.1-8b", "qwen2.5-7b", "mistral-7b", "qwen2.5-32b")
GPUS = ("A100-SXM-80GB", "H100-SXM", "L40S", "A10G", "L4", "V100-SXM-32GB", "T4", "A40")
TOLERANCE = 1.011  # The solver stops within 1% of the optimum, and costs are rounded to three digits.


def _question(seed: int) -> dict[str, Any]:
    """Return a random question on one or two kinds of owned GPUs."""
    chance = random.Random(seed)
    kinds = chance.sample(GPUS, chance.choice([1, 2]))
    return {
        "model": chance.choice(MODELS),
        "owned": ",".join(f"{chance.choice([1, 2, 4, 8])}x{gpu}" for gpu in kinds),
        "rate": f"{10 ** chance.uniform(-0.5, 1.2):.3g}/s",
        "seq_in": chance.choice([300, 1000, 3000]),
        "seq_out": chance.choice([50, 200, 500]),
        "ttft_max": chance.choice(["1s", "3s"]),
        "tpot_max": chance.choice(["50ms", "100ms"]),
        "risk": "even",
        "as_of": "2026-10-01",
    }


def _is_not_beaten(seed: int) -> bool:
    """Compare the owned fleets of one question; return whether `recommend` shows any that keeps the objectives."""
    question = _question(seed)
    model = question.pop("model")
    try:
        candidates = whichgpu.recommend("serve", model, **question).candidates
    except NoAnswer:
        return False
    costs = [float(one.cost_per_hour.amount) for one in candidates if one.term == "owned" and one.keeps_limits >= 0.5]
    if not costs:
        return False
    plan = whichgpu.plan(model, **question, only_owned=True, curve=False)
    assert float(plan.cost_per_hour.amount) <= TOLERANCE * min(costs), (seed, model, question, costs)
    return True


def test_no_recommended_fleet_of_owned_gpus_is_cheaper_than_the_plan() -> None:
    assert _is_not_beaten(1)


@pytest.mark.long
def test_no_recommended_fleet_of_many_owned_pools_is_cheaper_than_the_plan() -> None:
    compared = sum(_is_not_beaten(seed) for seed in range(60))
    assert compared >= 40
