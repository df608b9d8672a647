"""Linear layers in inference, by how their weights are stored and which product runs on them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from whichgpu.estimate.memory.gguf_mix import ALIASES
from whichgpu.estimate.memory.quantisation import SCHEMES, is_gguf, layer_matrices, matrix_bytes, table_bytes
from whichgpu.workload.shapes import Transformer

if TYPE_CHECKING:
    from whichgpu.estimate.time.operators import Number

# Precisions whose products run on units as narrow as their weights, on inputs quantised on the way: unit, bytes of an input.
# On a GPU without the unit, weights are dequantised and products run in 16 bit (`fallbacks`).
NARROW = {"fp8": ("fp8", 1.0), "int8": ("int8", 1.0), "nvfp4": ("fp4", 0.5625), "mxfp4": ("fp4", 0.53125)}
SINGLE = {"fp32": "fp32", "fp32-default": "fp32", "tf32": "tf32"}


@dataclass(frozen=True, slots=True)
class Stored:
    """How a model's matrices lie in memory and are multiplied."""

    precision: str
    half: str  # the 16-bit type: bf16 or fp16
    roles: tuple[tuple[str, float, float], ...]  # bytes and weights of all layers, by role
    typical: float  # of all of them together
    head: float  # bytes a weight of the output head

    @property
    def width(self) -> float:
        """Bytes of an activation between kernels."""
        return 4.0 if self.precision in SINGLE else 2.0

    @property
    def unit(self) -> str:
        """Of products in plain numbers."""
        return SINGLE.get(self.precision, self.half)

    @property
    def narrow(self) -> bool:
        """Whether inputs are quantised as well as weights."""
        return self.precision in NARROW

    @property
    def unpacked(self) -> bool:
        """Whether weights are widened inside the product's kernel."""
        return not self.narrow and self.typical < self.width

    def weight(self, *roles: str) -> float:
        """Bytes a weight of matrices of these roles, multiplied as one."""
        found = [(size, weights) for role, size, weights in self.roles if role in roles]
        return sum(size for size, _ in found) / sum(weights for _, weights in found) if found else self.typical

    def full_width(self, *roles: str) -> bool:
        """Whether matrices of these roles are not quantised though others of the model are."""
        return self.typical < self.width <= self.weight(*roles)

    def size(self, k: Number, n: Number, *roles: str) -> Number:
        """Bytes of a k x n matrix."""
        return k * n * self.weight(*roles)


@lru_cache(maxsize=256)
def stored(shape: Transformer, precision: str, half: str) -> Stored:
    """Of a model in a precision; under autocast an engine of its own holds 16-bit weights."""
    precision = precision.removeprefix("amp-")
    precision = {"f32": "fp32"}.get(precision, ALIASES.get(precision, precision))
    sizes: dict[str, float] = {}
    weights: dict[str, float] = {}
    for matrices in layer_matrices(shape):
        if matrices.role != "router":
            sizes[matrices.role] = sizes.get(matrices.role, 0.0) + matrix_bytes(matrices, shape, precision)
            weights[matrices.role] = weights.get(matrices.role, 0.0) + matrices.weights
    table = max(1, shape.vocab * shape.hidden)
    typical = sum(sizes.values()) / sum(weights.values()) if weights else float(SCHEMES["bf16"].other)
    head = table_bytes(shape, precision, table, tied=True) / table if shape.vocab or is_gguf(precision) else typical
    return Stored(precision, half, tuple((role, sizes[role], weights[role]) for role in sizes), typical, head)
