"""Server: a model on its GPUs with step times, scheduler limits, replicas and pipeline stages."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.host import Instance
from whichgpu.estimate.group.engine_steps import EngineSteps
from whichgpu.estimate.group.step import Devices
from whichgpu.estimate.serving.early_stop import MissLimit
from whichgpu.estimate.serving.scheduler_limits import LimitOverrides, SchedulerLimits, batch_limits, scheduler_limits
from whichgpu.estimate.serving.simulator import Arrival, RoutingPolicy, SimulationOutcome, simulate
from whichgpu.estimate.serving.step_tables import StepTables, TableSizes
from whichgpu.workload.shapes import Transformer
from whichgpu.workload.workload import Workload


class Server(msgspec.Struct, frozen=True):
    """Replicas of a served model; `limits` apply to one replica, `batch_limits` to each of its batches in flight."""

    steps: StepTables
    limits: SchedulerLimits
    batch_limits: SchedulerLimits
    replicas: int
    stages: int

    @property
    def batches(self) -> int:
        """Number of batches in flight over all replicas."""
        return self.replicas * self.stages

    def run(
        self,
        arrivals: Iterable[Arrival],
        concurrency: int | None = None,
        hash_tokens: int = 0,
        routing: RoutingPolicy = "least",
        misses: MissLimit | None = None,
    ) -> SimulationOutcome:
        """Simulate serving these arrivals and return the outcome; with `misses` it ends when objectives can no longer hold."""
        replicas = self.replicas, self.stages, routing, concurrency, hash_tokens
        return simulate(arrivals, self.steps, self.batch_limits, *replicas, misses)

    def scaled(self, factor: float) -> Server:
        """Return the server with the seconds of every step multiplied by `factor`."""
        return replace(self, steps=self.steps.scaled(factor))


def server_of(
    workload: Workload,
    shape: Transformer,
    gpu: Gpu,
    instance: Instance | None = None,
    overrides: LimitOverrides | None = None,
    longest: int = 0,
    devices: Devices | None = None,
) -> Server:
    """Return the server of a workload with its defaults filled in; `longest` is the longest sequence in tokens."""
    typical = (workload.seq_in or 1) + (workload.seq_out or 0)
    stages = workload.parallel.pp
    limits = scheduler_limits(workload, shape, gpu, overrides, typical)
    batch = batch_limits(limits, stages)
    batch = replace(batch, max_sequences=min(batch.max_sequences, max(1, batch.cache_tokens // batch.block_tokens)))
    sizes = TableSizes(batch.max_sequences, max(batch.max_batched_tokens, 2), max(longest, typical))
    steps = StepTables(EngineSteps(workload, shape, gpu, instance, devices, separate=True), sizes, stages)
    return Server(steps, limits, batch, workload.parallel.dp, stages)
