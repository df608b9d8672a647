"""Host cost of a step of a serving engine that launches every kernel from the host, as vLLM did through 2023.

Such an engine is an eager PyTorch program, so each of its calls is assumed to cost what a PyTorch call was measured to cost. The
number of calls is in the engine's record, read off its source. Nothing here is fitted to runs of such an engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from whichgpu.catalog.engines.record import HostCosts
from whichgpu.catalog.engines.registry import default_engine, engine_record
from whichgpu.catalog.gpu import Gpu
from whichgpu.estimate.confidence.axes import NEWEST_SOFTWARE_YEAR
from whichgpu.estimate.group.traffic import Collective
from whichgpu.estimate.time.calibration import Calibration, correction_key
from whichgpu.estimate.time.lower.host_calls import VIEW_CALL_WEIGHT
from whichgpu.estimate.time.operators import LoweredStep
from whichgpu.workload.shapes import Shape, Transformer
from whichgpu.workload.workload import Workload

if TYPE_CHECKING:
    from whichgpu.estimate.group.collectives import Array
    from whichgpu.estimate.time.operators import Number


def lacks_cuda_graphs(workload: Workload) -> bool:
    """Whether a serving engine launches every kernel from the host instead of replaying CUDA graphs."""
    return _costs(workload).launches_each_kernel


def framework_calls(workload: Workload, shape: Shape, lowered: LoweredStep, collectives: Sequence[Collective]) -> Array:
    """Return the number of framework calls of a pass, [batches]: kernels, collectives and other calls of this engine version."""
    costs, extra_calls, copies = _costs(workload), 0.0, 0.0
    if isinstance(shape, Transformer):
        copies = costs.shared_head_copies * (shape.kv_heads < shape.heads)
        biases = float(shape.out_bias) + float(shape.mlp_bias)  # Biases are added in separate calls after an all-reduce.
        extra_calls = (costs.residual_adds + biases + costs.views * VIEW_CALL_WEIGHT) * (shape.layers / workload.parallel.pp)
    kernels = _total(op.count for op in lowered.ops)
    prefills = _total(op.count for op in lowered.ops if op.kind == "attention")
    calls = kernels + _total(one.count for one in collectives) + prefills * (costs.prompt_copies + copies)
    return np.asarray(calls + extra_calls)


def call_cost_factor(calibration: Calibration, gpus: Sequence[Gpu], unit: str) -> Array:
    """Return the fitted multiplier of a PyTorch call's host seconds, [gpus, 1]; `unit`: class of arithmetic unit, such as half.

    The newest software year is used because its measurements have a known host; those of other years reflect their machines too.
    """
    settings = [correction_key(gpu, default_engine(), NEWEST_SOFTWARE_YEAR, "forward", unit) for gpu in gpus]
    return np.exp([[calibration.log_multiplier(setting, "forward_calls")] for setting in settings])


def worker_dispatch_seconds(workload: Workload) -> float:
    """Return the host seconds to send every worker its part of a step; 0 for a single worker."""
    workers = workload.parallel.tp * workload.parallel.pp
    return _costs(workload).worker_call * workers if workers > 1 else 0.0


def _costs(workload: Workload) -> HostCosts:
    return engine_record(workload.engine, workload.year).host


def _total(counts: Iterable[Number]) -> Array:
    return sum((np.asarray(count, dtype=float) for count in counts), np.zeros(1))
