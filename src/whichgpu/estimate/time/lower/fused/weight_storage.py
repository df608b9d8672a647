"""Storage format of a model's weights in inference, which decides the GEMM kernels that multiply them."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from whichgpu.estimate.memory.gguf_mix import ALIASES
from whichgpu.estimate.memory.quantisation import SCHEMES, is_gguf, layer_matrices, matrix_bytes, table_bytes
from whichgpu.estimate.time.operators import Number
from whichgpu.workload.precisions import PRECISION_BY_NAME
from whichgpu.workload.shapes import Transformer


class WeightStorage(msgspec.Struct, frozen=True):
    """Storage of a model's weights in a precision: bytes by matrix role (its name in llama.cpp, such as attn_q)."""

    precision: str
    half: str  # the 16-bit type: bf16 or fp16
    roles: tuple[tuple[str, float, float], ...]  # (role such as attn_q, bytes, number of weights) over all layers
    mean: float  # bytes per weight over all these matrices
    head: float  # bytes per weight of the output head

    @property
    def width(self) -> float:
        """Bytes of an activation element between kernels."""
        return float(PRECISION_BY_NAME[self.precision].compute_bytes)

    @property
    def unit(self) -> str:
        """Arithmetic unit of unquantised GEMMs."""
        record = PRECISION_BY_NAME[self.precision]
        return record.unit if record.compute_bytes > 2 else self.half

    @property
    def quantises_inputs(self) -> bool:
        """Whether inputs are quantised as well as weights."""
        return bool(PRECISION_BY_NAME[self.precision].operand_unit)

    @property
    def weight_only(self) -> bool:
        """Whether weights are dequantised inside the GEMM kernel."""
        return not self.quantises_inputs and self.mean < self.width

    @property
    def nested_scales(self) -> bool:
        """Whether blocks of weights have scales of scales: llama.cpp's K-quants and IQ types."""
        return "_k" in self.precision or (self.precision.startswith("iq") and self.precision != "iq4_nl")

    def weight(self, *roles: str) -> float:
        """Return the mean bytes per weight of the matrices with these roles (such as attn_q), multiplied in one GEMM."""
        stored = [(size, weights) for role, size, weights in self.roles if role in roles]
        return sum(size for size, _ in stored) / sum(weights for _, weights in stored) if stored else self.mean

    def unquantised(self, *roles: str) -> bool:
        """Whether matrices with these roles (such as attn_q) stay unquantised in a quantised model."""
        return self.mean < self.width <= self.weight(*roles)

    def expert_format(self, *roles: str) -> tuple[str, str]:
        """Return the arithmetic unit and the weights' format of expert matrices `roles`, by which MoE kernels differ.

        Experts in fp8 are taken to have a scale per 128 x 128 block, as DeepSeek, Qwen and GLM publish them.
        """
        if self.quantises_inputs and not self.unquantised(*roles):
            unit = PRECISION_BY_NAME[self.precision].operand_unit
            return unit, {"fp8": "fp8_block", "int8": "fp8"}.get(unit, self.precision)
        return self.unit, "dequantised" if self.weight_only and not self.unquantised(*roles) else "16bit"

    def size(self, k: Number, n: Number, *roles: str) -> Number:
        """Return the bytes of a k x n matrix stored as those with these roles (such as attn_q) are."""
        return k * n * self.weight(*roles)


@lru_cache(maxsize=256)
def weight_storage(shape: Transformer, precision: str, half: str) -> WeightStorage:
    """Return the storage of a model's weights in a precision; under autocast an inference engine stores 16-bit weights."""
    precision = precision.removeprefix("amp-")
    precision = {"f32": "fp32"}.get(precision, ALIASES.get(precision, precision))
    widths = dict(shape.stored_widths) if precision == shape.native else {}
    sizes: dict[str, float] = {}
    weights: dict[str, float] = {}
    for matrices in layer_matrices(shape):
        if matrices.role != "router":
            width = widths.get(matrices.role)
            size = matrix_bytes(matrices, shape, precision) if width is None else width * matrices.weights
            sizes[matrices.role] = sizes.get(matrices.role, 0.0) + size
            weights[matrices.role] = weights.get(matrices.role, 0.0) + matrices.weights
    table = max(1, shape.vocab * shape.hidden)
    mean = sum(sizes.values()) / sum(weights.values()) if weights else float(SCHEMES["bf16"].other)
    head = table_bytes(shape, precision, table, tied=True) / table if shape.vocab or is_gguf(precision) else mean
    head = widths.get("output", widths.get("token_embd", head))
    return WeightStorage(precision, half, tuple((role, sizes[role], weights[role]) for role in sizes), mean, head)
