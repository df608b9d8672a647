"""One way to run the work on a group of GPUs, and the best way of each group."""

from __future__ import annotations

from dataclasses import dataclass

from whichgpu.catalog.gpu import Gpu
from whichgpu.estimate.fit import Verdict
from whichgpu.estimate.time.calibration import Calibration
from whichgpu.estimate.time.fallbacks import computes_fast
from whichgpu.workload.shapes import Shape
from whichgpu.workload.workload import Parallel, Workload

# What a GPU without units for the usual precision runs in instead.
INSTEAD = {"bf16": ("bf16", "fp16", "fp32"), "amp-bf16": ("amp-bf16", "amp-fp16", "fp32"), "fp16": ("fp16", "fp32")}


@dataclass(frozen=True, slots=True)
class WorkloadRequest:
    """The work: a request with its defaults, which of its fields the user gave, and its model."""

    workload: Workload
    given: frozenset[str]
    shape: Shape
    calibration: Calibration
    bare: Workload  # as the user spelled it

    def precision_on(self, gpu: Gpu) -> str:
        """What this GPU computes in: as asked, or else the first usual one it has units for."""
        usual = self.workload.precision or "bf16"
        if "precision" in self.given:
            return usual
        choices = INSTEAD.get(usual, (usual,))
        able = (name for name in choices if computes_fast(gpu, name))
        return next(able, choices[-1])


@dataclass(frozen=True, slots=True)
class ReplicaSimulation:
    """What a simulation of one copy of the model showed: seconds at the percentile asked for, of so many requests."""

    rate: float  # requests a second of one copy
    ttft: float
    tpot: float
    requests: int
    fast: tuple[float, float] = (0.0, 0.0)  # both where steps are as short as they may be
    slow: tuple[float, float] = (0.0, 0.0)  # and as long


@dataclass(frozen=True, slots=True)
class Configuration:
    """Seconds are of a step, a pass, or between one sequence's tokens; `rate` is work a second of the whole group.

    `capacity` is requests a second it stands with its objectives kept, where it serves; `most` the rate beyond which no
    simulation is asked; `served` what one showed. Once simulated, `capacity` is the share of the rate asked for that a copy gets.
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
    need: int
    usable: int
    fits: Verdict
    bound: str
    kind: str  # whose ranges apply: train, forward, generate
    ttft: float | None = None
    capacity: float | None = None
    most: float | None = None
    served: ReplicaSimulation | None = None
    read: float = 0.0  # seconds of one prompt alone, where it serves
    floor: float = 0.0  # seconds that bytes over bandwidth or FLOPs over peak take at the least, where known
    bears: float | None = None  # requests a second beyond which simulation or formulas say that an objective fails
    fewest: int = 1  # copies at the least, where so many GPUs are asked for
    lightest: float = 0.0  # the same between the tokens of a sequence that has a copy to itself
    curve: tuple[tuple[int, float, float], ...] = ()  # batch, seconds, rate: what the group could do otherwise


@dataclass(frozen=True, slots=True)
class Infeasibility:
    """Why a group cannot do it: `memory`, `layout` or `latency`; `short` is how far off, as a share of what there is."""

    reason: str
    short: float


GroupResult = Configuration | Infeasibility
