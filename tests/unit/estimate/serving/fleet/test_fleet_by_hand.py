"""Fleets request by request: who takes which, what is lost when a machine goes, what ports and machines are charged for."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
from msgspec.structs import replace

from tests.serving_cases import CATALOG, DEFAULT_LIMITS, linear, small, workload_and_shape
from whichgpu.base.errors import UsageError
from whichgpu.base.figure import Figure
from whichgpu.estimate.group.collective_parameters import collective_parameters
from whichgpu.estimate.serving.curve import Objectives
from whichgpu.estimate.serving.fleet.event_loop import simulate_fleet
from whichgpu.estimate.serving.fleet.fleet_answer import fleet_answer
from whichgpu.estimate.serving.fleet.fleet_outcome import FleetOutcome
from whichgpu.estimate.serving.fleet.kv_transfer import Port, TransferQueues, port_of
from whichgpu.estimate.serving.fleet.pools import Fleet, FleetRouting, Interruptions, ReplicaPool, Role
from whichgpu.estimate.serving.fleet.spot_machines import ReplicaMachine
from whichgpu.estimate.serving.fleet.workers import DecodeWorker, PrefillWorker, stop_scheduler
from whichgpu.estimate.serving.load import Lengths, Load
from whichgpu.estimate.serving.scheduler import RequestLog, Scheduler
from whichgpu.estimate.serving.scheduler_limits import SchedulerLimits
from whichgpu.estimate.serving.simulator import Arrival

STEP = 1e-3
FAST = Port(out=1e12, into=1e12, latency=0.0, token_bytes=1.0)


def station(
    name: str, role: Role = "both", copies: int = 1, limits: SchedulerLimits = DEFAULT_LIMITS, **fields: Any
) -> ReplicaPool:
    return ReplicaPool(name, linear(limits), copies, role, port=FAST, **fields)


def requests(*lengths: tuple[float, int, int]) -> list[Arrival]:
    return [(time, prompt, output, ()) for time, prompt, output in lengths]


def apart(count: int, prompt: int = 50, output: int = 2) -> list[Arrival]:
    """So far apart that requests never overlap."""
    return requests(*((float(place), prompt, output) for place in range(count)))


def answered_per_pool(fleet: Fleet, load: list[Arrival]) -> list[int]:
    return [one.answered for one in simulate_fleet(fleet, load).pools]


def test_idle_replica_with_the_highest_capacity_is_chosen() -> None:
    assert answered_per_pool(Fleet((station("slow"), station("fast", weight=3.0))), apart(4)) == [0, 4]
    assert answered_per_pool(Fleet((station("fast", weight=3.0), station("slow"))), apart(4)) == [4, 0]


def test_equal_replicas_take_turns() -> None:
    fleet = Fleet((station("three", copies=3),))
    outcome = simulate_fleet(fleet, requests(*((0.0, 50, 2),) * 3))
    assert outcome.served.finished.tolist() == [2 * STEP] * 3  # each alone
    assert simulate_fleet(Fleet((station("one"),)), requests(*((0.0, 50, 2),) * 3)).served.finished.max() > 2 * STEP


def test_aggregated_and_disaggregated_share_requests_by_capacity() -> None:
    """One aggregated replica has capacity 1, two prefill workers 3 each: of 14 requests 2 and 12."""
    fleet = Fleet((station("both"), station("read", "prefill", 2, weight=3.0), station("write", "decode")))
    assert answered_per_pool(fleet, apart(14)) == [2, 12, 12]
    assert answered_per_pool(Fleet((station("both", weight=6.0), *fleet.pools[1:])), apart(14)) == [7, 7, 7]


def test_disaggregated_pools_serve_requests_too_long_for_the_others() -> None:
    fleet = Fleet((station("both", limits=small(64)), station("read", "prefill"), station("write", "decode")))
    assert answered_per_pool(fleet, apart(5, 100, 20)) == [0, 5, 5]
    only = Fleet((station("both"), station("read", "prefill", limits=small(64)), station("write", "decode")))
    assert answered_per_pool(only, apart(5, 100, 20)) == [5, 0, 0]


def is_refused(fleet: Fleet, prompt: int, output: int) -> bool:
    return bool(simulate_fleet(fleet, requests((0.0, prompt, output))).served.refused)


def test_a_request_may_fill_a_cache_to_its_last_block_and_no_further() -> None:
    for other in ((), (station("large", limits=small(96)),)):  # alone, and with a larger one
        fleet = Fleet((station("one", limits=small(64)), *other))
        capacity = 96 if other else 64
        assert not is_refused(fleet, 40, capacity - 40)
        assert is_refused(fleet, 40, capacity - 39)
    assert answered_per_pool(Fleet((station("one", limits=small(64)), station("large", limits=small(96)))), apart(3, 40, 24)) != [
        0,
        3,
    ]
    assert answered_per_pool(Fleet((station("one", limits=small(64)), station("large", limits=small(96)))), apart(3, 40, 25)) == [
        0,
        3,
    ]


def test_prefilled_kv_must_fit_the_decode_worker() -> None:
    def fleet(cache: str) -> Fleet:
        return Fleet((
            station("read", "prefill", cache="fp16"), station("small", "decode", limits=small(64), cache="fp16"),
            station("reads", "prefill", cache=cache, limits=small(32)), station("large", "decode", cache=cache),
        ))  # fmt: skip

    assert is_refused(fleet("fp8"), 50, 20)  # those who have room to write cannot take what this one reads
    assert answered_per_pool(fleet("fp16"), apart(2, 50, 20)) == [2, 0, 0, 2]
    assert answered_per_pool(fleet("fp8"), apart(1, 40, 20)) == [1, 1, 0, 0]


def test_shares_of_unfit_pools_go_to_the_highest_capacity() -> None:
    routing = FleetRouting("shares", (100,), (), ((1.0, 0.0, 0.0), (1.0, 0.0, 0.0)))
    fleet = Fleet((station("a", limits=small(64)), station("b"), station("c", weight=2.0)), routing)
    assert answered_per_pool(fleet, [*apart(3), *requests((3.0, 200, 2), (4.0, 200, 2))]) == [3, 0, 2]
    copies = Fleet((fleet.pools[0], station("b", copies=3), fleet.pools[2]), routing)
    assert answered_per_pool(copies, requests((0.0, 200, 2))) == [0, 1, 0]


def test_shares_are_among_pools_that_can_take_the_request() -> None:
    routing = FleetRouting("shares", (), (), ((0.8, 0.15, 0.05),))
    fleet = Fleet((station("a", limits=small(64)), station("b"), station("c")), routing)
    assert answered_per_pool(fleet, apart(20)) == [16, 3, 1]
    assert answered_per_pool(fleet, apart(20, 100)) == [0, 15, 5]


@pytest.mark.parametrize(
    "make",
    [
        lambda: station("", copies=10_001), lambda: station("", gpus=0), lambda: station("", spot=-1),
        lambda: station("", weight=0.0), lambda: station("", weight=inf), lambda: Interruptions(rate=1.001e5),
        lambda: Interruptions(retries=-1), lambda: Interruptions(notice=-0.1), lambda: Interruptions(warm_up=inf),
        lambda: FleetRouting("shares", (5, 5), (), ((1.0,),) * 3), lambda: FleetRouting("shares", (), (), ((-0.5,),)),
        lambda: FleetRouting("shares", (), (), ((inf,),)), lambda: FleetRouting("shares", (), (), ((1.0, 1.0),)),
    ],
)  # fmt: skip
def test_numbers_beyond_their_ends_are_refused(make: Any) -> None:
    one = make()
    parts: dict[str, Any] = {"pools": (one,)} if isinstance(one, ReplicaPool) else {"pools": (station(""),)}
    parts |= (
        {"routing": one} if isinstance(one, FleetRouting) else {"interruptions": one} if isinstance(one, Interruptions) else {}
    )
    with pytest.raises(UsageError):
        Fleet(**parts)


def test_values_at_their_limits_are_accepted() -> None:
    ends = Interruptions(rate=1e5, notice=0.0, warm_up=0.0, outage=0.0, retries=0)
    fleet = Fleet((station("most", copies=10_000, spot=10_000, gpus=2), station("none", weight=1e-9)), FleetRouting(), ends)
    assert fleet.gpus == 20_001
    assert FleetRouting("shares", (100, 200), (50,)).buckets == 6


def scheduler_and_log(kind: type[Scheduler] = Scheduler, **requested: int) -> tuple[Scheduler, RequestLog]:
    log = RequestLog()
    scheduler = kind(linear().steps, DEFAULT_LIMITS, log)
    log.add(0.0, requested.get("prompt", 100), requested.get("output", 10))
    return scheduler, log


def writing() -> tuple[Scheduler, RequestLog]:
    """A scheduler that prefilled 100 tokens in the first step and has nine tokens to decode, one per step."""
    scheduler, log = scheduler_and_log()
    assert scheduler.accept(0, 0.0)
    assert scheduler.end == pytest.approx(STEP)
    assert scheduler.complete() == []
    scheduler.plan(scheduler.end)
    return scheduler, log


@pytest.mark.parametrize(("steps", "whole"), [(4.5, 3), (4.0, 3), (3.999, 2), (1.2, 0), (9.9, 8)])
def test_tokens_of_finished_steps_are_delivered_before_an_interruption(steps: float, whole: int) -> None:
    scheduler, log = writing()
    assert stop_scheduler(scheduler, steps * STEP) == [0]
    assert log.generated[0] == 1 + whole
    assert scheduler.recomputed == 100 + whole  # what the cache held is lost
    assert scheduler.busy == pytest.approx(steps * STEP)
    assert scheduler.batch_steps[1] == whole
    assert (scheduler.running, scheduler.context_total, scheduler.used, scheduler.load, scheduler.end) == (0, 0, 0, 0, inf)
    assert sum(scheduler.phases) == 0


def test_interrupted_requests_lose_their_kv_cache() -> None:
    """The second joins when the first has decoded four tokens; three steps later the machine is interrupted."""
    scheduler, log = writing()
    log.add(0.0, 50, 10)
    scheduler.accept(1, 3.5 * STEP)
    for _ in range(2):  # to the end of the step under way, and the one in which the second is read
        scheduler.complete()
        scheduler.plan(scheduler.end)
    assert scheduler.end > 5 * STEP
    stop_scheduler(scheduler, 8.1 * STEP)
    assert list(log.generated) == [8, 4]
    assert scheduler.recomputed == (100 + 7) + (50 + 3)


def test_steps_that_grow_are_counted_as_they_grow() -> None:
    """Steps of 1, 2, 3, ... ms: after 6.5 ms three are done, after 10 ms four."""
    for passed, done in ((6.5, 3), (10.0, 4), (9.99, 3), (0.5, 0)):
        scheduler, log = writing()
        scheduler.step, scheduler.slope = 1e-3, 1e-3
        stop_scheduler(scheduler, scheduler.start + passed * 1e-3)
        assert log.generated[0] == 1 + done


def test_partial_prefill_and_waiting_requests_move_to_another_replica() -> None:
    scheduler, log = scheduler_and_log(prompt=1000)
    log.add(0.0, 10, 10)
    scheduler.accept(0, 0.0)
    scheduler.accept(1, 0.0)
    scheduler.complete()  # 512 tokens of the first
    scheduler.plan(scheduler.end)
    assert stop_scheduler(scheduler, scheduler.start + STEP / 2) == [0, 1]
    assert scheduler.recomputed == 512
    assert not scheduler.waiting
    assert not scheduler.prefilling
    assert scheduler.accept(1, 5.0)  # it is as new
    assert scheduler.end == pytest.approx(5.0 + STEP)


def test_prefill_worker_holds_its_kv_until_sent() -> None:
    scheduler, log = scheduler_and_log(PrefillWorker, output=1)
    log.add(0.0, 10, 1)
    assert isinstance(scheduler, PrefillWorker)
    scheduler.accept(0, 0.0)
    assert scheduler.complete() == [0]
    assert (scheduler.used, scheduler.in_transfer, scheduler.unsent) == (7, 1, {0: 7})  # 100 tokens in blocks of 16
    scheduler.plan(scheduler.end)
    assert scheduler.end == inf
    assert scheduler.release(0, 1.0) is False  # no request waits
    assert (scheduler.used, scheduler.in_transfer) == (0, 0)


def test_decode_worker_reserves_kv_space_before_a_transfer() -> None:
    log = RequestLog()
    worker = DecodeWorker(linear(small(128)).steps, small(128), log)
    for _ in range(2):
        log.add(0.0, 64, 20)
    log.generated[0] = log.generated[1] = 1
    worker.offered.extend((0, 1))
    assert worker.context(0) == 64
    assert worker.reserve() == [0]  # four blocks now and a fifth with the next token; twice that is more than the eight there are
    assert (worker.used, worker.in_transfer, worker.receiving) == (4, 1, {0: 4})
    assert worker.reserve() == []
    assert worker.receive(0, 1.0)
    assert (worker.in_transfer, worker.running) == (0, 1)
    assert worker.end == pytest.approx(1.0 + 19 * STEP)
    assert not worker.receiving


def test_a_port_s_first_byte() -> None:
    """NCCL's protocol for large messages: a start, and a hop of NVLink or 14 us to the network, whose own hop is 4."""
    workload, shape = workload_and_shape("llama-3.1-8b")
    h100 = CATALOG.gpu_by_id["h100-sxm"]
    far, near = (port_of(workload, shape, h100, 2, same_machine=same) for same in (False, True))
    start, hop = (collective_parameters()[f"simple.{name}"] for name in ("start", "hop.nvlink"))
    assert far.latency == pytest.approx(start + (4 + 14) * 1e-6)
    assert near.latency == pytest.approx(start + hop)
    assert far.into == far.out == pytest.approx(2 * 400e9 / 8 * 0.92)
    assert (near.kind, near.token_bytes) == ("nvswitch", 131072)


