"""What is asked of roles: which GPUs there are or may be rented, and which models they are to serve."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.host import Instance
from whichgpu.estimate.serving.curve import Objectives
from whichgpu.estimate.serving.load import Load
from whichgpu.workload.shapes import Transformer
from whichgpu.workload.workload import Workload


@dataclass(frozen=True, slots=True)
class GpuKind:
    """GPUs of one kind: how many there are (None: as many as paid for), in machines of so many, at so much a GPU and hour.

    With `machines` they are taken machine by machine, as clouds rent them; otherwise GPU by GPU.
    """

    gpu: Gpu
    count: int | None
    price: float = 0.0
    per_machine: int = 8
    machines: bool = False
    instance: Instance | None = None
    currency: str = "USD"

    def __post_init__(self) -> None:
        if (self.count is not None and self.count < 1) or self.per_machine < 1 or not (isfinite(self.price) and self.price >= 0):
            raise UsageError("bad-kind", msg("roles.bad-kind", gpu=self.gpu.name, count=self.count, price=self.price))


@dataclass(frozen=True, slots=True)
class ModelLoad:
    """A model with its load and objectives. `workload` has its defaults filled in; lengths are the load's."""

    name: str
    workload: Workload
    shape: Transformer
    load: Load
    goals: Objectives

    def __post_init__(self) -> None:
        if not (isfinite(self.load.rate) and self.load.rate > 0):
            raise UsageError("bad-rate", msg("roles.bad-rate", model=self.name, rate=self.load.rate))
