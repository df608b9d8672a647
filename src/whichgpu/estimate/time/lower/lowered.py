"""The result of a lowering: the operators of one step on one GPU, and notes for the user."""

from __future__ import annotations

from dataclasses import dataclass

from whichgpu.base.messages import Message
from whichgpu.estimate.time.operators import Number, Op


@dataclass(frozen=True, slots=True)
class LoweredStep:
    """Operators in the order of their first call, with notes for the user."""

    ops: tuple[Op, ...]
    notes: tuple[Message, ...] = ()

    @property
    def calls_forward(self) -> Number:
        """Framework calls the host makes for the forward pass."""
        return sum(op.calls * op.count for op in self.ops if op.phase == "forward")

    @property
    def calls_backward(self) -> Number:
        """Framework calls the host makes for the backward pass and the optimizer."""
        return sum(op.calls * op.count for op in self.ops if op.phase != "forward")
