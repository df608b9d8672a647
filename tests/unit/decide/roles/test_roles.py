"""Roles: the search against every choice there is, and real GPUs with their roles or reasons."""

from __future__ import annotations

from itertools import product
from math import inf
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from tests.serving_cases import CATALOG, linear, workload_and_shape
from whichgpu.base.errors import NoAnswer, UsageError
from whichgpu.base.messages import english, msg
from whichgpu.decide.roles.assign import assign_roles, better_serving, idle_gpus
from whichgpu.decide.roles.assignment import Assignment, ReplicaCount, best_assignment
from whichgpu.decide.roles.cluster import GpuKind, ModelLoad
from whichgpu.decide.roles.designs import designs
from whichgpu.decide.roles.fleets import SimulatedAssignment
from whichgpu.decide.roles.max_rate import at_even_rate, counted_requests, max_rate
from whichgpu.decide.roles.role_replicas import RoleReplica, replica_sizes, role_replicas
from whichgpu.estimate.serving.curve import Objectives
from whichgpu.estimate.serving.fleet.pools import ROLES, Fleet, ReplicaPool, Role
from whichgpu.estimate.serving.load import Lengths, Load
from whichgpu.workload.traces.reader import Trace

GPUS = CATALOG.gpu_by_id
OLD, NEW = "v100-sxm-16gb", "h100-sxm"


def copy(role: Role, capacity: float, gpu: str = NEW, degree: int = 1, model: str = "m", precision: str = "bf16") -> RoleReplica:
    return RoleReplica(model, gpu, degree, role, precision, capacity, 0.1, 0.01)


def kind(gpu: str = NEW, count: int | None = 3, **fields: float) -> GpuKind:
    return GpuKind(GPUS[gpu], count, **fields)  # type: ignore[arg-type]


def served(model: str, rate: float, ttft: float | None = 2.0, tpot: float | None = 0.1) -> ModelLoad:
    workload, shape = workload_and_shape(model)
    load = Load(rate, Lengths(600, 0.6), Lengths(100, 0.6), 1000)
    return ModelLoad(model, workload, shape, load, Objectives(ttft, tpot, 90))


def counts(assignment: Assignment | None) -> dict[tuple[str, str, str], int]:
    assert assignment is not None
    return {(one.replica.model, one.replica.gpu, one.replica.role): one.count for one in assignment.chosen}


def test_disaggregated_if_its_capacity_is_higher() -> None:
    """Of three GPUs one prefills 10 requests/s and two decode 5 each; aggregated, three sustain 3 each."""
    options = [copy("both", 3), copy("prefill", 10), copy("decode", 5)]
    assignment = best_assignment(options, [kind()], {"m": 1.0})
    assert counts(assignment) == {("m", NEW, "prefill"): 1, ("m", NEW, "decode"): 2}
    assert assignment is not None
    assert assignment.times == pytest.approx(10)
    assert counts(best_assignment(options, [kind()], {"m": 1.0}, disaggregate=False)) == {("m", NEW, "both"): 3}


def test_equals_are_served_whole() -> None:
    assignment = best_assignment([copy("both", 5), copy("prefill", 10), copy("decode", 10)], [kind(count=2)], {"m": 1.0})
    assert counts(assignment) == {("m", NEW, "both"): 2}


def test_disaggregation_needs_equal_kv_cache_precision() -> None:
    options = [copy("both", 1), copy("prefill", 10), copy("decode", 10, OLD, precision="fp16"), copy("both", 1, OLD)]
    assignment = best_assignment(options, [kind(count=1), kind(OLD, 1)], {"m": 1.0})
    assert counts(assignment) == {("m", NEW, "both"): 1, ("m", OLD, "both"): 1}


def test_prefill_worker_without_a_decode_worker_stays_idle() -> None:
    """A prefill worker without a decode worker has no capacity and stays idle."""
    assignment = best_assignment([copy("both", 4, degree=2), copy("prefill", 9)], [kind()], {"m": 1.0})
    assert counts(assignment) == {("m", NEW, "both"): 1}


def test_models_share_a_cluster_max_min_fairly() -> None:
    options = [copy("both", 6, model="a"), copy("both", 2, model="b")]
    assignment = best_assignment(options, [kind(count=4)], {"a": 6.0, "b": 2.0})
    assert counts(assignment) == {("a", NEW, "both"): 2, ("b", NEW, "both"): 2}
    assert assignment is not None
    assert assignment.times == pytest.approx(2)


