"""Prefill on newer GPUs and decode on older ones, as published (Splitwise, ISCA 2024, arXiv 2311.18677).

Llama-2-70B on machines of 8 H100 or 8 A100, rented at the paper's 38 and 17.6 dollars an hour, serving Azure's conversations with
nine in ten first tokens within a second and at most 100 ms between tokens. The search has no rule about disaggregation.

The engine is that of the paper's year: vLLM of 2023 prefills whole prompts in steps of their own, during which no token is
decoded. Engines that prefill in chunks beside decode steps lose less when aggregated, so disaggregation gains less there.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.serving_cases import CATALOG, workload_and_shape
from whichgpu.decide.roles.cluster import GpuKind, ModelLoad
from whichgpu.decide.roles.designs import UNLIMITED_RATE, designs
from whichgpu.decide.roles.role_replicas import role_replicas
from whichgpu.decide.roles.roles_answer import Design, DesignsAnswer
from whichgpu.estimate.serving.curve import Objectives
from whichgpu.estimate.serving.load import Lengths, Load
from whichgpu.workload.traces.reader import read_trace

SHARED = Path(os.environ.get("WHICHGPU_SHARED", Path(__file__).resolve().parents[3] / "shared"))
TRACE = SHARED / "traces" / "AzureLLMInferenceTrace_conv.csv"
NEW, OLD = "h100-sxm", "a100-sxm-80gb"
PRICES = {NEW: 38.0 / 8, OLD: 17.6 / 8}
YEAR = 2023  # of the engine that the paper compares with
BUDGET = 4 * 38.0 + 4 * 17.6

pytestmark = pytest.mark.long


def best_designs(traced: bool, rate: float, budget: float | None) -> DesignsAnswer:
    if traced and not TRACE.is_file():
        pytest.skip("the published trace does not lie beside the checkout")
    workload, shape = workload_and_shape("llama-2-70b")
    workload = replace(workload, year=YEAR)
    trace = read_trace(TRACE) if traced else None
    load = Load(rate, Lengths(1155, 0.8), Lengths(211, 0.8), 2000, trace=trace)
    kinds = [GpuKind(CATALOG.gpu_by_id[gpu], None, price, 8, machines=True) for gpu, price in PRICES.items()]
    return designs(kinds, ModelLoad("llama-2-70b", workload, shape, load, Objectives(1.0, 0.1, 90)), budget)


def per_dollar(one: Design) -> float:
    return one.capacity.value / float(one.cost.amount)


@pytest.mark.parametrize("traced", [True, False])
def test_at_a_high_rate_prefill_on_new_and_decode_on_old_gpus_has_the_highest_capacity_at_equal_cost(traced: bool) -> None:
    answer = best_designs(traced, 60.0, BUDGET)
    best, alone = answer.best, [one for one in answer.designs if len(one.gpus) == 1]
    assert best.disaggregated
    gpus = {
        (role, gpu): sum(one.gpus for one in best.groups if (one.role, one.gpu) == (role, gpu))  # in groups of several layouts
        for role in ("prefill", "decode")
        for gpu in (NEW, OLD)
    }
    assert gpus["prefill", NEW] > 2 * gpus["prefill", OLD]
    assert gpus["decode", OLD] > 2 * gpus["decode", NEW]
    assert {one.name for one in alone} >= {NEW, OLD}
    assert all(float(one.cost.amount) <= BUDGET + 1e-6 for one in answer.designs)
    # per dollar against each GPU type alone and aggregated, and at equal budget against any GPU type alone
    assert per_dollar(best) > 1.3 * max(per_dollar(one) for one in alone if not one.disaggregated)
    assert best.capacity.value > max(one.capacity.value for one in alone)


def test_disaggregation_gains_per_dollar_what_the_paper_claims() -> None:
    """The paper's claims per cost are all against aggregated baselines (sections VI-B and VI-C, figure 18).

    At equal power Splitwise-HA (prefill on H100, decode on A100) serves 1.18 times what Baseline-A100 does at 10% lower cost:
    1.31 times per dollar. At equal cost the best design is one kind of GPU, disaggregated, not the mix: Splitwise-AA, with 1.4
    times the throughput of Baseline-H100 (and 2.15 times that of Baseline-A100 at equal power and cost). So the paper does not
    claim that the mix serves more per dollar than one kind disaggregated; its figures say the opposite (1.31 against 2.15).
    A100 alone gains less here (1.4 times) than in the paper, whose clusters are sized for BLOOM-176B.
    """
    answer = best_designs(True, 60.0, BUDGET)
    whole = {one.name: per_dollar(one) for one in answer.designs if not one.disaggregated}
    split = {tuple(gpu for gpu, _ in one.gpus): per_dollar(one) for one in answer.designs if one.disaggregated}
    assert split[NEW, OLD] > 1.18 / 0.9 * whole[OLD]
    assert max(split[(NEW,)], split[(OLD,)]) > 1.4 * whole[NEW]
    assert split[(OLD,)] > 1.2 * whole[OLD]
    # Not claimed by the paper, but so here: the mix serves more per dollar than any one kind disaggregated.
    assert split[NEW, OLD] > max(split[(NEW,)], split[(OLD,)])


def test_a_dollar_prefills_more_on_new_gpus_and_decodes_more_on_old_ones() -> None:
    """The reason for the published mix: prefill is worth the new GPU's price, decode is not.

    Against new GPUs alone, disaggregated, the mix gains only what decode costs less, which whole machines may use up:
    222 dollars an hour serve 78 requests/s mixed (35.0 per 100 dollars), 190 dollars 65 on H100 alone (34.1 per 100).
    """
    workload, shape = workload_and_shape("llama-2-70b")
    load = Load(UNLIMITED_RATE, Lengths(1155, 0.8), Lengths(211, 0.8), 2000)
    kinds = [GpuKind(CATALOG.gpu_by_id[gpu], None, price, 8, machines=True) for gpu, price in PRICES.items()]
    model = ModelLoad("llama-2-70b", replace(workload, year=YEAR), shape, load, Objectives(1.0, 0.1, 90))
    replicas, _ = role_replicas(kinds, (model,), budget=BUDGET)
    per_hour = {
        (role, gpu): max(one.capacity / (one.degree * PRICES[gpu]) for one in replicas if (one.role, one.gpu) == (role, gpu))
        for role in ("prefill", "decode")
        for gpu in (NEW, OLD)
    }
    assert per_hour["prefill", NEW] > 1.3 * per_hour["prefill", OLD]
    assert per_hour["decode", OLD] > 1.05 * per_hour["decode", NEW]  # the capacities are known to within 6%


def test_at_a_low_rate_one_machine_whole_is_cheapest() -> None:
    answer = best_designs(True, 1.0, None)
    assert not answer.best.disaggregated
    assert len(answer.best.gpus) == 1
    assert all(one.cost.amount >= answer.best.cost.amount for one in answer.designs)
    both = [one for one in answer.designs if one.disaggregated and len(one.gpus) > 1]
    assert all(one.cost.amount > 2 * answer.best.cost.amount for one in both)
