"""Step times and servers that several plans of one question share."""

from __future__ import annotations

from datetime import date
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from whichgpu.base.disk_cache import content_hash
from whichgpu.catalog.store import Catalog
from whichgpu.decide.plan.capacity import Roles, one_sequence, replica_capacities
from whichgpu.decide.plan.inputs import served_models
from whichgpu.decide.plan.question import PlanQuestion, RequestedModel
from whichgpu.decide.plan.simulate import _estimated_server
from whichgpu.decide.plan.solver.build import ServedModel
from whichgpu.decide.roles import step_times
from whichgpu.decide.roles.step_times import replica_steps
from whichgpu.estimate.group.fabric import fabric_of
from whichgpu.estimate.lookup_cache import LookupCache
from whichgpu.estimate.serving.scheduler_limits import LimitOverrides

LOOKUPS = LookupCache(Catalog(), as_of=date(2026, 10, 1))
KINDS = [(gpu, fabric_of(gpu)) for gpu in (LOOKUPS.device(name).gpu for name in ("L4", "A100 SXM 80GB"))]


def served(**fields: str) -> ServedModel:
    question = PlanQuestion((RequestedModel("llama-3.1-8b", {"seq_in": "700", "seq_out": "100", **fields}),))
    return served_models(question, LOOKUPS)[0]


def rates(model: ServedModel, *roles: Roles) -> list[list[tuple[str, float]]]:
    precisions = [["bf16"]] * len(KINDS)
    capacities = replica_capacities(
        model.request,
        model.traffic.buckets,
        model.objectives,
        KINDS,
        [1] * len(KINDS),
        precisions,
        roles or [Roles()] * len(KINDS),
    )
    return [[(one.role, float(one.rates.sum())) for one in of_kind] for of_kind in capacities]


def test_plans_at_other_rates_and_objectives_share_step_times_and_have_their_own_capacities() -> None:
    loose, tight = served(rate="1/s", tpot_max="100ms"), served(rate="9/s", tpot_max="30ms", ttft_max="1s", percentile="99")
    first, second = (replica_steps(one.request, one.request.workload, one.traffic.buckets, KINDS) for one in (loose, tight))
    assert second is first
    cached = [rates(one) for one in (loose, tight)]
    step_times._CACHE.clear()
    assert [rates(one) for one in (tight, loose)][::-1] == cached
    assert cached[0][0][0][1] > cached[1][0][0][1]
    longer = served(rate="1/s", seq_in="7000")
    other = replica_steps(longer.request, longer.request.workload, longer.traffic.buckets, KINDS)
    assert all(np.all(a.prefill > b.prefill) for a, b in zip(other, first, strict=True) if a and b)


def test_an_engine_that_was_simulated_leaves_the_next_one_unchanged() -> None:
    request, (gpu, fabric) = served(rate="1/s").request, KINDS[1]
    pool: Any = SimpleNamespace(gpu=gpu, fabric=fabric)
    first, second = (
        _estimated_server(request, one_sequence(request.workload, 1), pool, LimitOverrides(max_sequences=8), 900)
        for _ in range(2)
    )
    name = content_hash([second])
    first.run([(0.0, 700, 100, ()), (0.1, 700, 100, ())])
    assert (
        content_hash([_estimated_server(request, one_sequence(request.workload, 1), pool, LimitOverrides(max_sequences=8), 900)])
        == name
    )


@pytest.mark.parametrize("disaggregated", [False, True])
def test_a_kind_gets_the_replicas_of_its_roles_alone(disaggregated: bool) -> None:
    workers, both = rates(served(rate="1/s"), Roles(False, True), Roles(True, disaggregated))
    assert [role for role, _ in workers] == ["prefill", "decode"]
    assert [role for role, _ in both] == ["both", "prefill", "decode"][: 3 if disaggregated else 1]
    assert all(rate > 0 for _, rate in (*workers, *both))
