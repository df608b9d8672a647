"""Rented prefill and decode workers enter the program only from places where they may save money."""

from __future__ import annotations

from datetime import date
from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.surface.cli import call
from whichgpu.api.context import Context
from whichgpu.api.plan.plan_verb import question_of
from whichgpu.catalog.store import Catalog
from whichgpu.decide.plan.inputs import PlanSources, problem_limits, read_inputs, silent, supply_of
from whichgpu.decide.plan.refusal import Refusal
from whichgpu.decide.plan.solver.build import Formulation, build
from whichgpu.decide.plan.solver.useful_workers import best_places, cheapest_for_some_bucket, place_gains
from whichgpu.estimate.lookup_cache import LookupCache

INF = np.inf
TIGHT: dict[str, Any] = {"seq_in": 4000, "seq_out": 200, "in_spread": 0.8, "ttft_max": "2s", "tpot_max": "30ms"}
LOOSE: dict[str, Any] = {"seq_in": 500, "seq_out": 300, "ttft_max": "5s", "tpot_max": "200ms"}


@cache
def _sources() -> PlanSources:
    return PlanSources(LookupCache(Catalog()), date(2026, 10, 1))


def formulation(**fields: Any) -> Formulation:
    """The problem of a model on machines of Azure."""
    request = {"what": ("llama-3.1-70b",), "rate": "20/s", "provider": "azure", "curve": False, **fields}
    question = question_of(request, Context())
    inputs = read_inputs(question, _sources(), silent)
    supply = supply_of(question, inputs)
    assert not isinstance(supply, Refusal)
    return build(inputs.models, supply.pools, question.levels, problem_limits(question, inputs, supply.pools))


def test_a_place_gains_what_its_workers_save_on_the_buckets_they_serve_for_less() -> None:
    aggregated, weights = np.array([4.0, 2.0]), np.array([1.0, 2.0])
    prefill, decode = [np.array([1.0, 3.0]), np.array([2.0, 2.0])], [np.array([1.0, 1.0]), np.array([2.5, 2.5])]
    assert place_gains(aggregated, prefill, decode, weights).tolist() == pytest.approx([2.0 / 8.0, 0.0])


def test_a_place_that_alone_serves_a_bucket_in_time_comes_first() -> None:
    aggregated, weights = np.array([4.0, INF]), np.ones(2)
    prefill, decode = [np.array([0.1, INF]), np.array([9.0, 9.0])], [np.array([0.1, 1.0]), np.array([9.0, 9.0])]
    gains = place_gains(aggregated, prefill, decode, weights)
    assert best_places(gains) == [1, 0]
    assert best_places(np.array([0.01, 0.0])) == []


def test_workers_that_are_cheapest_for_some_bucket_are_kept() -> None:
    costs = np.array([[1.0, 9.0, INF], [2.0, 8.0, INF], [3.0, 1.0, INF], [9.0, 9.0, INF]])
    assert cheapest_for_some_bucket(costs) == [0, 1, 2]


def test_rented_workers_are_linked_within_a_place_and_use_its_network() -> None:
    tight = formulation(**TIGHT)
    workers = [one for one in tight.columns if one.replica.role != "both"]
    assert {one.replica.role for one in workers} == {"prefill", "decode"}
    pools = [tight.gpu_pools[one.pool_index] for one in workers]
    assert all(one.workers_only and one.place.startswith("azure ") for one in pools)
    assert all(one.fabric.network_bandwidth * one.pool.size >= 100e9 / 8 for one in pools)
    roles = tight.problem.workers
    assert roles is not None
    places = {
        (int(link), tight.gpu_pools[int(p)].place)
        for link, p in zip(roles.links, tight.problem.pool_of, strict=True)
        if link >= 0
    }
    assert len({link for link, _ in places}) == len(places)
    assert all(not row for pool, row in zip(tight.gpu_pools, tight.replicas[0], strict=True) if pool.workers_only)


def test_loose_objectives_need_no_workers() -> None:
    assert formulation(**LOOSE).problem.workers is None


@pytest.mark.long
def test_a_plan_to_rent_disaggregates_where_that_is_cheaper() -> None:
    words = "plan llama-3.1-70b --rate 20/s --in 4000 --in-spread 0.8 --out 200 --ttft 2s --tpot 30ms --provider azure".split()
    reply = call(*words, "--no-curve", "--as-of", "2026-10-01", "--json")
    document = reply.json()
    workers = [row for row in document["groups"] if row["role"] != "both"]
    assert {row["role"] for row in workers} == {"prefill", "decode"}
    assert len({(row["provider"], row["region"]) for row in workers}) == 1
    assert reply.code == (0 if all(row["holds"] for row in document["simulation"]) else 1)
