"""A configuration of a workload on a group of GPUs, or why a group has none."""

from __future__ import annotations

import msgspec

from whichgpu.catalog.gpu import Gpu
from whichgpu.estimate.fit import Verdict
from whichgpu.estimate.serving.scheduler_limits import LimitOverrides
from whichgpu.estimate.time.calibration import Calibration
from whichgpu.estimate.time.fallbacks import computes_fast
from whichgpu.workload.shapes import Shape
from whichgpu.workload.workload import Parallel, Workload

MAX_REPLICAS = 64  # A service that needs more replicas is a case for `plan`, not `recommend`.
# For each default precision, the precisions to try in this order, since a GPU may lack units for the first.
FALLBACKS = {"bf16": ("bf16", "fp16", "fp32"), "amp-bf16": ("amp-bf16", "amp-fp16", "fp32"), "fp16": ("fp16", "fp32")}


class WorkloadRequest(msgspec.Struct, frozen=True):
    """A workload with its defaults filled in, the names of the fields the user gave, and its model."""

    workload: Workload
    stated: frozenset[str]
    shape: Shape
    calibration: Calibration
    bare: Workload  # the workload as the user wrote it, without defaults

    def precision_on(self, gpu: Gpu) -> str:
        """Return the model's own precision on a GPU: the user's if given, else the first default that it has units for."""
        usual = self.workload.precision or "bf16"
        if "precision" in self.stated:
            return usual
        choices = FALLBACKS.get(usual, (usual,))
        return next((name for name in choices if computes_fast(gpu, name)), choices[-1])


class ReplicaSimulation(msgspec.Struct, frozen=True):
    """Simulated latencies of one replica, in seconds at the percentile of the objectives."""

    rate: float  # requests per second at which it was simulated
    replicas: int  # equal replicas that share the load in turn, this one among them
    ttft: float
    tpot: float
    requests: int
    fast: tuple[float, float] = (0.0, 0.0)  # TTFT and TPOT at the short end of the step time's range
    slow: tuple[float, float] = (0.0, 0.0)  # TTFT and TPOT at the long end of the step time's range
    max_slowdown: float = 1.0  # largest factor on step times at which the objectives hold
    keeps: float = 1.0  # probability that they hold


class Configuration(msgspec.Struct, frozen=True):
    """Layout, batch and precision of a workload on a group of GPUs, with its times and memory.

    `seconds` are of a training step, a forward pass, or between the tokens of one sequence; `rate` is work a second of the whole
    group. Of a service, `capacity` is the requests a second at which the group keeps its objectives: by queueing formulas, and
    once simulated its share of the rate asked for. `rate_bound` is an upper bound on it.
    """

    precision: str
    parallel: Parallel
    batch: int
    micro_batch: int | None
    accumulation: int
    checkpointing: str
    seconds: float
    rate: float
    unit: str
    need: int  # bytes needed on each GPU
    usable: int
    fits: Verdict
    bound: str
    kind: str  # which error ranges apply: train, forward or generate
    ttft: float | None = None
    capacity: float | None = None
    rate_bound: float | None = None
    simulation: ReplicaSimulation | None = None
    prefill: float = 0.0  # seconds of one prompt's prefill alone; services only
    floor: float = 0.0  # fewest seconds possible: bytes over bandwidth or FLOPs over peak; 0 if unknown
    max_rate: float | None = None  # highest requests per second at which the objectives hold, by simulation or formulas
    min_replicas: int = 1  # fewest replicas that have the required number of GPUs
    min_tpot: float = 0.0  # fewest seconds between tokens, with one sequence on a replica
    curve: tuple[tuple[int, float, float], ...] = ()  # other batches, each with its seconds and rate
    overrides: LimitOverrides = LimitOverrides()  # scheduler limits of each replica other than the engine's defaults
    other_layouts: tuple[Configuration, ...] = ()  # those of a service that may need fewer replicas in simulation

    @property
    def layouts(self) -> tuple[Configuration, ...]:
        """Return this layout and the others of a service, each by itself, with as many replicas at least."""
        return tuple(
            msgspec.structs.replace(one, other_layouts=(), min_replicas=self.min_replicas) for one in (self, *self.other_layouts)
        )


class Infeasibility(msgspec.Struct, frozen=True):
    """Why a group of GPUs cannot do the work: `memory`, `layout` or `latency`; `short` is the share by which it misses it."""

    reason: str
    short: float


GroupResult = Configuration | Infeasibility
