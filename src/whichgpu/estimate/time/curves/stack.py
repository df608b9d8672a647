"""Operators with the same timing model, stacked into arrays over operators and batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from whichgpu.estimate.time.operators import Number, Op

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Parameters = Mapping[str, float]
MIN_SECONDS = 1e-30  # seconds; avoids 0/0 for an operator without work, such as half a token of a small image


class OperatorStack(msgspec.Struct, frozen=True, eq=False):
    """Operators with the same timing model and arithmetic unit (e.g. fp8); arrays are [operators, batches] and read-only."""

    unit: str
    ops: tuple[Op, ...]
    flops: Array
    read: Array
    write: Array
    kind_roles: tuple[tuple[str, str], ...]  # the distinct pairs of an operator's kind and kernel variant
    pair_index: NDArray[np.intp]  # index of each operator's pair in `kind_roles`
    size_cache: dict[tuple[str, float], Array] = msgspec.field(default_factory=dict)

    def size(self, name: str, default: float = 1.0) -> Array:
        """Return one size of each operator by name, such as its rows, or the default if it has none, [operators, batches]."""
        sizes = self.size_cache.get((name, default))
        if sizes is None:
            sizes = self.size_cache[name, default] = stack_numbers([op.sizes.get(name, default) for op in self.ops])
            sizes.flags.writeable = False
        return sizes

    def is_kind(self, *names: str) -> Mask:
        """Return a mask of the operators of these kinds, [operators, 1]."""
        return np.array([kind in names for kind, _ in self.kind_roles])[self.pair_index][:, None]

    def has_role(self, *names: str) -> Mask:
        """Return a mask of the operators that run these kernel variants (`role`), such as `mla`, [operators, 1]."""
        return np.array([role in names for _, role in self.kind_roles])[self.pair_index][:, None]

    def parameter(self, parameters: Parameters, name: str) -> Array:
        """Return each operator's fitted parameter, [operators, 1]: `name.kind.role` (variant), else `name.kind`, else `name`."""
        return np.array([_most_specific(parameters, name, *pair) for pair in self.kind_roles])[self.pair_index][:, None]


def stack_operators(unit: str, ops: Sequence[Op]) -> OperatorStack:
    """Stack operators with the same timing model and arithmetic unit into arrays, [operators, batches]."""
    flops, read, write = (stack_numbers([getattr(op, name) for op in ops]) for name in ("flops", "read", "write"))
    places: dict[tuple[str, str], int] = {}
    index = [places.setdefault((op.kind, op.role), len(places)) for op in ops]
    return OperatorStack(unit, tuple(ops), flops, read, write, tuple(places), np.array(index, dtype=np.intp))


def stack_numbers(numbers: Sequence[Number]) -> Array:
    """Stack numbers, some of them arrays over batches, into [numbers, batches]; one column if none is an array."""
    if np.ndarray not in set(map(type, numbers)):
        return np.array(numbers, dtype=np.float64)[:, None]
    lengths = {number.shape[0] for number in numbers if isinstance(number, np.ndarray) and number.ndim}
    if not lengths:
        return np.array(numbers, dtype=np.float64)[:, None]
    stacked = np.empty((len(numbers), max(lengths)))
    for place, number in enumerate(numbers):
        stacked[place] = number
    return stacked


def soft_max(a: Array, b: Array, sharpness: float) -> Array:
    """Return (a^p + b^p)^(1/p), p the sharpness: the larger of two times that overlap only in part."""
    larger = np.maximum(a, b)
    np.maximum(larger, MIN_SECONDS, out=larger)
    ratio = np.minimum(a, b)
    ratio /= larger
    np.power(ratio, sharpness, out=ratio)
    ratio += 1.0
    np.power(ratio, 1.0 / sharpness, out=ratio)
    ratio *= larger
    return ratio


def _most_specific(parameters: Parameters, name: str, kind: str, role: str) -> float:
    for key in (f"{name}.{kind}.{role}", f"{name}.{kind}"):
        if key in parameters:
            return parameters[key]
    return parameters[name]