def test_ports_by_hand() -> None:
    """A megabyte a token: out at 10 tokens a second, in at 5, and half a second before the first byte."""
    quick, slow = Port(10e6, 10e6, 0.5, 1e6), Port(5e6, 5e6, 0.2, 1e6)
    wires = TransferQueues([quick, slow, quick])
    assert wires.send(0, 1, 10, 1.0) == pytest.approx(1.0 + 2.0 + 0.5)  # as slow as the slower end
    assert wires.send(0, 2, 10, 1.0) == pytest.approx(1.0 + 1.0 + 1.0 + 0.5)  # after the first has left
    assert wires.send(2, 1, 10, 1.0) == pytest.approx(1.0 + 2.0 + 2.0 + 0.5)  # after the first has come
    assert (wires.count, wires.bytes) == (3, 3e7)
    assert wires.seconds == pytest.approx(2.5 + 2.5 + 4.5)
    assert wires.waited == pytest.approx(0.0 + 1.0 + 2.0)
    wires.reset_port(0, 1.5)
    assert wires.send(0, 2, 10, 1.5) == pytest.approx(2.0 + 1.0 + 0.5)  # the other end takes in the second until 2


def test_machines_are_billed_while_they_are_rented() -> None:
    machine = ReplicaMachine(0, range(1), spot=True, open=True, since=0.0)
    machine.start(1.0)  # held already
    machine.stop(3.0)
    machine.stop(4.0)
    machine.start(10.0)
    assert machine.seconds(12.0) == 3.0 + 2.0
    assert machine.seconds(2.0) == 2.0
    machine.stop(11.0)
    assert machine.seconds(99.0) == 4.0


