"""From a request and groups of GPUs to the best way of each: which of the three kinds of work it is."""

from __future__ import annotations

from collections.abc import Sequence

from whichgpu.decide.groups import Group
from whichgpu.decide.way import Asked, Outcome
from whichgpu.estimate.time.grid import GENERATING, speaks
from whichgpu.workload.shapes import Transformer


def ways(asked: Asked, groups: Sequence[Group]) -> list[Outcome]:
    """The best way of each group, or why there is none."""
    if not groups:
        return []
    if asked.workload.task in GENERATING and speaks(asked.shape):  # each kind is loaded when it is asked for
        from whichgpu.decide.generating import generate

        return generate(asked, groups)
    if asked.workload.training and isinstance(asked.shape, Transformer):
        from whichgpu.decide.training import train

        return train(asked, groups)
    from whichgpu.decide.passing import pass_through

    return pass_through(asked, groups)
