"""Operators of one pass of a traced model, in a form that gives their sizes for any batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from whichgpu.estimate.time.lower.eager.call import Call
from whichgpu.estimate.time.lower.eager.torch_fast_path import as_run_on_gpu, short_name
from whichgpu.estimate.time.lower.traced_adapters import with_adapters
from whichgpu.estimate.time.operators import Number, Phase
from whichgpu.workload.denoisers import adapted_layers, adapter_parameters
from whichgpu.workload.precisions import trace_of
from whichgpu.workload.shapes import TracedShape
from whichgpu.workload.tables import Dims, TableOperator, load_table
from whichgpu.workload.workload import Workload


class PreparedOperator(msgspec.Struct, frozen=True):
    """A traced operator with everything that does not depend on the batch precomputed."""

    name: str
    phase: Phase
    dtype: str
    count: float
    inputs: tuple[Dims, ...]
    outputs: tuple[Dims, ...]
    attributes: Mapping[str, Any]
    growing: tuple[tuple[bool, ...], ...]
    grown: tuple[bool, ...]
    alike: bool
    spatial: bool  # works on pixels or patches rather than one vector per sample, so that it grows with the image's area

    def call(self, batch: Number, area: float) -> Call:
        """Return the call with its sizes for a batch of images that have `area` times the pixels of the traced ones."""
        attention = area != 1 and "dot_product" in self.name
        samples = batch * area if area != 1 and self.spatial and not attention else batch
        inputs = tuple([_sizes(dims, samples) for dims in self.inputs])
        if attention:  # All additional tokens attend to each other.
            inputs = tuple([_with_more_tokens(shape, inputs[0][2], area) for shape in inputs])
        outputs = tuple([_sizes(dims, samples) for dims in self.outputs])
        batch_facts = self.growing, self.grown, self.alike
        return Call(self.name, self.phase, self.dtype, self.count, inputs, outputs, self.attributes, *batch_facts)


class TracedModel(msgspec.Struct, frozen=True, eq=False):
    """One pass of a model and its trained parameters; compared by identity, since each is built once."""

    operators: tuple[PreparedOperator, ...]
    parameters: float
    tensors: float
    image: int  # pixels per side at which it was traced


def traced_model(workload: Workload, shape: TracedShape) -> TracedModel:
    """Return the traced forward pass or training step that a request needs, from shipped tables or traced on demand."""
    traced = trace_of(workload.precision)
    image = workload.image or shape.image
    if ":" not in shape.table:
        rank = (workload.lora_rank or 0) if workload.training else 0
        return _table_model(shape.table, load_table(shape.table, image or None).image, workload.training, traced, rank)
    return _live_model(shape.table, image, workload.training, traced, workload.memory_format != "contiguous")


@lru_cache(maxsize=128)
def _table_model(name: str, image: int, training: bool, traced: str, rank: int) -> TracedModel:
    """Return the model of a table; with a `rank`, its weights are frozen and LoRA adapters of that rank are trained."""
    table = load_table(name, image)
    run = table.run(training, traced)
    if rank:
        operators = with_adapters(run.operators, adapted_layers(name, image), rank)
        adapters, count = adapter_parameters(name, image, rank), sum(one.count for one in adapted_layers(name, image))
        return TracedModel(_prepare_all(operators, training, traced), float(adapters), 2.0 * count, table.image)
    gradients = {number for number, kind in enumerate(table.kinds) if kind.label == "gradients"}
    tensors = sum(1 for move in run.moves if not move % 2 and move // 2 in gradients)
    return TracedModel(_prepare_all(run.operators, training, traced), float(table.parameters), float(tensors), table.image)


@lru_cache(maxsize=16)
def _live_model(name: str, image: int, training: bool, traced: str, channels_last: bool) -> TracedModel:
    from whichgpu.estimate.time.lower.live_trace import live_operators

    precision = {"amp": "amp-bf16"}.get(traced, traced)
    operators, parameters, tensors = live_operators(name, image, training, precision, channels_last)
    return TracedModel(_prepare_all(operators, training, traced), float(parameters), float(tensors), image)


def _prepare_all(operators: Sequence[TableOperator], training: bool, traced: str) -> tuple[PreparedOperator, ...]:
    return tuple(_prepare(operator) for operator in as_run_on_gpu(operators, training, traced == "amp"))


def _prepare(operator: TableOperator) -> PreparedOperator:
    growing = tuple(tuple(slope > 0 for _, slope in dims) for dims in operator.inputs)
    return PreparedOperator(
        short_name(operator),
        "backward" if operator.phase == "backward" else "forward",
        operator.dtype,
        float(operator.count),
        operator.inputs,
        operator.outputs,
        operator.attributes,
        growing if any(any(dims) for dims in growing) else (),
        tuple(any(slope > 0 for _, slope in dims) for dims in operator.outputs),
        len(set(operator.inputs)) == 1,
        any(_has_pixels(dims) for dims in (*operator.inputs, *operator.outputs)),
    )


def _has_pixels(dims: Dims) -> bool:
    slope = max((slope for _, slope in dims), default=0)
    return slope > 1 or (slope == 1 and sum(1 for base, _ in dims if base > 1) > 1)


def _sizes(dims: Dims, batch: Number) -> tuple[Number, ...]:
    return tuple([base + slope * batch if slope else float(base) for base, slope in dims])


def _with_more_tokens(shape: tuple[Number, ...], tokens: Number, area: float) -> tuple[Number, ...]:
    """Scale the tokens of queries, keys or values by `area`; text tokens next to an image stay unscaled."""
    return (*shape[:2], tokens * area, *shape[3:]) if len(shape) == 4 and shape[2] == tokens else shape
