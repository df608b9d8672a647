"""Operators of modules traced on demand, in the form of an operator table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from whichgpu.estimate.memory.module import model_factory
from whichgpu.workload.tables import Affine, TableOperator

if TYPE_CHECKING:
    from whichgpu.estimate.trace import TracedOperator

# Every size is taken to be linear in the batch, fitted through its values at these two batch sizes.
TRACED_BATCHES = 2, 3


@lru_cache(maxsize=16)
def live_operators(
    name: str, image: int, training: bool, precision: str, channels_last: bool
) -> tuple[tuple[TableOperator, ...], int, int]:
    """Trace `python:MODULE:FACTORY`, `torchvision:NAME` or `timm:NAME`; return operators, trained parameters and their tensors.

    A factory provides its own inputs, which determine the batch.
    """
    from whichgpu.estimate.trace import images, trace, trace_factory

    kind, _, rest = name.partition(":")
    options: dict[str, Any] = {"precision": precision, "optimizer": "none", "training": training, "steps": 1}
    if kind == "python":
        runs = [trace_factory(rest, **options)]
    else:
        factory = model_factory(kind, rest)
        runs = [trace(factory, images(batch, image), channels_last=channels_last, **options) for batch in TRACED_BATCHES]
    operators = tuple(_merge_calls([run.operators for run in runs]))
    return operators, runs[0].trainable, Counter(runs[0].labels.values())["gradients"]


def _merge_calls(runs: Sequence[Sequence[TracedOperator]]) -> Iterator[TableOperator]:
    """Merge equal calls of the traced batches; each size becomes a linear function of the batch."""
    counts: Counter[str] = Counter()
    operators: dict[str, TableOperator] = {}
    for calls in zip(*runs, strict=True):
        first = calls[0]
        if first.phase == "optimizer":
            continue
        inputs, outputs = (_lines(sides) for sides in ([call.inputs for call in calls], [call.outputs for call in calls]))
        operator = TableOperator(first.phase, first.name, first.dtype, 1, inputs, outputs, first.attributes)
        key = repr(operator)
        counts[key] += 1
        operators.setdefault(key, operator)
    for key, one in operators.items():
        yield TableOperator(one.phase, one.name, one.dtype, counts[key], one.inputs, one.outputs, one.attributes)


def _lines(sides: Sequence[Sequence[Sequence[int]]]) -> tuple[tuple[Affine, ...], ...]:
    return tuple(tuple(_line(sizes) for sizes in zip(*shapes, strict=True)) for shapes in zip(*sides, strict=True))


def _line(sizes: Sequence[int]) -> Affine:
    slope = (sizes[1] - sizes[0]) // (TRACED_BATCHES[1] - TRACED_BATCHES[0]) if len(sizes) > 1 else 0
    return sizes[0] - slope * TRACED_BATCHES[0], slope
