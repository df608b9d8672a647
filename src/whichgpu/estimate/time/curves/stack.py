"""Operators of one curve stacked to arrays over operators and batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from whichgpu.estimate.time.operators import Op

if TYPE_CHECKING:
    from whichgpu.estimate.time.operators import Number

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Parameters = Mapping[str, float]
NOTHING = 1e-30  # seconds of an operator with nothing to do: half a token of a small image


@dataclass(frozen=True, slots=True)
class OperatorStack:
    """Operators that share a curve and a unit; arrays are [operators, batches], and are not to be written into."""

    unit: str
    ops: tuple[Op, ...]
    flops: Array
    read: Array
    write: Array
    sorts: tuple[tuple[str, str], ...]  # kinds and roles there are: many operators, few of these
    which: NDArray[np.intp]  # of each operator
    known: dict[tuple[str, float], Array] = field(default_factory=dict, compare=False)  # sizes already stacked

    def size(self, name: str, default: float = 1.0) -> Array:
        """One size of each operator."""
        found = self.known.get((name, default))
        if found is None:
            found = self.known[name, default] = stacked([op.sizes.get(name, default) for op in self.ops])
            found.flags.writeable = False
        return found

    def kind(self, *names: str) -> Mask:
        """Which operators are of these kinds, [operators, 1]."""
        return np.array([kind in names for kind, _ in self.sorts])[self.which][:, None]

    def role(self, *names: str) -> Mask:
        """Which operators have these roles, [operators, 1]."""
        return np.array([role in names for _, role in self.sorts])[self.which][:, None]

    def each(self, parameters: Parameters, name: str) -> Array:
        """One parameter of each operator, [operators, 1]: `name.kind.role`, else `name.kind`, else `name`."""
        return np.array([_nearest(parameters, name, *sort) for sort in self.sorts])[self.which][:, None]


def stack_operators(unit: str, ops: Sequence[Op]) -> OperatorStack:
    """These operators as arrays."""
    flops, read, write = (stacked([getattr(op, name) for op in ops]) for name in ("flops", "read", "write"))
    places: dict[tuple[str, str], int] = {}
    which = [places.setdefault((op.kind, op.role), len(places)) for op in ops]
    return OperatorStack(unit, tuple(ops), flops, read, write, tuple(places), np.array(which, dtype=np.intp))


def stacked(numbers: Sequence[Number]) -> Array:
    """Numbers, some of them arrays over batches, as [numbers, batches]; one column where none is an array."""
    if np.ndarray not in set(map(type, numbers)):
        return np.array(numbers, dtype=np.float64)[:, None]
    lengths = {number.shape[0] for number in numbers if isinstance(number, np.ndarray) and number.ndim}
    if not lengths:
        return np.array(numbers, dtype=np.float64)[:, None]
    made = np.empty((len(numbers), max(lengths)))
    for place, number in enumerate(numbers):
        made[place] = number
    return made


def soft_max(a: Array, b: Array, sharpness: float) -> Array:
    """The larger of two times, and a little more where they are alike: loads and arithmetic overlap only in part."""
    larger = np.maximum(np.maximum(a, b), NOTHING)
    ratio = np.minimum(a, b)
    ratio /= larger
    np.power(ratio, sharpness, out=ratio)
    ratio += 1.0
    np.power(ratio, 1.0 / sharpness, out=ratio)
    ratio *= larger
    return ratio


def _nearest(parameters: Parameters, name: str, kind: str, role: str) -> float:
    for key in (f"{name}.{kind}.{role}", f"{name}.{kind}"):
        if key in parameters:
            return parameters[key]
    return parameters[name]
