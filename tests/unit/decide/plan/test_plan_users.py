"""Users in several places: buckets by city, machines that are near only some of them, one simulation of all."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from tests.surface.cli import call
from whichgpu.base.errors import UsageError
from whichgpu.catalog.places.user_places import user_places
from whichgpu.decide.plan.capacity import ReplicaCapacity, Shortfall
from whichgpu.decide.plan.simulate import _over_places
from whichgpu.decide.plan.solver.build import _near_only
from whichgpu.decide.plan.traffic import Traffic, traffic_of
from whichgpu.estimate.serving.load import Lengths


class _Served(msgspec.Struct):
    traffic: Traffic


def _traffic() -> Traffic:
    lengths = Lengths.histogram((200, 9000), (80, 20))
    return traffic_of(5.0, lengths, Lengths(200.0)).by_place({"Seoul": 0.75, "Paris": 0.25})


@pytest.mark.parametrize("text", ["Seoul:3,Paris", "Seoul:0,Paris:1", "Seoul:x,Paris:1", "Seoul:1,Seoul:2", "Seoul:inf"])
def test_cities_without_a_weight_above_zero_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="cities with weights"):
        user_places(text)


def test_buckets_are_divided_among_cities_and_summed_again_for_the_simulation() -> None:
    traffic = _traffic()
    assert [one.name for one in traffic.buckets[:3]] == [
        "200 in, 200 out, Seoul",
        "9000 in, 200 out, Seoul",
        "200 in, 200 out, Paris",
    ]
    assert sum(one.share for one in traffic.buckets) == pytest.approx(1.0)
    demand = np.array([one.share for one in traffic.buckets])
    shares = np.array([[1.0, 0.5, 0.0, 0.0], [0.0, 0.5, 1.0, 1.0]])
    served, total, merged = _over_places(_Served(traffic), demand, shares)  # type: ignore[arg-type]
    assert [one.name for one in served.traffic.buckets] == ["200 in, 200 out", "9000 in, 200 out"]
    assert total == pytest.approx([0.8, 0.2])
    assert merged == pytest.approx(np.array([[0.75, 0.375], [0.25, 0.625]]))
    assert [one.share for one in served.traffic.buckets] == pytest.approx([0.8, 0.2])


def test_machines_serve_only_the_cities_they_are_near() -> None:
    lack = Shortfall(np.ones(4, dtype=bool), {"ttft": np.ones(4)}, {"ttft": np.ones(4)})
    replica = ReplicaCapacity(1, "bf16", np.ones(4), np.ones(4), None, shortfall=lack, late_rates=np.ones(4))
    model = SimpleNamespace(traffic=_traffic())
    near = _near_only(replica, model, SimpleNamespace(reach=(False, True)))  # type: ignore[arg-type]
    assert near.rates.tolist() == [0, 0, 1, 1]
    assert near.late_rates is not None
    assert near.late_rates.tolist() == [0, 0, 1, 1]
    assert near.shortfall is not None
    assert near.shortfall.fits.tolist() == [False, False, True, True]
    assert np.isinf(near.shortfall.min_limits["ttft"]).tolist() == [True, True, False, False]
    assert _near_only(replica, model, SimpleNamespace(reach=())) is replica  # type: ignore[arg-type]


PLAN = "plan llama-3.1-8b --rate 2/s --in 1000 --out 200 --ttft 1s --no-curve --no-simulate --as-of 2026-10-01 --json".split()


@pytest.mark.long
def test_cities_far_apart_have_machines_of_their_own_and_cities_near_each_other_share_one() -> None:
    far = call(*PLAN, "--near", "Seoul:3,Paris:1", "--max-latency", "60ms").json()
    regions = {one["place"]: row["region"] for row in far["groups"] for one in row["serves"]}
    assert set(regions) == {"Seoul", "Paris"}
    assert regions["Seoul"] != regions["Paris"]
    near = call(*PLAN, "--near", "Paris:1,Frankfurt:1", "--max-latency", "60ms").json()
    assert sum(row["machines"] for row in near["groups"]) == 1
    assert float(near["cost_per_hour"]["amount"]) < float(far["cost_per_hour"]["amount"])


@pytest.mark.long
def test_a_city_that_no_machine_is_near_is_refused_with_the_round_trip_that_works() -> None:
    reply = call(*PLAN, "--near", "Seoul:3,Paris:1", "--max-latency", "1us")
    document = reply.json()
    assert (reply.code, document["rejected"].keys()) == (1, {"max-latency"})
    limit = document["relaxation"]["change"]["max_latency"]
    assert call(*PLAN, "--near", "Seoul:3,Paris:1", "--max-latency", limit).code == 0
