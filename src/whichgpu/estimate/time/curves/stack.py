"""Operators of one curve stacked to arrays over operators and batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from whichgpu.estimate.time.operators import Op

if TYPE_CHECKING:
    from whichgpu.estimate.time.operators import Number

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Parameters = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Stack:
    """Operators that share a curve and a unit; arrays are [operators, batches]."""

    unit: str
    ops: tuple[Op, ...]
    flops: Array
    read: Array
    write: Array

    def size(self, name: str, default: float = 1.0) -> Array:
        """One size of each operator."""
        return stacked([op.sizes.get(name, default) for op in self.ops])

    def kind(self, *names: str) -> Mask:
        """Which operators are of these kinds, [operators, 1]."""
        return np.array([[op.kind in names] for op in self.ops])

    def role(self, *names: str) -> Mask:
        """Which operators have these roles, [operators, 1]."""
        return np.array([[op.role in names] for op in self.ops])

    def each(self, parameters: Parameters, name: str) -> Array:
        """One parameter of each operator, [operators, 1]: `name.kind.role`, else `name.kind`, else `name`."""
        return np.array([[_nearest(parameters, name, op)] for op in self.ops])


def stack(unit: str, ops: Sequence[Op]) -> Stack:
    """These operators as arrays."""
    sides = [stacked([getattr(op, name) for op in ops]) for name in ("flops", "read", "write")]
    return Stack(unit, tuple(ops), *sides)


def stacked(numbers: Sequence[Number]) -> Array:
    """Numbers, some of them arrays over batches, as [numbers, batches]; one column where none is an array."""
    lengths = {number.shape[0] for number in numbers if isinstance(number, np.ndarray) and number.ndim}
    if not lengths:
        return np.array(numbers, dtype=np.float64)[:, None]
    made = np.empty((len(numbers), max(lengths)))
    for place, number in enumerate(numbers):
        made[place] = number
    return made


def soft_max(a: Array, b: Array, sharpness: float) -> Array:
    """The larger of two times, and a little more where they are alike: loads and arithmetic overlap only in part."""
    larger = np.maximum(a, b)
    ratio = np.minimum(a, b)
    ratio /= larger
    np.power(ratio, sharpness, out=ratio)
    ratio += 1.0
    np.power(ratio, 1.0 / sharpness, out=ratio)
    ratio *= larger
    return ratio


def _nearest(parameters: Parameters, name: str, op: Op) -> float:
    for key in (f"{name}.{op.kind}.{op.role}", f"{name}.{op.kind}"):
        if key in parameters:
            return parameters[key]
    return parameters[name]
