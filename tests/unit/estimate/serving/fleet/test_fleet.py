"""Fleets against what can be counted by hand, one server, exact queues and the accounts of machines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from tests.serving_cases import CATALOG, DEFAULT_LIMITS, linear, small, workload_and_shape
from whichgpu.base.errors import NoAnswer, UsageError
from whichgpu.base.figure import Figure
from whichgpu.estimate.serving.curve import Objectives
from whichgpu.estimate.serving.early_stop import MissLimit
from whichgpu.estimate.serving.fleet.event_loop import simulate_fleet
from whichgpu.estimate.serving.fleet.fleet_answer import fleet_answer, share_within_objectives
from whichgpu.estimate.serving.fleet.fleet_outcome import FleetOutcome
from whichgpu.estimate.serving.fleet.kv_transfer import Port, port_of
from whichgpu.estimate.serving.fleet.pools import Fleet, FleetRouting, Interruptions, ReplicaPool, Role  # fmt: skip
from whichgpu.estimate.serving.load import Lengths, Load
from whichgpu.estimate.serving.load_screen import mean_wait
from whichgpu.estimate.serving.simulator import Arrival

STEP = 1e-3
SERVER = linear()
SLOW = Port(out=1e9, into=1e9, latency=0.0, token_bytes=1e4)  # 100 tokens in a step


def station(role: Role = "both", copies: int = 1, name: str = "", **fields: Any) -> ReplicaPool:
    return ReplicaPool(name or role, fields.pop("server", SERVER), copies, role, **fields)


def requests(*lengths: tuple[float, int, int]) -> list[Arrival]:
    return [(time, prompt, output, ()) for time, prompt, output in lengths]


def spans(outcome: FleetOutcome) -> list[tuple[float, float]]:
    served = outcome.served
    return [(round(float(a) / STEP, 6), round(float(b) / STEP, 6)) for a, b in zip(served.first, served.finished, strict=True)]


def sampled_arrivals(rate: float, count: int = 400, seed: int = 0) -> list[Arrival]:
    return list(Load(rate, Lengths(200, 0.8), Lengths(40, 0.6), count, seed=seed).arrivals())


def disaggregated(port: Port = SLOW, reading: int = 1, writing: int = 1, **fields: Any) -> Fleet:
    return Fleet((station("prefill", reading, port=port, **fields), station("decode", writing, port=port, **fields)))


def test_a_fleet_that_cannot_keep_its_objectives_is_not_simulated_to_its_end() -> None:
    fleet, load = Fleet((station(copies=2, server=linear(token=1e-6, sequence=1e-5)), station())), sampled_arrivals(300.0)
    whole = simulate_fleet(fleet, load).served
    ttft = whole.first - whole.arrived
    holding = simulate_fleet(fleet, load, misses=MissLimit.of(400, 40, 90.0, float(np.percentile(ttft[40:], 91)))).served
    assert holding.complete
    assert (holding.finished == whole.finished).all()
    ended = simulate_fleet(fleet, load, misses=MissLimit.of(400, 40, 90.0, float(np.percentile(ttft[40:], 50)))).served
    assert not ended.complete
    assert 40 + 36 < len(ended.arrived) < 400
    assert (ended.arrived == whole.arrived[: len(ended.arrived)]).all()


def test_one_station_is_one_server() -> None:
    load, server = sampled_arrivals(300.0), linear(replicas=3, token=1e-6, sequence=1e-5)
    fleet = Fleet((station(copies=3, server=replace(server, replicas=1)),))
    alone, outcome = server.run(load), simulate_fleet(fleet, load).served
    assert outcome.busy == pytest.approx(alone.busy, rel=0.01)  # of equals another comes first
    assert np.percentile(outcome.finished - outcome.arrived, [50, 90]) == pytest.approx(
        np.percentile(alone.finished - alone.arrived, [50, 90]), rel=0.05
    )
    same = simulate_fleet(Fleet((station(server=server),)), load).served
    assert (same.finished == replace(server, replicas=1).run(load).finished).all()


def test_read_here_sent_and_written_there() -> None:
    """Read in a step, sent in one, then nine tokens; the second comes at 4.2, is sent at 5.2, there at 6.2, joins at 7."""
    outcome = simulate_fleet(disaggregated(), requests((0, 100, 10), (4.2 * STEP, 100, 3)))
    assert spans(outcome) == [(1, 11), (5.2, 9)]
    assert (outcome.transfers.count, outcome.transfers.bytes) == (2, 2e6)
    assert outcome.transfers.mean_seconds == pytest.approx(STEP)
    assert outcome.transfers.mean_wait == pytest.approx(0.0, abs=1e-12)


def test_transfers_at_once_share_the_port() -> None:
    """Four prompts of 100 read in one step leave one after another through one port: there at 2, 3, 4, 5."""
    server = linear(replace(DEFAULT_LIMITS, max_batched_tokens=2048))
    load = requests(*((0, 100, 2),) * 5)
    outcome = simulate_fleet(disaggregated(server=server), load)
    assert [first for first, _ in spans(outcome)] == [1, 2, 2, 2, 2]
    assert [last for _, last in spans(outcome)] == [3, 4, 5, 6, 7]
    assert outcome.transfers.mean_wait == pytest.approx((0 + 0 + 1 + 2 + 3) / 5 * STEP)
    wide = simulate_fleet(disaggregated(replace(SLOW, out=1e30, into=1e30), server=server), load)
    assert [last for _, last in spans(wide)][1:] == [3, 4, 4, 4]  # an idle engine starts with the first arrival
    assert wide.transfers.mean_wait < 1e-9


def test_many_transfers_wait_for_a_slow_receiver() -> None:
    fast, slow = replace(SLOW, out=4e9, into=4e9), replace(SLOW, out=1e9, into=1e9)
    server = linear(replace(DEFAULT_LIMITS, max_batched_tokens=2048))
    fleet = Fleet((station("prefill", port=fast, server=server), station("decode", 2, port=slow, server=server)))
    outcome = simulate_fleet(fleet, requests(*((0, 100, 2),) * 5))
    # one alone, then two of four to each receiver; the sender takes a quarter of the time
    assert sorted(last for _, last in spans(outcome)) == [3, 4, 4, 5, 5]


def test_an_answer_of_one_token_is_never_sent() -> None:
    outcome = simulate_fleet(disaggregated(), requests((0, 100, 1), (0, 100, 1)))
    assert outcome.transfers.count == 0
    assert spans(outcome) == [(1, 1), (2, 2)]


def test_decode_worker_needs_kv_space_before_a_transfer() -> None:
    """A decoder with room for one: the second waits where it was read until the first is done."""
    fleet = Fleet((station("prefill", port=SLOW), station("decode", port=SLOW, server=linear(small(128)))))
    outcome = simulate_fleet(fleet, requests((0, 90, 11), (0, 90, 11)))
    (_, one), (_, two) = spans(outcome)
    assert one == 1 + 0.9 + 10
    assert two == pytest.approx(one + 0.9 + 10)
    assert outcome.pools[1].peak_cache <= 1.0


def test_full_prefill_worker_waits_until_its_kv_is_sent() -> None:
    fleet = Fleet((station("prefill", port=SLOW, server=linear(small(112))), station("decode", port=SLOW)))
    outcome = simulate_fleet(fleet, requests((0, 100, 2), (0, 100, 2), (0, 100, 2)))
    assert [first for first, _ in spans(outcome)] == [1, 3, 5]


def test_shares_are_met_to_within_one_request() -> None:
    routing = FleetRouting("shares", (100,), (), ((0.75, 0.25), (0.0, 1.0)))
    fleet = Fleet((station(name="a"), station(name="b")), routing)
    short, long = ((place * STEP, 50, 2) for place in range(40)), ((1 + place * STEP, 100, 2) for place in range(10))
    outcome = simulate_fleet(fleet, requests(*short, *long))
    assert [one.answered for one in outcome.pools] == [30, 20]


def test_least_loaded_weighs_load_by_replica_capacity() -> None:
    fleet = Fleet((station(name="a", weight=3.0), station(name="b", weight=1.0)))
    outcome = simulate_fleet(fleet, requests(*((0.0, 50, 10),) * 12))
    assert [one.answered for one in outcome.pools] == [9, 3]


def test_request_too_long_for_one_pool_goes_to_another_and_for_all_is_refused() -> None:
    fleet = Fleet((station(name="small", server=linear(small(256)), copies=5), station(name="large", server=linear(small(1024)))))
    outcome = simulate_fleet(fleet, requests((0, 500, 10), (0, 100, 10), (0, 2000, 10)))
    assert outcome.served.refused == 1
    assert [one.answered for one in outcome.pools] == [1, 1]


@pytest.mark.parametrize(("copies", "rate"), [(1, 0.6), (3, 2.4)])
def test_one_at_a_time_is_an_exact_queue(copies: int, rate: float) -> None:
    """Replicas of one slot with exponential output lengths: M/M/1, and between M/M/c and c separate queues."""
    limits = replace(DEFAULT_LIMITS, max_sequences=1, max_batched_tokens=8)
    chance = np.random.default_rng(5)
    times, lengths = np.cumsum(chance.exponential(1 / rate, 30_000)), chance.exponential(1000, 30_000).round().astype(int) + 1
    load = [(float(time), 1, int(length), ()) for time, length in zip(times, lengths, strict=True)]
    fleet = Fleet((station(server=linear(limits), copies=copies),))
    served = simulate_fleet(fleet, load).served
    wait = float((served.first - served.arrived).mean()) - STEP
    if copies == 1:
        assert wait == pytest.approx(mean_wait(1, rate, 1.0015), rel=0.08)
    else:  # a queue for each copy, joined at the shortest: between one common queue and three apart
        assert mean_wait(copies, rate, 1.0) < wait < mean_wait(1, rate / copies, 1.0)


def test_no_requests_give_an_empty_outcome() -> None:
    outcome = simulate_fleet(Fleet((station(copies=2, spot=1),), FleetRouting(), Interruptions(rate=1.0)), [])
    assert (outcome.answered, outcome.seconds, outcome.pools[0].utilisation) == (0, 0.0, 0.0)


def test_fleet_figures_have_ranges_and_lost_requests_miss_objectives() -> None:
    like = Figure(1.0, 0.8, 1.25, "s", "modelled")
    load = Load(150.0, Lengths(200, 0.8), Lengths(40, 0.6), 1500)
    answer = fleet_answer(spotty(2, 2, retries=0), load, Objectives(1.0, 0.01, 90, 2.0), like)
    assert answer.lost > 0
    assert answer.met is not None
    assert answer.goodput is not None
    outcome = simulate_fleet(spotty(2, 2, retries=0), load.arrivals())
    assert share_within_objectives(outcome, Objectives(1e9), 0.0) == pytest.approx(1 - outcome.lost / 1500)
    assert answer.met.value == share_within_objectives(outcome, Objectives(1.0, 0.01, 90, 2.0))
    assert answer.goodput.value <= answer.answered_rate.value
    for name in ("p50", "p90", "p99", "mean"):
        for times in (answer.ttft, answer.tpot, answer.latency):
            assert times[name].low <= times[name].value <= times[name].high
    assert answer.ttft["p50"].value < answer.ttft["p90"].value < answer.latency["p99"].value
    assert answer.stations[0].spot_hours > 0
    alone = fleet_answer(Fleet((station(),)), load.at(5.0), Objectives(), like)
    assert alone.goodput is None
    assert alone.tpot["p50"].high == pytest.approx(1.25 * alone.tpot["p50"].value, rel=0.05)
    with pytest.raises(NoAnswer):
        fleet_answer(Fleet((station(server=linear(small(32))),)), Load(1.0, Lengths(100), Lengths(9), 50), Objectives(), like)


def test_on_demand_machines_are_billed_all_the_time() -> None:
    outcome = simulate_fleet(Fleet((station(copies=3),)), sampled_arrivals(100.0))
    assert outcome.pools[0].on_demand_seconds == pytest.approx(3 * outcome.seconds)
    assert outcome.pools[0].spot_seconds == 0
    assert outcome.interruptions == 0


def spotty(copies: int = 2, spot: int = 1, role: Role = "both", seed: int = 0, **fields: Any) -> Fleet:
    interruptions = Interruptions(**{"rate": 3600.0, "warm_up": 0.05, "outage": 0.5, **fields})
    stations: tuple[ReplicaPool, ...] = (station(role, copies, spot=spot, port=SLOW),)
    if role != "both":
        other: Role = "decode" if role == "prefill" else "prefill"
        stations = (*stations, station(other, copies, port=SLOW))
    return Fleet(stations, FleetRouting(), interruptions, seed)


@pytest.mark.parametrize("role", ["both", "prefill", "decode"])
@pytest.mark.parametrize("fallback", [True, False])
@pytest.mark.parametrize("notice", [0.0, 0.02])
def test_interruptions_lose_no_request_and_no_token(role: Role, fallback: bool, notice: float) -> None:
    load = sampled_arrivals(150.0, 1500)
    outcome = simulate_fleet(spotty(2, 2, role, fallback=fallback, notice=notice, retries=1000), load)
    assert outcome.interruptions > 5
    assert outcome.retried > 0 or (notice and role == "prefill")  # prompts are read within the notice
    assert outcome.lost == 0
    assert outcome.answered == len(load)
    served = outcome.served
    assert (served.first >= served.arrived).all()
    assert (served.finished >= served.first).all()
    assert served.read >= served.prompts.sum()
    again = simulate_fleet(spotty(2, 2, role, fallback=fallback, notice=notice, retries=1000), load)
    assert (again.served.finished == served.finished).all()


def test_requests_are_dropped_after_the_retry_limit() -> None:
    load = sampled_arrivals(150.0, 1500)
    outcome = simulate_fleet(spotty(2, 2, retries=0), load)
    assert outcome.lost > 0
    assert outcome.retried == 0
    assert outcome.answered + outcome.lost == len(load)
    assert (outcome.served.finished < 0).sum() == outcome.lost


def test_the_life_of_a_machine_on_spot_by_hand() -> None:
    """Notice at t, loss n later, back after o more: spot is billed except for o, the fallback from t until spot is warm."""
    interruptions = Interruptions(rate=360.0, notice=1.0, warm_up=2.0, outage=4.0)
    fleet = Fleet((station(spot=1),), FleetRouting(), interruptions, seed=3)
    chance = np.random.default_rng([3, 7, 0])
    lost, out = chance.exponential(10.0), chance.exponential(4.0)
    back = lost + 1.0 + out
    end = back + 2.0 + 0.5 * chance.exponential(10.0)  # before it is taken again
    load = requests((0, 10, 2), (end, 10, 2))
    use = simulate_fleet(fleet, load).pools[0]
    last = end + 2 * STEP
    assert use.spot_seconds == pytest.approx(lost + 1.0 + last - back)
    assert use.on_demand_seconds == pytest.approx(back + 2.0 - lost)
    alone = simulate_fleet(replace(fleet, interruptions=replace(interruptions, fallback=False)), load).pools[0]
    assert alone.on_demand_seconds == 0
    assert alone.spot_seconds == pytest.approx(use.spot_seconds)


def test_requests_wait_while_no_replica_is_up() -> None:
    interruptions = Interruptions(rate=360.0, warm_up=2.0, outage=4.0, fallback=False)
    chance = np.random.default_rng([3, 7, 0])
    lost, out = chance.exponential(10.0), chance.exponential(4.0)
    served = simulate_fleet(
        Fleet((station(spot=1),), FleetRouting(), interruptions, seed=3), requests((lost + 0.1, 10, 2))
    ).served
    assert served.first[0] == pytest.approx(lost + out + 2.0 + STEP)


def test_more_interruptions_never_cost_less_time() -> None:
    load = sampled_arrivals(150.0, 1500)
    outcomes = [simulate_fleet(spotty(2, 2, rate=rate, retries=99), load).served for rate in (0.0, 1200.0, 7200.0)]
    stays = [float(np.mean(one.finished)) for one in outcomes]
    assert stays == sorted(stays)


@pytest.mark.parametrize("fleet", [Fleet((station(copies=2), station(copies=1, name="c"))), disaggregated(reading=1, writing=2)])
def test_more_requests_and_slower_steps_make_everybody_wait_longer(fleet: Fleet) -> None:
    def mean(fleet: Fleet, rate: float) -> float:
        served = simulate_fleet(fleet, sampled_arrivals(rate, 1500)).served
        return float((served.finished - served.arrived).mean())

    stays = [mean(fleet, rate) for rate in (20.0, 100.0, 300.0)]
    assert stays == sorted(stays)
    assert mean(fleet.scaled(1.3), 100.0) > 1.2 * stays[1]


def test_a_port_is_the_network_of_its_gpus_or_their_links() -> None:
    workload, shape = workload_and_shape("llama-2-70b", parallel={"tp": 8}, gpus=8)
    h100 = CATALOG.gpu_by_id["h100-sxm"]
    far, near = port_of(workload, shape, h100, 8), port_of(workload, shape, h100, 8, same_machine=True)
    assert far.kind == "infiniband"
    assert far.out == pytest.approx(8 * 400e9 / 8 * 0.92)
    assert near.out == pytest.approx(8 * 450e9 * 0.824)
    assert far.token_bytes == 2 * 80 * 8 * 128 * 2
    assert port_of(workload, shape, CATALOG.gpu_by_id["l4"], 1).kind == "ethernet"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Fleet(()), "at least one worker group"),
        (lambda: Fleet((station(copies=0),)), "replicas"),
        (lambda: Fleet((station(spot=2),)), "spot"),
        (lambda: Fleet((station(weight=float("nan")),)), "weight"),
        (lambda: Fleet((station("prefill"),)), "disaggregated serving needs both"),
        (lambda: Fleet((station("prefill", cache="fp16"), station("decode", cache="bf16"))), "disaggregated serving needs both"),
        (lambda: Fleet((station(),), FleetRouting("random")), "unknown routing policy"),  # type: ignore[arg-type]
        (lambda: Fleet((station("all"),)), "unknown role"),  # type: ignore[arg-type]
        (lambda: Fleet((station(),), FleetRouting("shares", (10, 5), (), ((1,),) * 3)), "must be ascending"),
        (lambda: Fleet((station(),), FleetRouting("shares", (10,), (), ((1.0,),))), "shares need a row"),
        (lambda: Fleet((station(),), FleetRouting("shares", (), (), ((0.0,),))), "some of every bucket"),
        (lambda: Fleet((station(),), FleetRouting("lengths", (), (10,), ((1.0,), (1.0,)))), "not known in advance"),
        (lambda: Fleet((station(),), FleetRouting(), Interruptions(rate=-1)), "rate"),
        (lambda: Fleet((station(),), FleetRouting(), Interruptions(outage=float("inf"))), "outage"),
        (lambda: Fleet((station(),), FleetRouting(), Interruptions(rate=1e9)), "at most"),
        (lambda: simulate_fleet(Fleet((station(),)), requests((2, 5, 5), (1, 5, 5))), "in order of time"),
        (lambda: simulate_fleet(Fleet((station(),)), requests((-1, 5, 5))), "in order of time"),
        (lambda: simulate_fleet(Fleet((station(),)), requests((float("nan"), 5, 5))), "in order of time"),
        (lambda: simulate_fleet(Fleet((station(),)), requests((0, 0, 5))), "at least one input"),
    ],
)
def test_a_fleet_that_cannot_be_is_refused_with_the_reason(make: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        make()
