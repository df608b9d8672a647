"""Host cost of a step of a serving engine that launches every kernel from the host, as vLLM did through 2023.

Such an engine is an eager PyTorch program, so one of its calls costs what a call of PyTorch was measured to cost; the number of
calls is in the engine's record, read off its source. Nothing here is fitted to runs of such an engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from whichgpu.catalog.engines.record import HostCosts
from whichgpu.catalog.engines.registry import default_engine, engine_record
from whichgpu.catalog.gpu import Gpu
from whichgpu.estimate.group.traffic import Collective
from whichgpu.estimate.time.calibration import Calibration, correction_key
from whichgpu.estimate.time.grid import NEWEST_SOFTWARE_YEAR
from whichgpu.estimate.time.lower.host_calls import VIEW_CALL_WEIGHT
from whichgpu.estimate.time.operators import LoweredStep
from whichgpu.workload.shapes import Shape, Transformer
from whichgpu.workload.workload import Workload

if TYPE_CHECKING:
    from whichgpu.estimate.group.collectives import Array
    from whichgpu.estimate.time.operators import Number


def lacks_cuda_graphs(workload: Workload) -> bool:
    """Whether a serving engine launches every kernel from the host."""
    return _costs(workload).launches_each_kernel


def framework_calls(workload: Workload, shape: Shape, lowered: LoweredStep, collectives: Sequence[Collective]) -> Array:
    """Framework calls of a pass: its kernels and collectives, and what this engine version calls besides, [batches]."""
    costs, beside, copies = _costs(workload), 0.0, 0.0
    if isinstance(shape, Transformer):
        copies = costs.shared_head_copies * (shape.kv_heads < shape.heads)
        biases = float(shape.out_bias) + float(shape.mlp_bias)  # added in calls of their own after an all-reduce
        beside = (costs.residual_adds + biases + costs.views * VIEW_CALL_WEIGHT) * (shape.layers / workload.parallel.pp)
    kernels = _total(op.count for op in lowered.ops)
    prefills = _total(op.count for op in lowered.ops if op.kind == "attention")
    calls = kernels + _total(one.count for one in collectives) + prefills * (costs.prompt_copies + copies)
    return np.asarray(calls + beside)


def call_cost_factor(calibration: Calibration, gpus: Sequence[Gpu], unit: str) -> Array:
    """Measured cost of a PyTorch call on the reference host over its cost before correction, [gpus, 1].

    The year is that of the measurements whose host is known: those of other years reflect their machines as well.
    """
    settings = [correction_key(gpu, default_engine(), NEWEST_SOFTWARE_YEAR, "forward", unit) for gpu in gpus]
    return np.exp([[calibration.log_multiplier(setting, "forward_calls")] for setting in settings])


def worker_dispatch_seconds(workload: Workload) -> float:
    """Seconds to send every worker its part of a step."""
    workers = workload.parallel.tp * workload.parallel.pp
    return _costs(workload).worker_call * workers if workers > 1 else 0.0


def _costs(workload: Workload) -> HostCosts:
    return engine_record(workload.engine, workload.year).host


def _total(counts: Iterable[Number]) -> Array:
    return sum((np.asarray(count, dtype=float) for count in counts), np.zeros(1))