def test_the_cheapest_fleet_is_paid_by_the_machine_or_by_the_gpu() -> None:
    options = [copy("both", 2.0, NEW), copy("both", 1.0, OLD)]
    rates = {"m": 5.0}
    by_gpu = [kind(NEW, None, price=3.0), kind(OLD, None, price=1.0)]
    assignment = best_assignment(options, by_gpu, rates, cheapest=True)
    assert assignment is not None
    assert (counts(assignment), assignment.cost) == ({("m", OLD, "both"): 5}, 5.0)
    by_machine = [replace(by_gpu[0], machines=True, per_machine=2), replace(by_gpu[1], machines=True, per_machine=8)]
    assignment = best_assignment(options, by_machine, rates, cheapest=True)
    assert assignment is not None
    assert (counts(assignment), assignment.cost) == ({("m", OLD, "both"): 5}, 8.0)
    assert best_assignment(options, [kind(NEW, 1), kind(OLD, 2)], rates, cheapest=True) is None


def test_budget_buys_the_highest_capacity() -> None:
    prices = [kind(NEW, None, price=3.0), kind(OLD, None, price=1.0)]
    assignment = best_assignment([copy("both", 2.0, NEW), copy("both", 0.5, OLD)], prices, {"m": 1.0}, 7.0)
    assert assignment is not None
    assert (counts(assignment), assignment.cost) == ({("m", NEW, "both"): 2, ("m", OLD, "both"): 1}, 7.0)


