"""Text generation: the tensor-parallel degree, replicas and batch with the highest throughput on each group of GPUs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import ceil
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from whichgpu.base.figure import Figure
from whichgpu.catalog.engines.registry import engine_record
from whichgpu.decide.configurations.capacity_bound import rate_bounds, safe_rates
from whichgpu.decide.configurations.configuration import Configuration, GroupResult, Infeasibility, WorkloadRequest
from whichgpu.decide.configurations.groups import Group, solve_by_class
from whichgpu.estimate.fit import required_memory, verdict
from whichgpu.estimate.group.layouts import divides_evenly
from whichgpu.estimate.group.step import Devices, GroupGrid, evaluate_group
from whichgpu.estimate.memory.dispatch import estimate_memory
from whichgpu.estimate.offline import CONCURRENCY
from whichgpu.estimate.time.grid import TimeGrid, evaluate_grid
from whichgpu.estimate.usable import usable_bytes
from whichgpu.price.table import Floats
from whichgpu.workload.precisions import PRECISION_BY_NAME
from whichgpu.workload.shapes import Transformer, as_transformer
from whichgpu.workload.workload import Parallel, Workload

BATCHES = np.array([1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512], dtype=float)
DEGREES = (1, 2, 4, 8, 16)  # These tensor-parallel degrees are tried.
# Most tokens per step tried where TPOT is missed at the engine's default: small chunks delay decode tokens less, prefill more.
STEP_TOKENS = (4096, 2048, 1024, 512)
PREFILL_TOKENS = 1024  # At best a step prefills this many tokens in the time of one prompt (assumed); used for upper bounds only.
LINEARITY = 1e-3  # Memory between two batches is interpolated if its relative error is below this.


class ServiceRates(NamedTuple):
    """Requests a second that one replica sustains at each batch: bounds from above, safe rates, and TTFT at these."""

    prefill: float  # seconds of one prefill
    bounds: Floats
    capacity: Floats
    ttft: Floats


class ReplicaTimes(msgspec.Struct, frozen=True):
    """Step times in seconds and memory of one replica in a layout, for every GPU and batch, [devices, batches]."""

    parallel: Parallel
    tpot: Floats
    ttft: Floats
    compute: Floats  # 1 if compute-bound, 0 if memory-bound
    floor: Floats  # fewest seconds between tokens possible at the GPU's peaks
    need: Floats  # low, value and high of the bytes needed on each GPU, [3, batches]
    service_rates: dict[int, ServiceRates] = msgspec.field(default_factory=dict)  # by device, once some group needed them

    @property
    def gpus(self) -> int:
        """Return the number of GPUs of one replica: the product of its tensor and pipeline degrees."""
        return self.parallel.tp * self.parallel.pp


def generate(request: WorkloadRequest, groups: Sequence[Group]) -> list[GroupResult]:
    """Return, per group of GPUs, the tensor-parallel degree, replicas and batch with the highest throughput, or why none."""

    def solve(precision: str, members: list[Group]) -> list[GroupResult]:
        return _of_precision(request, with_precision(request.workload, precision, request.stated), members)

    return solve_by_class(groups, lambda group: group.precision or request.precision_on(group.gpu), solve)


def with_precision(workload: Workload, precision: str, stated: Collection[str] = ()) -> Workload:
    """Return the workload with weights in another precision, and its KV cache in the usual one unless the user stated one."""
    if precision == workload.precision:
        return workload
    kv_precision = workload.kv_precision
    if "kv_precision" not in stated:
        shipped = engine_record(workload.engine, workload.year).kv_precisions.get(precision)
        kv_precision = shipped or PRECISION_BY_NAME[precision].kv_default
    return replace(workload, precision=precision, kv_precision=kv_precision)


def _of_precision(request: WorkloadRequest, workload: Workload, groups: Sequence[Group]) -> list[GroupResult]:
    shape = as_transformer(request.shape)
    kinds = {group.kind: group for group in groups}
    devices, device_of = list(kinds.values()), {kind: at for at, kind in enumerate(kinds)}
    sizes = _batches(workload, request.stated)
    usable = np.array([usable_bytes(group.gpu, workload) for group in devices], dtype=float)
    max_gpus = max(group.gpus for group in groups)
    replicas, smallest = [], {}
    for tp, pp in _degrees(request, workload, shape, groups):
        need = _need(workload, shape, tp, pp, sizes)
        smallest[tp * pp] = need[1, 0]
        if tp * pp <= max_gpus and need[1, 0] <= usable.max():
            replicas.append(_replica_times(request, workload, shape, devices, tp, pp, sizes, need))
    results: list[GroupResult] = []
    for group in groups:
        device = device_of[group.kind]
        min_need = min((need for gpus, need in smallest.items() if gpus <= group.gpus), default=np.inf)
        results.append(_best(request, workload, group, device, usable[device], replicas, sizes, min_need))
    return results


def _degrees(request: WorkloadRequest, workload: Workload, shape: Transformer, groups: Sequence[Group]) -> list[tuple[int, int]]:
    """Return (tensor, pipeline) degrees to try: tensor parallel within a machine, pipeline stages over several machines."""
    widest, machines = max(group.per_machine for group in groups), max(group.machines for group in groups)
    if "parallel" in request.stated and workload.parallel != Parallel():
        return [(workload.parallel.tp, 1)] if workload.parallel.tp <= widest else []
    if engine_record(workload.engine, workload.year).splits_layers:
        return [(1, pp) for pp in DEGREES if pp <= min(widest, shape.layers)]
    degrees = [(tp, 1) for tp in DEGREES if tp <= widest and divides_evenly(workload, shape, tp, 1, 1)]
    if machines > 1:
        degrees += [(8, pp) for pp in (2, 4, 8) if pp <= machines and divides_evenly(workload, shape, 8, pp, 1)]
    return degrees or [(1, 1)]


def _batches(workload: Workload, stated: frozenset[str]) -> Floats:
    """Return the numbers of running sequences per replica to try; if a batch is given without a rate, shares of that batch."""
    if workload.traits.offline and "batch" not in stated:
        return CONCURRENCY
    if "batch" in stated and workload.rate is None:
        batch = float(workload.batch or 1)
        return np.array(sorted({max(1.0, float(ceil(batch / degree))) for degree in DEGREES}))
    return BATCHES


def _replica_workload(workload: Workload, tp: int, pp: int, batch: float) -> Workload:
    nodes = 1 if engine_record(workload.engine, workload.year).splits_layers else pp
    return replace(workload, gpus=tp * pp, nodes=nodes, parallel=Parallel(tp=tp, pp=pp), batch=int(batch), micro_batch=None)


def _need(workload: Workload, shape: Transformer, tp: int, pp: int, sizes: Floats) -> Floats:
    """Return low, value and high of the bytes per GPU at each batch, [3, batches]; interpolated where they are linear."""
    exact: dict[int, Floats] = {}

    def at(index: int) -> Floats:
        if index not in exact:
            one = _replica_workload(workload, tp, pp, sizes[index])
            figure = required_memory(estimate_memory(one, shape), one)
            exact[index] = np.array([figure.low, figure.value, figure.high])
        return exact[index]

    def fill(low: int, high: int) -> None:
        middle = (low + high) // 2
        share = (sizes[middle] - sizes[low]) / (sizes[high] - sizes[low]) if high > low else 0.0
        line = at(low) + (at(high) - at(low)) * share
        if low < middle and np.max(np.abs(line - at(middle)) / at(middle)) > LINEARITY:
            fill(low, middle)
            fill(middle, high)

    fill(0, len(sizes) - 1)
    indices = sorted(exact)
    points = np.stack([exact[index] for index in indices])
    return np.stack([np.interp(sizes, sizes[indices], column) for column in points.T])


def _replica_times(
    request: WorkloadRequest, workload: Workload, shape: Transformer, devices: Sequence[Group], tp: int, pp: int, sizes: Floats,
    need: Floats,
) -> ReplicaTimes:  # fmt: skip
    one, gpus = _replica_workload(workload, tp, pp, 1), [group.gpu for group in devices]
    step: TimeGrid | GroupGrid
    if tp * pp == 1:
        step = evaluate_grid(one, shape, gpus, sizes, request.calibration)
        wall, first = step.seconds.wall, step.ttft
    else:
        fabrics = [group.fabric for group in devices]
        step = evaluate_group(one, shape, Devices.of(gpus, fabrics, request.calibration), sizes)
        wall, first = step.breakdown.wall, step.ttft
    assert first is not None
    compute = np.asarray(step.flop_seconds >= step.byte_seconds, dtype=float)
    size = (len(gpus), len(sizes))
    tpot, ttft, compute, floor = (np.broadcast_to(values, size) for values in (wall, first, compute, step.floor))
    return ReplicaTimes(one.parallel, tpot, ttft, compute, floor, need)


def _best(
    request: WorkloadRequest, workload: Workload, group: Group, device: int, usable: float, replicas: Sequence[ReplicaTimes],
    sizes: Floats, min_need: float,
) -> GroupResult:  # fmt: skip
    """Return the best tensor-parallel degree and batch by throughput, or by capacity if a rate is given; `min_need` is bytes."""
    best: Configuration | None = None
    able: list[Configuration] = []
    reason = Infeasibility("memory", min_need / usable - 1.0) if np.isfinite(min_need) else Infeasibility("layout", np.inf)
    for replica in replicas:
        if replica.gpus > group.gpus or group.gpus % replica.gpus or replica.parallel.tp > group.per_machine:
            continue
        fitting = replica.need[2] <= usable
        if not fitting.any() and replica.need[1, 0] <= usable:
            fitting[0] = True  # The smallest batch may fit: usable memory lies within the range of the estimated need.
        if not fitting.any():
            continue
        dp = group.gpus // replica.gpus
        result = _of_replica(request, workload, replica, device, dp, usable, sizes, fitting)
        if isinstance(result, Infeasibility):
            reason = result if best is None else reason
        elif result is not None:
            able.append(result)
            best = result if best is None or _better(result, best, workload) else best
    if best is None or workload.rate is None:
        return best or reason
    # Queueing formulas are cautious, so a layout with a lower rate by them may be the better one in simulation.
    others = tuple(one for one in able if one is not best and (one.rate_bound or 0.0) > (best.capacity or 0.0))
    return replace(best, other_layouts=others)


def _of_replica(
    request: WorkloadRequest, workload: Workload, replica: ReplicaTimes, device: int, dp: int, usable: float, sizes: Floats,
    fitting: np.ndarray,
) -> GroupResult | None:  # fmt: skip
    """Return the best batch of `dp` replicas, or the objective they miss; None if the given batch does not fit."""
    allowed = fitting
    if workload.rate is None and "batch" in request.stated:
        allowed = fitting & (sizes == max(1.0, np.ceil((workload.batch or 1) / dp)))
    if not allowed.any():
        return None
    tpot, ttft = replica.tpot[device], replica.ttft[device]
    rate = sizes / tpot * dp
    if not workload.serving:
        at = int(np.argmax(np.where(allowed, rate, -1.0)))
        return _configuration(workload, replica, at, device, dp, sizes, usable, rate, fitting)
    if device not in replica.service_rates:
        replica.service_rates[device] = _service_rates(workload, sizes, tpot, ttft)
    prefill, bounds, capacity, ttft = replica.service_rates[device]
    tpot = _between_tokens(workload, tpot, prefill)
    reachable = allowed | _reachable(replica.need[0], usable, workload) if workload.rate is not None else allowed
    bound = float(np.where(reachable, bounds, 0.0).max()) * dp
    capacity = capacity * dp
    if not (allowed & (capacity > 0)).any():
        return Infeasibility("latency", _shortfall(workload, tpot, ttft, allowed))
    score = np.where(allowed & (capacity > 0), capacity if workload.rate is not None else rate, -1.0)
    at = int(np.argmax(score))
    one = _configuration(workload, replica, at, device, dp, sizes, usable, rate, fitting)
    sustained = float(capacity[at])
    return replace(one, ttft=float(ttft[at]), capacity=sustained, rate_bound=max(bound, sustained), prefill=prefill)


def _service_rates(workload: Workload, sizes: Floats, tpot: Floats, ttft: Floats) -> ServiceRates:
    """Return the rates that one replica sustains as a service at each batch."""
    prefill = _prefill(workload, sizes, tpot, ttft)
    rates = _rates(workload, sizes, tpot, ttft, prefill)
    if rates.capacity.any() or workload.rate is None:
        return rates
    return _rates(workload, sizes, _with_short_steps(workload, sizes, tpot, prefill), ttft, prefill)


def _rates(workload: Workload, sizes: Floats, tpot: Floats, ttft: Floats, prefill: float) -> ServiceRates:
    bounds = _rate_bounds(workload, sizes, tpot, ttft, prefill)
    return ServiceRates(prefill, bounds, *safe_rates(workload, sizes, _between_tokens(workload, tpot, prefill), ttft))


def _with_short_steps(workload: Workload, sizes: Floats, tpot: Floats, prefill: float) -> Floats:
    """Return seconds between tokens if steps have the fewest tokens that are tried, so that prefill adds one short chunk."""
    limits = engine_record(workload.engine, workload.year).limits
    if not (limits.mixed_steps and limits.chunked_prefill):
        return tpot
    chunk = min(1.0, STEP_TOKENS[-1] / max(1, workload.seq_in or 1))
    shared = sizes / max(1, workload.seq_out or 1)
    return tpot - prefill * np.maximum(0.0, shared - chunk)


def _between_tokens(workload: Workload, step: Floats, prefill: float) -> Floats:
    """Return seconds between a user's tokens; without a rate, of the prefills in `step` the user's own is not among them."""
    return step - prefill / max(1, workload.seq_out or 1) if workload.rate is None else step


def _prefill(workload: Workload, sizes: Floats, tpot: Floats, ttft: Floats) -> float:
    """Return seconds of one prefill, from the first-token time (a prefill and a step) and the time per token at each batch."""
    apart = 1.0 - sizes / max(1, workload.seq_out or 1)
    at = int(np.argmax(np.abs(apart)))
    return max(0.0, float((ttft[at] - tpot[at]) / apart[at])) if apart[at] else 0.0


def _rate_bounds(workload: Workload, sizes: Floats, tpot: Floats, ttft: Floats, prefill: float) -> Floats:
    """Return upper bounds on requests a second per batch, assuming a step prefills several short prompts in the time of one."""
    at_once = max(1, PREFILL_TOKENS // max(1, workload.seq_in or 1))
    saved = prefill * (1.0 - 1.0 / at_once)
    return rate_bounds(workload, sizes, tpot - saved * sizes / max(1, workload.seq_out or 1), ttft, at_once)


def _reachable(low_need: Floats, usable: float, workload: Workload) -> np.ndarray:
    """Return a mask of the batches a server may reach: those whose memory fits when answers are half done, and the next one.

    A server fills its KV cache block by block, so the high end of the estimated need never excludes a batch.
    """
    length = float((workload.seq_in or 1) + (workload.seq_out or 0))
    written = ((workload.seq_in or 1) + 0.5 * (workload.seq_out or 0)) / length
    weights = low_need[0] - (low_need[-1] - low_need[0]) / max(BATCHES[-1] - BATCHES[0], 1.0) * (len(low_need) > 1)
    fits: np.ndarray = weights + (low_need - weights) * written <= usable
    reached = fits.copy()
    reached[1:] |= fits[:-1]
    return reached


def _shortfall(workload: Workload, tpot: Floats, ttft: Floats, allowed: np.ndarray) -> float:
    """Return by what share of its limit the worst objective is exceeded, at the allowed batch where that is least."""
    worst = np.zeros_like(tpot)
    if workload.tpot_max is not None:
        worst = np.maximum(worst, tpot / workload.tpot_max)
    if workload.ttft_max is not None:
        worst = np.maximum(worst, ttft / workload.ttft_max)
    return float(worst[allowed].min()) - 1.0


def _better(one: Configuration, other: Configuration, workload: Workload) -> bool:
    if workload.rate is not None and one.capacity is not None and other.capacity is not None:
        return one.capacity > other.capacity
    return one.rate > other.rate


def _configuration(
    workload: Workload, replica: ReplicaTimes, at: int, device: int, dp: int, sizes: Floats, usable: float, rate: Floats,
    fitting: np.ndarray,
) -> Configuration:  # fmt: skip
    """Return the configuration of `dp` replicas at one batch, without the fields that only a service has."""
    low, value, high = replica.need[:, at].tolist()
    tpot, floor = replica.tpot[device], replica.floor[device]
    curve = tuple((int(sizes[b] * dp), float(tpot[b]), float(rate[b])) for b in np.flatnonzero(fitting).tolist())
    return Configuration(
        precision=workload.precision or "bf16", parallel=replace(replica.parallel, dp=dp), batch=int(sizes[at] * dp),
        micro_batch=None, accumulation=1, checkpointing="none", seconds=float(tpot[at]), rate=float(rate[at]),
        unit="output tokens/s", need=int(value), usable=int(usable),
        fits=verdict(Figure(value, low, high, "byte", "modelled"), int(usable)),
        bound="compute" if replica.compute[device, at] else "bandwidth", kind="generate",
        floor=float(floor[at]), min_tpot=float(floor[0]), curve=curve,
    )  # fmt: skip
