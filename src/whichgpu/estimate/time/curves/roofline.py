"""Seconds of operators on accelerators that run a compiled graph on few large matrix units (TPU, Trainium, Inferentia, Gaudi).

No kernels of these chips were measured one by one, so an operator takes the larger of its FLOPs at a share of the peak and its
bytes at a share of the bandwidth, plus a fixed time. The shares belong to a family of chips (`roofline.*` in
`data/parameters.csv`) and were fitted on whole steps by `tools/calibration/fit_rooflines.py`.
"""

from __future__ import annotations

import numpy as np

from whichgpu.estimate.time.curves import conv
from whichgpu.estimate.time.curves.gpus import GpuColumns
from whichgpu.estimate.time.curves.stack import Array, OperatorStack, Parameters
from whichgpu.estimate.time.operators import CLASS_BY_KIND

SCORE_WIDTH = 4.0  # bytes of an attention score, in fp32


def seconds(stack: OperatorStack, gpus: GpuColumns, p: Parameters) -> Array:
    """Return the seconds of one call of each operator, [gpus, operators, batches]."""
    kind = CLASS_BY_KIND[stack.ops[0].kind].removeprefix("long_")
    unit = stack.unit if stack.unit in gpus.peaks else "fp32"
    flops = conv.min_flops(stack, gpus) if kind == "conv" else stack.flops
    moved = conv.moved_bytes(stack) if kind == "conv" else stack.read + stack.write
    if kind == "attention":
        moved = moved + _spilled_scores(stack, gpus) * _family_values(gpus, p, "score_bytes", default=0.0)
    compute: Array = flops / (gpus.peaks[unit] * _family_values(gpus, p, f"{kind}_share", "gemm_share"))
    memory: Array = moved / (gpus.bandwidth * _family_values(gpus, p, f"{kind}_bandwidth_share", "bandwidth_share"))
    busy: Array = np.maximum(compute, memory) + _family_values(gpus, p, "fixed_seconds")
    return busy


def _spilled_scores(stack: OperatorStack, gpus: GpuColumns) -> Array:
    """Return the attention scores (one per head, query and key) that go to memory, since those of one head exceed the cache."""
    of_head = stack.size("queries") * stack.size("keys")
    spilled = np.maximum(1.0 - gpus.l2 / (of_head * SCORE_WIDTH), 0.0)
    scores: Array = stack.size("batch") * stack.size("heads") * of_head * spilled
    return scores


def _family_values(gpus: GpuColumns, p: Parameters, *names: str, default: float = 1.0) -> Array:
    """Return the first of these parameters that each accelerator's family has, else the default, [gpus, 1, 1]."""
    candidates = ([p[key] for name in names if (key := f"roofline.{name}.{family}") in p] for family in gpus.rooflines)
    return np.array([next(iter(values), default) for values in candidates])[:, None, None]
