"""If there is no plan, each limit that alone prevents one is named with the smallest sufficient change."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from tests.plan_cases import market
from whichgpu.base.messages import Message
from whichgpu.decide.plan.capacity import Shortfall
from whichgpu.decide.plan.refusal import Refusal, missed, named_buckets, refusal
from whichgpu.decide.plan.solver.problem import Job, Pool, PriceOption, Problem, Quota
from whichgpu.decide.plan.solver.solve import solve
from whichgpu.decide.plan.traffic import Traffic
from whichgpu.estimate.serving.curve import Objectives

WEIGHTS_TOO_LARGE = SimpleNamespace(shortfall=None)


def simple_problem(**changes: Any) -> Problem:
    """Ten requests a second; one a machine does, at 1 USD an hour, or at 3."""
    pools = tuple(Pool(name, name, 1, (PriceOption(name, price),)) for name, price in (("cheap", 1.0), ("dear", 3.0)))
    fields: dict[str, Any] = {
        "pools": pools,
        "columns": ("cheap", "dear"),
        "rates": np.ones((2, 1)),
        "demand": np.array([[10.0]]),
    }
    return market(2, 1, **(fields | changes))


def refusal_messages(problem: Problem) -> tuple[dict[str, Message], dict[str, Message]]:
    """Reasons, and changes and advice, by their ids; there is no plan, indeed."""
    assert solve(problem) is None
    refused = refusal(SimpleNamespace(problem=problem), "USD")  # type: ignore[arg-type]
    assert min(refused.rejected.values()) > 0
    changes = [one.message for one in refused.relaxations if one.message is not None]
    return {one.id: one for one in refused.reasons}, {one.id: one for one in (*changes, *refused.advice)}


def test_budget_refusal_gives_the_smallest_sufficient_budget() -> None:
    reasons, ways_out = refusal_messages(simple_problem(budget=4.0))
    assert reasons["plan.no-budget"].values == {"budget": "4 USD/h", "least": "10 USD/h"}
    assert ways_out["plan.relax-budget"].values["value"] == "10usd/h"
    assert solve(simple_problem(budget=10.0)) is not None
    assert ways_out["plan.relax-rate"].values["share"] == "40%"


def test_quota_refusal_gives_the_fewest_sufficient_gpus() -> None:
    quotas = (Quota("cheap", frozenset([0]), 2.0), Quota("both", frozenset([0, 1]), 7.0))
    reasons, ways_out = refusal_messages(simple_problem(quotas=quotas))
    assert set(reasons) == {"plan.no-quota"}
    assert reasons["plan.no-quota"].values == {"name": "both", "most": "7"}
    assert ways_out["plan.relax-quota"].values == {"name": "both", "most": 10}
    assert solve(simple_problem(quotas=(quotas[0], replace(quotas[1], limit=10.0)))) is not None
    assert solve(simple_problem(quotas=(quotas[0], replace(quotas[1], limit=9.0)))) is None


def test_quotas_that_conflict_together_are_reported_together() -> None:
    quotas = (Quota("cheap", frozenset([0]), 2.0), Quota("dear", frozenset([1]), 2.0), Quota("both", frozenset([0, 1]), 5.0))
    reasons, ways_out = refusal_messages(simple_problem(quotas=quotas))
    assert set(reasons) == {"plan.no-together"}
    assert set(ways_out) == {"plan.relax-rate"}
    assert ways_out["plan.relax-rate"].values["share"] == "40%"


def test_owned_gpus_refusal_gives_how_many_more_suffice() -> None:
    pools = (Pool("mine", "h100-sxm", 1, (PriceOption("mine", 0.1, limit=4.0, term="owned"),)),)
    alone = {"pools": pools, "columns": ("mine",), "rates": np.ones((1, 1)), "pool_of": np.zeros(1, dtype=np.int64)}
    problem = simple_problem(**alone, uses=np.ones(1, dtype=np.int64))
    reasons, ways_out = refusal_messages(problem)
    assert reasons["plan.no-owned"].values == {"gpu": "h100-sxm", "most": "4"}
    assert ways_out["plan.relax-owned"].values == {"gpu": "h100-sxm", "most": 10}


@pytest.mark.parametrize(
    ("wall", "window", "reason", "value"),
    [
        (np.array([np.inf, np.inf]), 5.0, "plan.no-job-memory", None),
        (np.array([30.0, 8.123]), 5.0, "plan.no-deadline", "8.13h"),
    ],
)
def test_job_refusal_gives_the_earliest_feasible_deadline(wall: Any, window: float, reason: str, value: str | None) -> None:
    reasons, ways_out = refusal_messages(simple_problem(jobs=(Job("tune", wall, wall, window),)))
    assert reasons[reason].values["name"] == "tune"
    if value:
        assert ways_out["plan.relax-deadline"].values == {"name": "tune", "value": value}
    else:
        assert "plan.relax-memory" in ways_out


def unserved(copies: list[Any], engine: Any = None) -> Refusal:
    """The refusal of a model whose second bucket no GPU serves."""
    buckets: Any = (
        SimpleNamespace(share=0.75, prompt=100, output=10, name="short"),
        SimpleNamespace(share=0.25, prompt=9000, output=90, name="long"),
    )
    objectives = Objectives(ttft_max=0.5, tpot_max=0.05)
    model = SimpleNamespace(name="chat", traffic=Traffic(buckets, (1.0,), 1.0), objectives=objectives, engine=engine)
    problem = market(1, 2, rates=np.array([[1.0, 0.0]]), demand=np.array([[1.0, 1.0]]))
    formulation = SimpleNamespace(problem=problem, models=[model], replicas=[[copies]], bucket=lambda place: (0, place))
    return refusal(formulation, "USD")  # type: ignore[arg-type]


def late(ttft: float, tpot: float, alone: tuple[float, float] = (np.inf, np.inf), fits: bool = True) -> Any:
    """A replica that serves the first bucket; of the second, what its objectives would need alone and together."""
    needs = {"ttft": np.array([0.1, alone[0]]), "tpot": np.array([0.01, alone[1]])}
    both = {"ttft": np.array([0.1, ttft]), "tpot": np.array([0.01, tpot])}
    return SimpleNamespace(shortfall=Shortfall(np.array([True, fits]), needs, both))


def test_unservable_bucket_is_refused_with_its_share_and_the_nearest_objective() -> None:
    refusal = unserved([late(0.95, 0.04, alone=(0.95, np.inf)), late(0.4, 0.0602, alone=(np.inf, 0.0602)), WEIGHTS_TOO_LARGE])
    (reason,) = refusal.reasons
    assert reason.id == "plan.no-objective"
    assert (reason.values["share"], reason.values["buckets"], reason.values["limit"]) == ("25.0%", ("long",), "50 ms")
    assert refusal.rejected == {"ttft": 1, "tpot": 1, "memory": 1}
    (change,) = refusal.relaxations
    assert (change.part, change.values) == ("goals", {"chat": {"tpot": pytest.approx(0.0602)}})


def test_if_no_single_objective_suffices_all_are_relaxed_to_the_nearest_replica() -> None:
    refusal = unserved([late(5.0, 0.06), late(0.75, 0.08)])
    assert refusal.relaxations[0].values == {"chat": {"ttft": pytest.approx(0.75), "tpot": pytest.approx(0.08)}}


def test_out_of_memory_and_unsupported_engines_are_refused_without_a_relaxation() -> None:
    for copies in ([late(1.0, 1.0, fits=False)], [WEIGHTS_TOO_LARGE]):
        refusal = unserved(copies, SimpleNamespace(name="vLLM"))
        assert [one.id for one in (*refusal.reasons, *refusal.advice)] == ["plan.no-memory", "plan.relax-memory"]
        assert (refusal.rejected, refusal.relaxations) == ({"memory": 1}, ())
    refusal = unserved([], SimpleNamespace(name="vLLM"))
    assert [one.id for one in (*refusal.reasons, *refusal.advice)] == ["plan.no-engine", "plan.relax-engine"]
    assert refusal.reasons[0].values["engine"] == "vLLM"
    assert unserved([]).reasons[0].id == "plan.no-memory"


def late_fleet(ttft: float, tpot: float, fixed: bool = False) -> Refusal:
    """What changes a fleet with these seconds at its percentile would need."""
    objectives = Objectives(ttft_max=0.5, tpot_max=0.05)
    checked = SimpleNamespace(model="chat", ttft=ttft, tpot=tpot, latency=9.0, holds=False, worst="ttft")
    return missed([checked], [SimpleNamespace(name="chat", objectives=objectives)], {"ttft": 3}, fixed)  # type: ignore[list-item]


def test_a_fleet_that_misses_in_the_simulation_needs_the_seconds_it_keeps_or_a_headroom_that_is_not_fixed() -> None:
    (change,) = late_fleet(0.7012, 0.04).relaxations
    assert (change.part, change.values) == ("goals", {"chat": {"ttft": pytest.approx(0.702)}})
    assert late_fleet(0.7, 0.06).relaxations[0].values == {"chat": {"ttft": pytest.approx(0.7), "tpot": pytest.approx(0.06)}}
    assert late_fleet(0.49, 0.04).relaxations[0].values == {"chat": {"ttft": 0.5}}  # each holds alone, not both together
    assert [one.part for one in late_fleet(0.7, 0.04, fixed=True).relaxations] == ["headroom", "goals"]
    assert (late_fleet(np.inf, 0.04).relaxations, late_fleet(np.inf, 0.04).rejected) == ((), {"ttft": 3})


def test_many_buckets_are_named_by_the_largest() -> None:
    names = named_buckets([(f"b{n}", n / 100) for n in range(1, 6)])
    assert names["share"] == "15.0%"
    assert [one if isinstance(one, str) else one.values["bucket"] for one in names["buckets"]] == ["b5", "b4", "b3", "…"]
