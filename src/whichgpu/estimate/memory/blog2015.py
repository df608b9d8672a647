"""The rule of thumb of 2015, for comparison: 12 bytes x (weights + batch x units).

From "Which GPU for Deep Learning?" (Tim Dettmers, 2014): three fp32 numbers for each weight (weight, gradient, momentum) and each
unit (activation, error, dropout mask).
"""

from __future__ import annotations

from whichgpu.base.messages import Message, msg
from whichgpu.base.units import format_memory, significant
from whichgpu.estimate.memory.parts import MemoryEstimate, build_estimate
from whichgpu.workload.shapes import Dlrm, Mlp, Shape, Transformer
from whichgpu.workload.workload import Workload

BYTES_PER_VALUE = 12  # three fp32 numbers, as the article counts
FP32_PRECISIONS = ("fp32", "fp32-default", "tf32")
SOURCE = "dettmers-2014-which-gpu"


def formula_bytes(weights: int, batch: int, units: int) -> int:
    """Return the bytes by the rule of 2015 for a number of weights, a batch size and the units (neurons) of all layers and input.

    >>> formula_bytes(9000 * 4000 + 4000 * 4000 + 4000 * 32, 128, 9000 + 4000 + 4000 + 32) / 2**30  # GiB; the article prints 0.62
    0.6069...
    """
    return BYTES_PER_VALUE * (weights + batch * units)


def blog_2015(workload: Workload, shape: Shape, ours: MemoryEstimate) -> MemoryEstimate:
    """Return the memory estimate by the rule of thumb of 2015, with warnings that explain how it differs from `ours`."""
    weights, units = count_weights_and_units(workload, shape, ours)
    batch = workload.local_batch
    parts = {
        "weights": 4 * weights,
        "gradients": 4 * weights,
        "optimizer": 4 * weights,
        "activations": formula_bytes(0, batch, units),
    }
    total, exact = formula_bytes(weights, batch, units), (1.0, 1.0)
    warnings = (_comparison(total, ours), *_reasons(workload, shape))
    return build_estimate(parts, exact, exact, "published", (SOURCE,), warnings)


def count_weights_and_units(workload: Workload, shape: Shape, ours: MemoryEstimate) -> tuple[int, int]:
    """Return the number of weights, and of units (neurons) per sample with the input; a sequence has those of all its tokens."""
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
    # The layers of other models are not known individually, so our own estimate of activations is converted to units.
    width = 4 if (workload.precision or "fp32") in FP32_PRECISIONS else 2
    activations = ours.parts["activations"].value if "activations" in ours.parts else 0.0
    return weights, int(activations / width / workload.local_batch)


def _comparison(total: int, ours: MemoryEstimate) -> Message:
    share = significant(total / ours.allocated.value * 100, 2) if ours.allocated.value else "–"
    return msg(
        "warning.blog-2015",
        formula=format_memory(total),
        ours=format_memory(int(ours.allocated.value)),
        device=format_memory(int(ours.device.value)),
        share=share,
    )


def _reasons(workload: Workload, shape: Shape) -> tuple[Message, ...]:
    """Return a message for each aspect of the request that the rule of thumb of 2015 ignores."""
    reasons: list[Message] = []
    if not workload.training:
        reasons.append(msg("warning.blog-2015-training"))
    if workload.precision not in FP32_PRECISIONS:
        reasons.append(msg("warning.blog-2015-precision", precision=workload.precision or "–"))
    if workload.training and workload.optimizer != "sgd-momentum":
        reasons.append(msg("warning.blog-2015-optimizer", optimizer=workload.optimizer or "–"))
    if not isinstance(shape, Mlp):
        reasons.append(msg("warning.blog-2015-layers"))
    return (*(reasons or [msg("warning.blog-2015-right")]), msg("warning.blog-2015-overhead"))
