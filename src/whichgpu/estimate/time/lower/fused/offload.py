"""Weights in host memory: what a pass reads of them, and by which way.

llama.cpp computes layers and experts that lie in host memory on the CPU while it decodes, at the bandwidth of host memory; for a
prompt it copies them to the GPU over PCIe. Other engines copy them over PCIe in every pass (vLLM: --cpu-offload-gb).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from whichgpu.estimate.memory.quantisation import WeightBytes, canonical_precision, split_weights
from whichgpu.estimate.time.lower.routing import touched_experts
from whichgpu.estimate.time.operators import Number, Op
from whichgpu.workload.decoding.offload import Offload
from whichgpu.workload.parameters import mixture_layers
from whichgpu.workload.shapes import Transformer
from whichgpu.workload.workload import Workload

EXPERT_KINDS = ("moe", "grouped_gemm")
CPU_ROWS = 32  # tokens from which llama.cpp computes weights in host memory on the GPU (ggml_backend_cuda: min_batch_size)


class HostWeights:
    """Weights of a pass that lie in host memory, and which of its operators the CPU runs instead of the GPU."""

    def __init__(self, workload: Workload, shape: Transformer, offload: Offload, rows: Number, on_cpu: bool) -> None:
        self._shape, self._offload, self._rows = shape, offload, rows
        self._ranks = workload.parallel.tp * workload.parallel.pp
        self._weights = split_weights(shape, canonical_precision(workload.precision or "bf16"))
        self.on_cpu = on_cpu and not np.any(np.asarray(rows) >= CPU_ROWS)

    @property
    def layer_share(self) -> float:
        """Share of the layers that the GPU computes."""
        return 1.0 - self._share if self.on_cpu else 1.0

    @property
    def _share(self) -> float:
        return min(1.0, self._offload.whole_layers / self._shape.layers)

    @property
    def _expert_share(self) -> float:
        return self._offload.expert_share(self._shape)

    def on_gpu(self, ops: Iterable[Op]) -> Iterator[Op]:
        """Yield what the GPU runs of a pass's operators: experts in host memory are the CPU's."""
        share = 1.0 - self._expert_share if self.on_cpu else 1.0
        for op in ops:
            if share == 1.0 or not is_expert_op(op):
                yield op
            elif share:
                yield op.times(share)

    def read(self) -> Op:
        """Return the read of the weights in host memory, by the CPU or over PCIe."""
        experts = self._offload.experts
        size = (self._expert_share * self._experts(self._weights) if experts else self._layers(self._weights)) / self._ranks
        return Op("host_read", "fp32", 0.0, size, 0.0, {"elements": size / 4.0}, role="cpu" if self.on_cpu else "pcie")

    def _experts(self, weights: WeightBytes) -> Number:
        experts = self._shape.experts
        return float(weights.experts) * touched_experts(experts, self._rows) / experts.per_rank if experts else 0.0

    def _layers(self, weights: WeightBytes) -> Number:
        dense = float(weights.linear + weights.keys_values + weights.replicated)
        return self._share * (dense + (self._experts(weights) if mixture_layers(self._shape) else 0.0))


def is_expert_op(op: Op) -> bool:
    """Whether an operator multiplies by the weights of routed experts."""
    return op.kind in EXPERT_KINDS or (op.kind == "mmq_gemm" and "tokens" in op.sizes)
