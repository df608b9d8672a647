"""What holds a job back: each rule from the signs it is made for, and from none of the others."""

from __future__ import annotations

from typing import Any

import pytest

from tests.machines import probe_of
from tests.recorded_nvml import A100_MIG, H200, RTX_3060_X4, T4_HOT
from whichgpu.base.messages import english
from whichgpu.measure.drivers.card import Card, PcieLink, Sample
from whichgpu.measure.host_load import HostLoad
from whichgpu.measure.report.diagnose import Bottleneck, find_bottlenecks

CARD = Card(0, "nvidia", "NVIDIA H200", Sample(0), pcie=PcieLink(1, 16, 5, 16))
NARROW = Card(0, "nvidia", "NVIDIA GeForce RTX 3060", Sample(0), pcie=PcieLink(4, 4, 4, 16))
GBS = 10**9
WORK: dict[str, Any] = {
    "utilisation_percent": 99,
    "memory_utilisation_percent": 40,
    "power_watts": 600.0,
    "power_limit_watts": 700.0,
    "sm_clock_hz": 1_900_000_000,
    "sm_clock_max_hz": 1_980_000_000,
    "throttle": (),
    "processes": 1,
    "pcie_rx_bandwidth": GBS // 10,
    "pcie_tx_bandwidth": GBS // 100,
}
QUIET = HostLoad(cores=16, busy_cores=1.0, waiting_share=0.0, busiest_thread=0.5, worker_cores=0.0)


def load(**changes: Any) -> HostLoad:
    return HostLoad(**{name: changes.get(name, getattr(QUIET, name)) for name in QUIET.__struct_fields__})


def verdicts(card: Card = CARD, host: HostLoad | None = QUIET, count: int = 5, **changes: Any) -> list[Bottleneck]:
    return list(find_bottlenecks([Sample(0, **{**WORK, **changes})] * count, [host] * count if host else [], card))


def ids(**arguments: Any) -> list[str]:
    return [verdict.id for verdict in verdicts(**arguments)]


def test_hard_arithmetic() -> None:
    assert [(verdict.id, verdict.sure) for verdict in verdicts()] == [("compute", True)]


def test_full_power_at_full_clocks_is_no_problem() -> None:
    assert ids(power_watts=699.0, throttle=("power-cap",)) == ["compute"]


def test_memory_bound() -> None:
    assert ids(memory_utilisation_percent=88, power_watts=450.0) == ["memory"]


def test_small_kernels_behind_a_full_load() -> None:
    assert ids(power_watts=180.0, memory_utilisation_percent=5) == ["small-kernels"]


def test_launch_bound_behind_a_full_load() -> None:
    assert ids(power_watts=180.0, memory_utilisation_percent=5, host=load(busiest_thread=1.0)) == ["launch"]


def test_launch_bound_with_gaps() -> None:
    bottlenecks = verdicts(utilisation_percent=45, host=load(busiest_thread=0.99))
    assert [(verdict.id, verdict.sure) for verdict in bottlenecks] == [("launch", True)]


def test_input_bound_by_processors() -> None:
    host = load(busy_cores=15.5, worker_cores=14.0, busiest_thread=0.3)
    assert ids(utilisation_percent=35, host=host) == ["input-processor"]


def test_input_bound_by_too_few_workers() -> None:
    assert ids(utilisation_percent=35, host=load(busy_cores=3, worker_cores=2.0, busiest_thread=0.2)) == ["input-workers"]


def test_input_bound_by_disks() -> None:
    assert ids(utilisation_percent=20, host=load(waiting_share=0.4)) == ["input-disk"]


def test_input_bound_by_copies() -> None:
    assert ids(utilisation_percent=50, pcie_rx_bandwidth=25 * GBS) == ["input-copy"]


def test_a_full_link() -> None:
    assert ids(utilisation_percent=99, pcie_rx_bandwidth=50 * GBS)[0] == "pcie"
    assert ids(utilisation_percent=30, pcie_tx_bandwidth=55 * GBS) == ["pcie"]


