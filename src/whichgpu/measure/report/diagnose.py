"""Bottlenecks of a running job, by rules over readings of a GPU and of the host.

Utilisation only says that some kernel ran; the rules read it together with the memory controller, clocks, power, the
reasons for slow clocks, PCIe traffic and the processors' side. The first verdict is the main one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import fmean

import msgspec

from whichgpu.base.messages import Message, msg
from whichgpu.catalog.gpu import PCIE_LANE_BYTES
from whichgpu.measure.drivers.card import Card, Sample
from whichgpu.measure.drivers.throttle import SUPPLY, THERMAL
from whichgpu.measure.host_load import HostLoad
from whichgpu.measure.meter import IDLE_PERCENT

MIN_SAMPLES = 3  # Fewest readings for a diagnosis (assumed).
WAITS_BELOW = 70  # Utilisation in percent below which a GPU counts as waiting.
MEMORY_BUSY = 60  # Percent of the time in which memory was read or written, from which it counts as busy.
MEMORY_QUIET = 30  # Percent of the time in which memory was read or written, below which it counts as quiet.
FULL_THREAD, FULL_HOST = 0.9, 0.85
DISK_WAIT = 0.1  # share of processor time waiting for disks from which disks count as the bottleneck
LINK_FULL, LINK_BUSY = 0.6, 0.3  # Shares of the PCIe bandwidth from which the link counts as full, and as busy.
SLOW_CLOCK = 0.8  # Share of the highest clock below which the clock counts as reduced.
HARD_WORK, LIGHT_WORK = 0.7, 0.5  # Shares of the power limit that mean a heavy and a light load.
OFTEN, PREVAILING = 0.2, 0.5  # Shares of the readings from which a sign counts as frequent, and as prevailing.
# Factors that convert each sign to percent, in the order of display.
PERCENT_SCALES = {"load": 1, "memory": 1, "clock": 100, "power": 100, "link": 100, "thread": 100, "host": 100, "disk": 100}


class Bottleneck(msgspec.Struct, frozen=True):
    """One bottleneck of a running job, with its evidence and advice; `sure` if the readings leave little doubt."""

    id: str
    gpu: int
    sure: bool
    what: Message
    because: tuple[Message, ...]
    advice: Message


class _Signs(msgspec.Struct, frozen=True):
    """Averages of the readings of one GPU and its host; None for a quantity without readings."""

    load: float | None
    memory: float | None
    clock: float | None
    power: float | None
    thermal: float
    supply: float
    capped: float
    link: float | None
    narrow: tuple[int, int] | None
    thread: float | None
    workers: float | None
    host: float | None
    disk: float | None
    processes: float | None


def find_bottlenecks(samples: Sequence[Sample], loads: Sequence[HostLoad], card: Card) -> tuple[Bottleneck, ...]:
    """Return the bottlenecks of one GPU from readings a few seconds apart; none if there are too few readings."""
    alive = [sample for sample in samples if not sample.lost]
    if len(alive) < MIN_SAMPLES:
        return ()
    signs = _signs(alive, loads, card)
    return tuple(_verdict(id, sure, card.index, signs) for id, sure in _rules(signs))


def _rules(signs: _Signs) -> Iterator[tuple[str, bool]]:
    if signs.load is None:
        yield "unknown", False
        return
    if signs.load <= IDLE_PERCENT and not (signs.link or 0) >= LINK_BUSY:
        if not signs.processes and signs.thread is None:
            yield "idle", True
            return
        if (signs.workers or 0) < 1:  # With busy data loaders the GPU waits for them instead.
            yield "stalled", True
        yield from _waiting(signs)
        return
    if signs.thermal >= OFTEN:
        yield "thermal", True
    if signs.supply >= OFTEN:
        yield "supply", True
    if signs.capped >= PREVAILING and (signs.clock or 1.0) < SLOW_CLOCK:
        yield "power", True
    if (signs.link or 0) >= LINK_FULL:
        yield "pcie", True
    elif signs.narrow and (signs.link or 0) >= LINK_BUSY:
        yield "pcie", False
    yield from _waiting(signs) if signs.load < WAITS_BELOW else _working(signs)


def _waiting(signs: _Signs) -> Iterator[tuple[str, bool]]:
    """Yield ids of bottlenecks of a GPU that waits, by what is busy meanwhile, and whether each is certain."""
    if (signs.host or 0) >= FULL_HOST:
        yield "input-processor", True
    elif (signs.disk or 0) >= DISK_WAIT:
        yield "input-disk", True
    elif (signs.thread or 0) >= FULL_THREAD:
        yield "launch", True
    elif (signs.workers or 0) >= 1:
        yield "input-workers", False
    elif LINK_BUSY <= (signs.link or 0) < LINK_FULL:
        yield "input-copy", False
    elif (signs.link or 0) < LINK_FULL:
        yield "waiting", False


def _working(signs: _Signs) -> Iterator[tuple[str, bool]]:
    """Yield ids of bottlenecks of a GPU that runs kernels nearly all the time, and whether each is certain."""
    power = signs.power
    if (signs.memory or 0) >= MEMORY_BUSY:
        yield "memory", True
    elif (signs.thread or 0) >= FULL_THREAD and power is not None and power < LIGHT_WORK and (signs.memory or 0) < MEMORY_QUIET:
        yield "launch", False
    elif power is not None and power < LIGHT_WORK:
        yield "small-kernels", False
    else:
        yield "compute", power is not None and power >= HARD_WORK


def _signs(samples: Sequence[Sample], loads: Sequence[HostLoad], card: Card) -> _Signs:
    reasons = [set(sample.throttle) for sample in samples if sample.throttle is not None]
    carries = _link_bandwidth(card)
    pcie = card.pcie
    width, best = (pcie.width, pcie.width_max) if pcie else (None, None)
    return _Signs(
        load=_mean(sample.utilisation_percent for sample in samples),
        memory=_mean(sample.memory_utilisation_percent for sample in samples),
        clock=_mean(_ratio(sample.sm_clock_hz, sample.sm_clock_max_hz) for sample in samples),
        power=_mean(_ratio(sample.power_watts, sample.power_limit_watts) for sample in samples),
        thermal=_share(reasons, lambda active: bool(active & THERMAL)),
        supply=_share(reasons, lambda active: bool(active & SUPPLY) or ("hardware-slowdown" in active and not active & THERMAL)),
        capped=_share(reasons, lambda active: "power-cap" in active),
        link=_mean(_ratio(_busiest(sample), carries) for sample in samples),
        narrow=(width, best) if width and best and width < best else None,
        thread=_mean(load.busiest_thread for load in loads),
        workers=_mean(load.worker_cores for load in loads),
        host=_mean(load.busy_cores / load.cores for load in loads),
        disk=_mean(load.waiting_share for load in loads),
        processes=_mean(sample.processes for sample in samples),
    )


def _verdict(id: str, sure: bool, gpu: int, signs: _Signs) -> Bottleneck:
    values = ((name, getattr(signs, name), scale) for name, scale in PERCENT_SCALES.items())
    because = [msg(f"diagnose.sign.{name}", value=f"{value * scale:.0f}%") for name, value, scale in values if value is not None]
    if signs.workers:
        because.append(msg("diagnose.sign.workers", value=f"{signs.workers:.1f}"))
    if signs.narrow:
        because.append(msg("diagnose.sign.narrow", width=signs.narrow[0], best=signs.narrow[1]))
    return Bottleneck(id, gpu, sure, msg(f"diagnose.what.{id}"), tuple(because), msg(f"diagnose.try.{id}"))


def _link_bandwidth(card: Card) -> int | None:
    """Return bytes per second in one direction of the PCIe link at full speed, since idle GPUs reduce the speed."""
    link = card.pcie
    generation = (link.generation_max or link.generation) if link else None
    lane_bandwidth = PCIE_LANE_BYTES.get(generation) if generation else None
    return lane_bandwidth * link.width if link and lane_bandwidth and link.width else None


def _busiest(sample: Sample) -> int | None:
    return max((rate for rate in (sample.pcie_rx_bandwidth, sample.pcie_tx_bandwidth) if rate is not None), default=None)


def _mean(values: Iterator[float | None] | Iterator[float] | Iterator[int | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return fmean(numbers) if numbers else None


def _ratio(value: float | None, whole: float | None) -> float | None:
    return value / whole if value is not None and whole else None


def _share(reasons: Sequence[set[str]], test: Callable[[set[str]], bool]) -> float:
    return sum(test(active) for active in reasons) / len(reasons) if reasons else 0.0
