"""Host cost of a step of a serving engine that launches every kernel from the host, as vLLM did through 2023.

Such an engine is a PyTorch program run eagerly, so one of its calls costs what a call of PyTorch's was measured to cost; how many
there are is in its record, read off its source. Nothing here is fitted to the runs of such an engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from whichgpu.catalog.engines.record import HostCosts
from whichgpu.catalog.engines.registry import default_engine, engine_record
from whichgpu.catalog.gpu import Gpu
from whichgpu.estimate.group.traffic import Collective
from whichgpu.estimate.time.calibration import Calibration, correction_key
from whichgpu.estimate.time.grid import NEWEST_SOFTWARE_YEAR
from whichgpu.estimate.time.lower.host_calls import VIEW_CALL_WEIGHT
from whichgpu.estimate.time.lower.lowered import LoweredStep
from whichgpu.workload.shapes import Shape, Transformer
from whichgpu.workload.workload import Workload

if TYPE_CHECKING:
    from whichgpu.estimate.group.collectives import Array


def lacks_cuda_graphs(workload: Workload) -> bool:
    """Whether a serving engine launches every kernel from the host."""
    return _costs(workload).launches_each_kernel


def framework_calls(workload: Workload, shape: Shape, lowered: LoweredStep, said: Sequence[Collective]) -> Array:
    """Framework calls of a pass: its kernels and collectives, and what that version calls besides."""
    kernels = sum((np.asarray(op.count, dtype=float) for op in lowered.ops), np.zeros(1))
    messages = sum((np.asarray(one.count, dtype=float) for one in said), np.zeros(1))
    prompts = sum((np.asarray(op.count, dtype=float) for op in lowered.ops if op.kind == "attention"), np.zeros(1))
    shared = isinstance(shape, Transformer) and shape.kv_heads < shape.heads
    copies = prompts * (_costs(workload).prompt_copies + _costs(workload).shared_head_copies * shared)
    return np.asarray(kernels + messages + copies + _beside(workload, shape) * _layers(workload, shape))


def call_cost_factor(calibration: Calibration, gpus: Sequence[Gpu], unit: str) -> Array:
    """What a call of PyTorch's costs on the reference host, over what it is taken to cost before correction, [gpus, 1].

    The year is that of the measurements whose host is known: other years' tell of their machines as well.
    """
    settings = [correction_key(gpu, default_engine(), NEWEST_SOFTWARE_YEAR, "forward", unit) for gpu in gpus]
    return np.exp([[calibration.log_multiplier(setting, "forward_calls")] for setting in settings])


def worker_dispatch_seconds(workload: Workload) -> float:
    """Seconds to hand every worker its part of a step."""
    workers = workload.parallel.tp * workload.parallel.pp
    return _costs(workload).worker_call * workers if workers > 1 else 0.0


def _costs(workload: Workload) -> HostCosts:
    return engine_record(workload.engine, workload.year).host


def _beside(workload: Workload, shape: Shape) -> float:
    """Calls of a layer beyond its kernels; biases after an all-reduce are added apart."""
    biases = float(shape.out_bias) + float(shape.mlp_bias) if isinstance(shape, Transformer) else 0.0
    return _costs(workload).residual_adds + biases + _costs(workload).views * VIEW_CALL_WEIGHT


def _layers(workload: Workload, shape: Shape) -> float:
    return shape.layers / workload.parallel.pp if isinstance(shape, Transformer) else 0.0