def test_four_pcie_lanes_saturate_earlier_than_sixteen() -> None:
    bottlenecks = verdicts(card=NARROW, utilisation_percent=55, pcie_rx_bandwidth=5_500_000_000, memory_utilisation_percent=10)
    assert bottlenecks[0].id == "pcie"
    assert any(sign.id == "diagnose.sign.narrow" for sign in bottlenecks[0].because)
    assert "pcie" not in ids(utilisation_percent=55, pcie_rx_bandwidth=5_500_000_000)


def test_overheating_comes_first_and_other_findings_follow() -> None:
    assert ids(throttle=("hardware-slowdown", "hardware-thermal"), sm_clock_hz=600_000_000) == ["thermal", "compute"]


def test_a_weak_supply() -> None:
    assert ids(throttle=("hardware-slowdown", "power-brake"))[0] == "supply"
    assert ids(throttle=("hardware-slowdown",))[0] == "supply"


def test_a_power_limit_that_costs_clocks() -> None:
    assert ids(throttle=("power-cap",), sm_clock_hz=1_200_000_000, power_watts=699.0) == ["power", "compute"]


def test_idle_gpu() -> None:
    assert ids(utilisation_percent=0, processes=0, host=None) == ["idle"]
    assert ids(utilisation_percent=0, processes=None, host=load(busiest_thread=None, worker_cores=None)) == ["idle"]


def test_a_program_that_gives_no_work() -> None:
    assert ids(utilisation_percent=0) == ["stalled", "waiting"]
    assert ids(utilisation_percent=0, processes=0, host=load(busiest_thread=1.0)) == ["stalled", "launch"]


def test_slow_data_loaders_leave_the_gpu_all_but_idle() -> None:
    slow = load(busiest_thread=0.04, worker_cores=4.0)  # as read on an H200 fed by four loaders of 20 ms per sample
    assert ids(utilisation_percent=1, host=slow) == ["input-workers"]


def test_wait_of_unknown_cause() -> None:
    bottlenecks = verdicts(utilisation_percent=30, host=None)
    assert [(verdict.id, verdict.sure) for verdict in bottlenecks] == [("waiting", False)]


def test_unreported_load_is_not_guessed() -> None:
    assert ids(utilisation_percent=None) == ["unknown"]


def test_too_few_readings_or_only_lost_ones_give_no_verdict() -> None:
    assert verdicts(count=2) == []
    assert find_bottlenecks([Sample(0, **WORK, lost=True)] * 10, [], CARD) == ()


def test_brief_overheating_is_not_the_main_finding() -> None:
    samples = [Sample(0, **{**WORK, "throttle": ("software-thermal",) if tick == 0 else ()}) for tick in range(10)]
    assert [verdict.id for verdict in find_bottlenecks(samples, [], CARD)] == ["compute"]


@pytest.mark.parametrize(
    ("recording", "expected"), [(H200, "idle"), (T4_HOT, "thermal"), (A100_MIG, "unknown"), (RTX_3060_X4, "pcie")]
)
def test_recorded_cards(recording: Any, expected: str) -> None:
    probe = probe_of(recording)
    card = probe.cards()[0]
    samples = [probe.samples(traffic=True)[0] for _ in range(5)]
    assert find_bottlenecks(samples, [], card)[0].id == expected


@pytest.mark.parametrize("share", [0, 20, 50, 80, 100])
def test_every_verdict_has_words_and_advice(share: int) -> None:
    for host in (None, QUIET, load(busiest_thread=1.0), load(busy_cores=16.0), load(waiting_share=0.5), load(worker_cores=3.0)):
        for link in (0, 25 * GBS, 60 * GBS):
            for verdict in verdicts(utilisation_percent=share, host=host, pcie_rx_bandwidth=link, power_watts=7.0 * share):
                for message in (verdict.what, verdict.advice, *verdict.because):
                    assert message.id in english()
                    assert "{" not in english().render(message)