@pytest.mark.parametrize("seed", range(12))
def test_search_equals_exhaustive_search(seed: int) -> None:
    """Two kinds, three roles, one or two GPUs per replica: every combination of counts is tried."""
    chance = np.random.default_rng(seed)
    options = [
        copy(role, float(chance.integers(1, 9)), gpu, int(chance.integers(1, 3)))
        for gpu in (NEW, OLD)
        for role in ROLES
    ]  # fmt: skip
    room = {NEW: 3, OLD: 4}
    best = 0.0
    for numbers in product(*(range(room[one.gpu] // one.degree + 1) for one in options)):
        chosen = list(zip(numbers, options, strict=True))
        if any(sum(n * one.degree for n, one in chosen if one.gpu == gpu) > room[gpu] for gpu in room):
            continue
        whole, read, written = (sum(n * one.capacity for n, one in chosen if one.role == role) for role in ROLES)
        best = max(best, whole + min(read, written))
    assignment = best_assignment(options, [kind(gpu, count) for gpu, count in room.items()], {"m": 1.0})
    assert assignment is not None
    assert assignment.times == pytest.approx(best)


def test_gpus_left_over_have_a_reason_for_every_model() -> None:
    replicas = [copy("both", 5, degree=2, model="a")]
    assignment = Assignment((ReplicaCount(replicas[0], 1),), 1.0, 0.0)
    models = [replace(served("llama-3.1-8b", 1.0), name=name) for name in ("a", "b")]
    reason = english().render
    (idle,) = idle_gpus(assignment, [kind()], models, replicas, {("b", NEW): msg("roles.none-hint", reasons="no model")})
    assert (idle.gpu, idle.gpus) == (NEW, 1)
    assert [reason(one) for one in idle.reasons] == ["a needs 2 x H100 SXM per replica, and 1 are left", "no model"]


def test_model_is_placed_on_the_gpus_it_needs() -> None:
    large, small = served("llama-3.1-70b", 1.0), served("llama-3.1-8b", 1.0)
    assert replica_sizes(small, kind(OLD, 8)) == [2, 4, 8]
    assert replica_sizes(small, kind(NEW, 2)) == [1, 2]
    reason = replica_sizes(large, kind(NEW, 1))
    assert not isinstance(reason, list)
    assert "H100" in english().render(reason)


def test_too_slow_for_the_objectives_is_a_reason_that_says_how_slow() -> None:
    replicas, reasons = role_replicas((kind(NEW, 1),), (served("llama-3.1-8b", 1.0, ttft=1e-4, tpot=1e-6),))
    assert not replicas
    assert "misses the objectives" in english().render(reasons["llama-3.1-8b", NEW])


@pytest.mark.long
def test_a_small_cluster_gets_roles_and_reasons() -> None:
    models = [served("llama-3.1-8b", 2.0), served("llama-3.1-70b", 0.5)]
    answer = assign_roles([kind(OLD, 3), kind(NEW, 1)], models)
    assert sum(one.gpus for one in answer.groups) + sum(one.gpus for one in answer.idle) == 4
    assert {one.model for one in answer.groups} == {"llama-3.1-8b"}
    assert {(one.gpu, one.gpus) for one in answer.idle} == {(OLD, 1)}
    words = [english().render(one) for one in answer.warnings]
    assert any("llama-3.1-70b is not served" in one for one in words)
    by_gpu = {one.gpu: one for one in answer.groups}
    assert by_gpu[OLD].precision == "fp16"
    assert by_gpu[NEW].precision == "bf16"
    (model,) = answer.models
    assert model.capacity.low < model.capacity.value < model.capacity.high
    assert model.fleet.met is not None
    assert model.fleet.met.value >= 0.9
    assert sum(one.chosen for one in answer.compared) == 1
    with pytest.raises(NoAnswer, match="none of these"):
        assign_roles([kind(OLD, 1)], models[1:])


@pytest.mark.parametrize(
    ("whole", "disaggregated", "best"),
    [
        (1.0, 1.3, "disaggregated"),
        (1.0, 1.01, "aggregated"),
        (1.0, 0.8, "aggregated"),
        (0.2, 0.3, "disaggregated"),
        (1.6, 2.5, "aggregated"),
        (0.0, 0.4, "disaggregated"),
    ],
)
def test_no_transfers_without_need(whole: float, disaggregated: float, best: str) -> None:
    """If aggregated replicas sustain 1.5 times the load, or disaggregation gains hardly anything, every replica is aggregated."""
    nothing = Assignment((), 0.0, 0.0)
    assert (
        better_serving(
            {
                "aggregated": SimulatedAssignment(nothing, {}, {}, whole),
                "disaggregated": SimulatedAssignment(nothing, {}, {}, disaggregated),
            }
        )
        == best
    )


def test_capacity_grows_with_replicas_and_shrinks_with_stricter_objectives() -> None:
    server, load = linear(fixed=2e-2, sequence=1e-2), Load(1.0, Lengths(100, 0.5), Lengths(50, 0.5), 500)
    capacities = [max_rate(Fleet((ReplicaPool("a", server, n),)), load, Objectives(1.0, 0.1, 90), 2.0) for n in (1, 2)]
    assert 1.5 * capacities[0] < capacities[1]
    assert max_rate(Fleet((ReplicaPool("a", server, 1),)), load, Objectives(1.0, 0.05, 90), 2.0) < capacities[0]
    assert max_rate(Fleet((ReplicaPool("a", server, 1),)), load, Objectives(1.0, 1e-5, 90), 2.0) == 0.0


def test_requests_that_find_emptier_batches_are_not_counted() -> None:
    """The first ones find batches that still fill, the last ones batches that empty because nobody arrives after them."""
    arrived = np.arange(100.0)
    outcome: Any = SimpleNamespace(arrived=arrived, finished=arrived + 10.0, answered=np.ones(100, dtype=bool))
    assert counted_requests(outcome) == slice(30, 89)
    long: Any = SimpleNamespace(arrived=arrived, finished=arrived + 90.0, answered=np.ones(100, dtype=bool))
    assert counted_requests(long) == slice(30, 65)  # At least half of those after the warm-up count.


def test_trace_is_shuffled_so_that_its_beginning_is_representative() -> None:
    trace = Trace("t")
    for place in range(1000):
        trace.times.append(float(place))
        trace.prompts.append(1 if place < 500 else 1000)
        trace.outputs.append(1 if place < 500 else 7)
    arrivals = list(at_even_rate(Load(5.0, Lengths(1), Lengths(1), 400, trace=trace)).arrivals())
    assert {(prompt, output) for _, prompt, output, _ in arrivals} == {(1, 1), (1000, 7)}
    assert sum(prompt == 1 for _, prompt, _, _ in arrivals) == pytest.approx(200, abs=50)


def test_bad_clusters_are_refused() -> None:
    one = served("llama-3.1-8b", 1.0)
    for make, words in (
        (lambda: assign_roles([], [one]), "at least one GPU type"),
        (lambda: assign_roles([kind(NEW, None)], [one]), "how many"),
        (lambda: assign_roles([kind(), kind()], [one]), "twice"),
        (lambda: kind(NEW, 0), "at least one GPU"),
        (lambda: designs([kind(), replace(kind(OLD), currency="EUR")], one), "one currency"),
        (lambda: kind(NEW, 1, price=-1.0), "price"),
        (lambda: replace(one, load=one.load.at(inf)), "above 0"),
        (lambda: designs([kind(NEW, None, price=1.0)], one, budget=0.0), "buys nothing"),
    ):
        with pytest.raises(UsageError, match=words):
            make()
