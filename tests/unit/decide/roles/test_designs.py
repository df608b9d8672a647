"""Ways to serve one model compared: what is corrected by simulation, what falls out, and which of near equals is named best."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pytest
from msgspec.structs import replace

from tests.unit.decide.roles.test_roles import NEW, OLD, copy, kind, served
from whichgpu.base.errors import NoAnswer, UsageError
from whichgpu.base.figure import Figure
from whichgpu.base.messages import Message, msg
from whichgpu.decide.roles.assignment import ReplicaCount
from whichgpu.decide.roles.designs import MIN_GAIN, UNLIMITED_RATE, designs
from whichgpu.decide.roles.role_replicas import RoleReplica

module = sys.modules["whichgpu.decide.roles.designs"]

ONE = served("llama-3.1-8b", 6.0)
RENTED = [kind(NEW, None, price=3.0), kind(OLD, None, price=1.0)]
Play = Callable[..., list[float]]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    """Given replicas, and fleets with a multiple of the program's capacity; returns the rates replicas were sized for."""

    def record_rates(
        replicas: Sequence[RoleReplica],
        times: Callable[[Sequence[ReplicaCount]], float] = lambda _: 1.0,
        reasons: dict[Any, Message] | None = None,
    ) -> list[float]:
        sized: list[float] = []

        def role_replicas(kinds: Any, models: Any, *_: Any) -> tuple[list[RoleReplica], dict[Any, Message]]:
            sized.append(models[0].load.rate)
            return [replace(one, model=ONE.name) for one in replicas], reasons or {}

        monkeypatch.setattr(module, "role_replicas", role_replicas)
        monkeypatch.setattr(module, "fleet_for", lambda served, chosen, kinds: chosen)
        monkeypatch.setattr(module, "max_rate", lambda fleet, load, objectives, estimate: times(fleet) * thinks(fleet))
        monkeypatch.setattr(module, "widest_range", lambda *_: Figure.exact(1.0, "s"))
        monkeypatch.setattr(module, "rate_figure", lambda rate, step: Figure.exact(rate, "requests/s"))
        monkeypatch.setattr(module, "role_groups", lambda *_: ())
        return sized

    return record_rates


CAPACITY: dict[tuple[str, str], float] = {}


def thinks(chosen: Sequence[ReplicaCount]) -> float:
    """Total capacity of these replicas by their own figures, independent of the program's."""
    total = dict.fromkeys(("both", "prefill", "decode"), 0.0)
    for one in chosen:
        total[one.replica.role] += one.count * CAPACITY[one.replica.gpu, one.replica.role]
    return total["both"] + min(total["prefill"], total["decode"])


def able(**capacities: float) -> list[RoleReplica]:
    """Replicas by capacity: `new_both=2.0`."""
    CAPACITY.clear()
    replicas = []
    for name, capacity in capacities.items():
        gpu, role = {"new": NEW, "old": OLD}[name.partition("_")[0]], name.partition("_")[2]
        CAPACITY[gpu, role] = capacity
        replicas.append(copy(role, capacity, gpu))  # type: ignore[arg-type]
    return replicas


def test_for_a_load_the_cheapest_design_comes_first_with_cost_and_capacity(play: Play) -> None:
    sized = play(able(new_both=2.0, old_both=1.0))
    answer = designs(RENTED, ONE)
    assert sized == [6.0]
    assert answer.best.name == OLD
    assert [(one.name, one.cost.amount, dict(one.gpus)) for one in answer.designs] == [
        (OLD, Decimal("6.0000"), {OLD: 6}),
        (f"{NEW}+{OLD}", Decimal("6.0000"), {OLD: 6}),
        (NEW, Decimal("9.0000"), {NEW: 3}),
    ]
    assert all(one.capacity.value >= 6.0 for one in answer.designs)
    assert answer.sentence.id == "roles.design-rate"


def test_with_a_budget_the_highest_capacity_comes_first_for_an_unlimited_rate(play: Play) -> None:
    sized = play(able(new_both=4.0, old_both=1.0))
    answer = designs(RENTED, ONE, budget=6.0)
    assert sized == [UNLIMITED_RATE]
    assert [(one.name, one.capacity.value) for one in answer.designs] == [(NEW, 8.0), (f"{NEW}+{OLD}", 8.0), (OLD, 6.0)]
    assert all(one.cost.amount <= 6 for one in answer.designs)
    assert answer.sentence.id == "roles.design-budget"


def test_simulated_capacity_replaces_that_of_the_linear_program(play: Play) -> None:
    """Replicas have only three quarters of the assumed capacity: a third more of them are used."""
    play(able(new_both=2.0), lambda _: 0.75)
    answer = designs(RENTED[:1], ONE)
    assert dict(answer.best.gpus) == {NEW: 4}
    assert answer.best.capacity.value == pytest.approx(6.0)


def test_designs_without_capacity_are_dropped_with_all_reasons(play: Play) -> None:
    play(able(new_both=2.0), lambda _: 0.0, {("m", OLD): msg("roles.empty")})
    with pytest.raises(NoAnswer) as error:
        designs(RENTED, ONE)
    assert error.value.kind == "no-role"
    assert error.value.hint is not None
    reasons = error.value.hint.values["reasons"]
    assert isinstance(reasons, tuple)
    assert reasons[0].id == "roles.empty"
    assert {reason.values.get("name") for reason in reasons[1:]} == {
        NEW, OLD, f"{NEW}+{OLD}", f"{NEW} disaggregated", f"{OLD} disaggregated", f"{NEW}+{OLD} disaggregated",
    }  # fmt: skip


def test_design_with_useless_gpus_is_dropped_and_others_remain(play: Play) -> None:
    play(able(new_both=2.0))
    answer = designs(RENTED, ONE)
    assert {one.name for one in answer.designs} == {NEW, f"{NEW}+{OLD}"}
    assert [reason.values["name"] for reason in answer.left_out] == [OLD, f"{OLD} disaggregated"]


@pytest.mark.parametrize(("decode", "best"), [(6.0, f"{NEW} disaggregated"), (2.0, NEW)])
def test_disaggregated_design_is_listed_if_cheaper(play: Play, decode: float, best: str) -> None:
    play(able(new_both=2.0, new_prefill=6.0, new_decode=decode))
    answer = designs(RENTED[:1], ONE)
    assert answer.best.name == best
    assert {one.name: one.disaggregated for one in answer.designs}[best] is best.endswith("disaggregated")


@pytest.mark.parametrize(("disaggregated", "best"), [(2 * MIN_GAIN * 1.01, True), (2 * MIN_GAIN * 0.99, False)])
def test_among_near_equals_the_design_without_transfers_is_chosen(play: Play, disaggregated: float, best: bool) -> None:
    """Six dollars buy two GPUs: aggregated they sustain one each, disaggregated a little more than two together."""
    play(able(new_both=1.0, new_prefill=disaggregated, new_decode=disaggregated))
    answer = designs(RENTED[:1], ONE, budget=6.0)
    assert answer.designs[0].disaggregated
    assert answer.best.disaggregated is best


def test_no_kinds_are_no_cluster() -> None:
    with pytest.raises(UsageError) as error:
        designs([], ONE)
    assert error.value.kind == "no-cluster"
