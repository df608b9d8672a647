"""Serving engines that start every kernel from the host, as vLLM did through 2023: what the host does for a step of theirs.

Such an engine is a PyTorch programme run eagerly, so one of its calls costs what a call of PyTorch's was measured to cost; how
many there are is read off its source (vLLM 0.2.1). Nothing here is fitted to the runs of such an engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from whichgpu.catalog.gpu import Gpu
from whichgpu.estimate.group.traffic import Collective
from whichgpu.estimate.time.calibration import Calibration, setting_of
from whichgpu.estimate.time.grid import NEWEST
from whichgpu.estimate.time.lower.host import VIEW
from whichgpu.estimate.time.lower.lowered import Lowered
from whichgpu.workload.shapes import Shape, Transformer
from whichgpu.workload.workload import Workload

if TYPE_CHECKING:
    from whichgpu.estimate.group.collectives import Array

CAPTURES_FROM = 2024  # the year vLLM began to replay graphs (0.2.7): before it started every kernel from the host
# Calls of a layer beside the kernels that newer versions run: both residual sums (in the norms since 0.2.2, pull request 1667),
# and views of tensors and room for results (attention.py: a split, ten views and slices; outputs of norms and attention).
SUMS, LIGHT = 2.0, 15.0
# Attention over a prompt copies its result, and keys and values out to all heads where these share them (attention.py).
COPIED, SPREAD = 1.0, 2.0
# Until 0.2.7 (pull request 2221) each worker was a Ray actor that got its part of every step by a call of its own, of which
# an empty one takes "almost half a millisecond" (Ray's documentation, tips for first-time users).
RAY_CALL = 0.47e-3


def uncaptured(workload: Workload) -> bool:
    """Whether a serving engine starts every kernel from the host."""
    return workload.engine == "vllm" and (workload.year or NEWEST) < CAPTURES_FROM


def host_calls(workload: Workload, shape: Shape, lowered: Lowered, said: Sequence[Collective]) -> Array:
    """Framework calls of a pass: its kernels and collectives, and what that version calls besides."""
    kernels = sum((np.asarray(op.count, dtype=float) for op in lowered.ops), np.zeros(1))
    messages = sum((np.asarray(one.count, dtype=float) for one in said), np.zeros(1))
    prompts = sum((np.asarray(op.count, dtype=float) for op in lowered.ops if op.kind == "attention"), np.zeros(1))
    shared = isinstance(shape, Transformer) and shape.kv_heads < shape.heads
    copies = prompts * (COPIED + SPREAD * shared)
    return np.asarray(kernels + messages + copies + _beside(shape) * _layers(workload, shape))


def call_factor(calibration: Calibration, gpus: Sequence[Gpu], unit: str) -> Array:
    """What a call of PyTorch's costs on the reference host, over what it is taken to cost before correction, [gpus, 1].

    The year is that of the measurements whose host is known: other years' tell of their machines as well.
    """
    settings = [setting_of(gpu, "pytorch", NEWEST, "forward", unit) for gpu in gpus]
    return np.exp([[calibration.log_multiplier(setting, "forward_calls")] for setting in settings])


def actor_seconds(workload: Workload) -> float:
    """What telling every worker of a step takes."""
    workers = workload.parallel.tp * workload.parallel.pp
    return RAY_CALL * workers if workers > 1 else 0.0


def _beside(shape: Shape) -> float:
    """Calls of a layer beyond its kernels; biases after a sum over ranks are added apart."""
    biases = float(shape.out_bias) + float(shape.mlp_bias) if isinstance(shape, Transformer) else 0.0
    return SUMS + biases + LIGHT * VIEW


def _layers(workload: Workload, shape: Shape) -> float:
    return shape.layers / workload.parallel.pp if isinstance(shape, Transformer) else 0.0