def use(outcome: FleetOutcome) -> tuple[float, float, float]:
    (one,) = outcome.pools
    return one.busy_seconds, one.mean_batch, one.peak_cache


def test_pool_statistics_by_hand() -> None:
    """One prefill step, nine decode steps alone; then both are prefilled and decoded together."""
    outcome = simulate_fleet(Fleet((station("one", limits=small(256), gpus=4),)), requests((0.0, 100, 10), (1.0, 20, 3)))
    busy, batch, peak = use(outcome)
    assert busy == pytest.approx(13 * STEP)
    assert batch == pytest.approx((9 + 2) / 13)
    assert peak == pytest.approx(7 / 16)
    assert outcome.served.busy == pytest.approx(13 * STEP / (1.0 + 3 * STEP))
    assert outcome.seconds == pytest.approx(1.0 + 3 * STEP)
    two = replace(station("two"), server=linear(DEFAULT_LIMITS, stages=2))
    assert simulate_fleet(Fleet((two,)), apart(2)).pools[0].busy_seconds == pytest.approx(2 * 2 * STEP / 2)


LIKE = Figure(1.0, 0.5, 2.0, "s", "modelled")
STEADY = Load(10.0, Lengths(50), Lengths(3), 40, burstiness=0.0)  # a tenth of a second apart, three steps each


