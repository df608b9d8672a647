"""Fusion rules of engines other than plain PyTorch: operators that are merged into a neighbour of the same size.

Operator tables store no graph edges, but a normalisation and the elementwise operators around it have equal element counts, and
so have a convolution and the operators after it. Therefore an elementwise operator (a guest) joins the hosts of the same phase
and size: its kernel is removed, and of its bytes only the operands that no host reads remain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from whichgpu.catalog.engines.record import Fusion
from whichgpu.estimate.time.lower.eager.call import Call, LoweringOptions, elements
from whichgpu.estimate.time.operators import Op

LoweredCall = tuple[Call, list[Op]]

BATCH_NORMS = frozenset({"native_batch_norm", "native_batch_norm_backward"})
LAYER_NORMS = frozenset("native_layer_norm native_layer_norm_backward native_group_norm native_group_norm_backward".split())
GEMMS = frozenset("convolution addmm mm bmm".split())
ACTIVATIONS = frozenset("relu relu_ hardtanh_ threshold_backward threshold_backward_strided hardtanh_backward".split())
ELEMENTWISE = ACTIVATIONS | frozenset(
    "silu silu_ gelu hardswish_ hardswish silu_backward gelu_backward hardswish_backward add add_ add_strided mul mul_ div div_ "
    "expanded clone copy_ _to_copy native_dropout native_dropout_backward sub neg".split()
)


class FusionRule(msgspec.Struct, frozen=True):
    """Names of the operators that an engine fuses (guests) and of those they are fused into (hosts)."""

    hosts: frozenset[str]
    guests: frozenset[str]
    folded: frozenset[str] = frozenset()  # operators removed entirely, such as batch norm folded into weights
    rebuilt: Callable[[Call, Sequence[Op]], list[Op]] | None = None  # returns an engine's own kernels for an operator


def _generated(call: Call, ops: Sequence[Op]) -> list[Op]:
    """Return the kernels of a compiled normalisation: batch norm in one pass for sums and one for results, layer norm in one."""
    if call.name in LAYER_NORMS:
        forward = not call.name.endswith("backward")
        rows = [replace(op, kind="norm", role="fused") for op in ops]
        return rows if forward else rows + [_sums(call, op) for op in ops]
    if ops[0].kind == "elementwise":
        return [replace(ops[0], role="")]
    once = elements(call.inputs[0]) * call.width
    read = ops[0].read / 2
    return [_sums(call, replace(ops[0], read=read)), replace(ops[0], kind="elementwise", role="", read=read, write=once)]


def _sums(call: Call, op: Op) -> Op:
    channels = call.inputs[0][-1] if call.name in LAYER_NORMS else call.inputs[0][1]
    sizes = {"rows": elements(call.inputs[0]) / channels, "width": channels, "resident": 0.0}
    return replace(op, kind="reduce_columns", role="", write=8.0 * channels, sizes=sizes)


COMPILED = FusionRule(BATCH_NORMS | LAYER_NORMS, ELEMENTWISE, rebuilt=_generated)
FUSION_RULES: dict[Fusion, FusionRule] = {
    "inductor": COMPILED,
    "tensorrt": FusionRule(GEMMS, ELEMENTWISE - {"mul", "mul_"}, frozenset({"native_batch_norm"})),
}
# cuDNN's normalisation fused with addition and activation, for 16 bits and NHWC, in NVIDIA's stacks of 2018 to 2022.
NORM_ACTIVATION = FusionRule(BATCH_NORMS, ACTIVATIONS | {"add_"})


def fuse(lowered: Sequence[LoweredCall], fusion: Fusion, options: LoweringOptions) -> list[Op]:
    """Return the kernels that remain after an engine fuses elementwise operators into neighbours."""
    rules = FUSION_RULES.get(fusion)
    if fusion == "cudnn-norm" and options.nhwc and any(call.width == 2 for call, ops in lowered if ops):
        rules = NORM_ACTIVATION
    if rules is None:
        return [op for _, ops in lowered for op in ops]
    hosts = _hosts(lowered, rules)
    rebuild = rules.rebuilt
    remaining = [rebuild(call, ops) if rebuild and ops and call.name in rules.hosts else ops for call, ops in lowered]
    for place, (call, ops) in enumerate(lowered):
        if call.name in rules.folded:
            remaining[place] = []
        elif ops and call.name in rules.guests and (joined := hosts.get(_key(call))):
            remaining[place] = []
            _join(remaining, joined, call, options)
    return [op for ops in remaining for op in ops]


def _hosts(lowered: Sequence[LoweredCall], rules: FusionRule) -> dict[tuple[object, ...], list[int]]:
    hosts: dict[tuple[object, ...], list[int]] = {}
    for place, (call, ops) in enumerate(lowered):
        if ops and call.name in rules.hosts - rules.folded:
            hosts.setdefault(_key(call), []).append(place)
    return hosts


def _key(call: Call) -> tuple[object, ...]:
    """Return phase and element count of a call's result, which decide what it may fuse with."""
    size = elements(call.outputs[0])
    return call.phase, float(size if isinstance(size, (int, float)) else size.sum())


def _join(remaining: list[list[Op]], hosts: Sequence[int], call: Call, options: LoweringOptions) -> None:
    """Add a fused operator's further operands to the last kernel of each it is fused into; a cast halves what that moves."""
    others = sum(elements(shape) for shape in call.inputs[1:]) * call.width * call.count
    times = sum(float(remaining[place][-1].count) for place in hosts)
    cast = call.name == "_to_copy" and options.amp
    share = min(1.0, call.count / times) / 2
    for place in hosts:
        *first, last = remaining[place]
        if cast and call.dtype == "float32":
            last = replace(last, read=last.read * (1 - share))
        elif cast:
            last = replace(last, write=last.write * (1 - share))
        remaining[place] = [*first, replace(last, read=last.read + others / times)]
