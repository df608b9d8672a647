"""Inputs of a role assignment: GPUs that are owned or may be rented, and the models they are to serve."""

from __future__ import annotations

from math import isfinite

import msgspec

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.host import Instance
from whichgpu.estimate.serving.curve import Objectives
from whichgpu.estimate.serving.load import Load
from whichgpu.workload.shapes import Transformer
from whichgpu.workload.workload import Workload


class GpuKind(msgspec.Struct, frozen=True):
    """GPUs of one kind: how many there are (None: no limit), their price per GPU and hour, and GPUs in a machine.

    With `machines` they are rented by the machine, otherwise by the GPU.
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


class ModelLoad(msgspec.Struct, frozen=True):
    """A model to serve, with its load and objectives. `workload` has its defaults filled in; lengths are those of the load."""

    name: str
    workload: Workload
    shape: Transformer
    load: Load
    objectives: Objectives

    def __post_init__(self) -> None:
        if not (isfinite(self.load.rate) and self.load.rate > 0):
            raise UsageError("bad-rate", msg("roles.bad-rate", model=self.name, rate=self.load.rate))
