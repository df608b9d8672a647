"""A model on its GPUs as a server: its step times, its limits, how many lanes work side by side."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.host import Instance
from whichgpu.estimate.group.engine_steps import EngineSteps
from whichgpu.estimate.group.step import Devices
from whichgpu.estimate.serving.scheduler_limits import LimitOverrides, SchedulerLimits, batch_limits, scheduler_limits
from whichgpu.estimate.serving.simulator import Arrival, Progress, RoutingPolicy, SimulationOutcome, simulate
from whichgpu.estimate.serving.step_tables import StepTables, TableSizes
from whichgpu.workload.shapes import Transformer
from whichgpu.workload.workload import Workload


@dataclass(frozen=True, slots=True)
class Server:
    """`limits` are one copy's; `lane` is what each of its batches in flight may have."""

    steps: StepTables
    limits: SchedulerLimits
    lane: SchedulerLimits
    copies: int
    stages: int

    def run(
        self,
        arrivals: Iterable[Arrival],
        concurrency: int | None = None,
        hash_tokens: int = 0,
        routing: RoutingPolicy = "least",
        progress: Progress | None = None,
    ) -> SimulationOutcome:
        """Serve these."""
        return simulate(
            arrivals, self.steps, self.lane, self.copies, self.stages, routing, concurrency, hash_tokens, progress
        )  # fmt: skip

    def scaled(self, factor: float) -> Server:
        """With every step so many times as long."""
        return replace(self, steps=self.steps.scaled(factor))


def server_of(
    workload: Workload,
    shape: Transformer,
    gpu: Gpu,
    instance: Instance | None = None,
    asked: LimitOverrides | None = None,
    longest: int = 0,
    devices: Devices | None = None,
) -> Server:
    """Of a request with its defaults filled in; `longest` tokens are the most a sequence has."""
    context = max(longest, (workload.seq_in or 1) + (workload.seq_out or 0))
    stages = workload.parallel.pp
    limits = scheduler_limits(workload, shape, gpu, asked, min(context, (workload.seq_in or 1) + (workload.seq_out or 0)))
    lane = batch_limits(limits, stages)
    lane = replace(lane, max_sequences=min(lane.max_sequences, max(1, lane.cache_tokens // lane.block_tokens)))
    sizes = TableSizes(lane.max_sequences, max(lane.max_batched_tokens, 2), context)
    steps = StepTables(EngineSteps(workload, shape, gpu, instance, devices), sizes, stages)
    return Server(steps, limits, lane, workload.parallel.dp, stages)