def test_a_fleet_s_answer_by_hand() -> None:
    heard: list[float] = []
    answer = fleet_answer(Fleet((station("one", gpus=2),)), STEADY, Objectives(ttft_max=1.5 * STEP), LIKE, progress=heard.append)
    assert heard == pytest.approx([1 / 3, 2 / 3, 1])
    for times, steps in ((answer.ttft, 1), (answer.tpot, 1), (answer.latency, 3)):
        assert [times["p50"].value, times["p50"].low, times["p50"].high] == pytest.approx(
            [steps * STEP, steps * STEP / 2, steps * 2 * STEP]
        )
    assert answer.hours == pytest.approx((3.9 + 3 * STEP) / 3600)
    assert (answer.requests, answer.rate, answer.lost, answer.refused) == (40, 10.0, 0, 0)
    assert answer.met is not None
    assert (answer.met.value, answer.met.low, answer.met.high) == (1.0, 0.0, 1.0)  # steps twice as long miss it
    assert answer.goodput is not None
    assert (answer.goodput.value, answer.goodput.low) == (answer.answered_rate.value, 0.0)
    (one,) = answer.stations
    assert (one.answered, one.copies, one.gpus) == (40, 1, 2)
    assert one.utilisation.value == pytest.approx(40 * 3 * STEP / (3.9 + 3 * STEP))
    assert one.on_demand_hours == pytest.approx(answer.hours)
    assert one.spot_hours == 0.0
    assert [warning.id for warning in answer.warnings] == ["serving.too-few"]


def test_a_fleet_s_answer_without_ranges_or_with_objectives_never_met() -> None:
    alone = fleet_answer(Fleet((station("one"),)), STEADY, Objectives(), LIKE, ranges=False)
    assert (alone.ttft["p50"].low, alone.ttft["p50"].high) == pytest.approx((STEP, STEP))
    assert (alone.met, alone.goodput) == (None, None)
    never = fleet_answer(Fleet((station("one"),)), STEADY, Objectives(ttft_max=1e-6), LIKE)
    assert never.goodput is not None
    assert (never.goodput.low, never.goodput.value, never.goodput.high) == (0.0, 0.0, 0.0)
    assert [warning.id for warning in never.warnings] == ["serving.too-few", "serving.missed"]
    tight = Fleet((station("one", limits=small(48)), station("large", limits=small(64))))
    long = Load(10.0, Lengths.histogram((30, 70), (1, 1)), Lengths(3), 40, burstiness=0.0)
    is_refused = fleet_answer(tight, long, Objectives(), LIKE)
    assert is_refused.refused > 0
    assert "serving.refused" in [warning.id for warning in is_refused.warnings]
