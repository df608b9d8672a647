"""The formula of 2015: 12 bytes x (weights + batch x units), for comparison.

From "Which GPU for Deep Learning?" (Tim Dettmers, 2014): four bytes a number, times three; for the weights, their gradients and
momentum, for the units, their errors and the dropout mask.
"""

from __future__ import annotations

from dataclasses import replace

from whichgpu.base.messages import Message, msg
from whichgpu.base.units import format_memory, significant
from whichgpu.estimate.memory.parts import MemoryEstimate, build_estimate
from whichgpu.workload.shapes import Dlrm, Mlp, Shape, Transformer
from whichgpu.workload.workload import Workload

BYTES = 12
SOURCE = "dettmers-2014-which-gpu"


def formula_bytes(weights: int, batch: int, units: int) -> int:
    """Bytes, for the weights' count, the batch and the units of all layers, the input's among them.

    >>> formula_bytes(9000 * 4000 + 4000 * 4000 + 4000 * 32, 128, 9000 + 4000 + 4000 + 32) / 2**30  # GiB; printed there as 0.62
    0.6069...
    """
    return BYTES * (weights + batch * units)


def blog_2015(workload: Workload, shape: Shape, ours: MemoryEstimate) -> MemoryEstimate:
    """The formula's answer, with a word on how far it is from ours and why."""
    weights, units = count_weights_and_units(workload, shape, ours)
    batch = workload.local_batch
    parts = {
        "weights": 4 * weights,
        "gradients": 4 * weights,
        "optimizer": 4 * weights,
        "activations": formula_bytes(0, batch, units),
    }
    total, exact = formula_bytes(weights, batch, units), (1.0, 1.0)
    told = build_estimate(parts, exact, exact, basis="published", sources=(SOURCE,))
    return replace(told, warnings=(_compared(total, ours), *_reasons(workload, shape)))


def count_weights_and_units(workload: Workload, shape: Shape, ours: MemoryEstimate) -> tuple[int, int]:
    """Weights, and units of one sample: what every layer hands on, the input first. A sequence's tokens all count."""
    if isinstance(shape, Mlp):
        return sum(a * b for a, b in zip(shape.units, shape.units[1:], strict=False)), sum(shape.units)
    from whichgpu.workload.parameters import count_parameters

    weights = count_parameters(shape).total
    if isinstance(shape, Transformer):
        attention = 2 * (shape.heads + shape.kv_heads) * shape.head_dim + shape.hidden
        block = attention + shape.ffn * (2 if shape.gated else 1) + shape.hidden
        token = shape.hidden + (shape.layers + shape.encoder_layers) * block + shape.vocab
        return weights, token * (workload.seq_in or 1)
    if isinstance(shape, Dlrm):
        return weights, sum(shape.bottom) + len(shape.tables) * shape.embedding_dim + sum(shape.top)
    return weights, _kept_units(workload, ours)


def _kept_units(workload: Workload, ours: MemoryEstimate) -> int:
    """Where layers are not known one by one: the activations our own count finds, at the width they have there."""
    width = 2 if (workload.precision or "fp32") not in ("fp32", "fp32-default", "tf32") else 4
    kept = ours.parts["activations"].value if "activations" in ours.parts else 0.0
    return int(kept / width / workload.local_batch)


def _compared(total: int, ours: MemoryEstimate) -> Message:
    share = significant(total / ours.allocated.value * 100, 2) if ours.allocated.value else "–"
    return msg(
        "warning.blog-2015",
        formula=format_memory(total),
        ours=format_memory(int(ours.allocated.value)),
        device=format_memory(int(ours.device.value)),
        share=share,
    )


def _reasons(workload: Workload, shape: Shape) -> tuple[Message, ...]:
    """Where the formula is right, and each thing it does not know of in this request."""
    found: list[Message] = []
    if not workload.training:
        found.append(msg("warning.blog-2015-training"))
    if workload.precision not in ("fp32", "fp32-default", "tf32"):
        found.append(msg("warning.blog-2015-precision", precision=workload.precision or "–"))
    if workload.training and workload.optimizer != "sgd-momentum":
        found.append(msg("warning.blog-2015-optimizer", optimizer=workload.optimizer or "–"))
    if not isinstance(shape, Mlp):
        found.append(msg("warning.blog-2015-layers"))
    if not found:
        found.append(msg("warning.blog-2015-right"))
    return (*found, msg("warning.blog-2015-overhead"))
