"""Fusion rules of engines other than plain PyTorch: operators that are merged into a neighbour of the same size.

Operator tables store no graph edges, but a normalisation and the elementwise operators around it have equal element counts, and
so have a convolution and the operators after it. Therefore an elementwise operator (a guest) joins the hosts of the same phase
and size: its kernel is removed, and of its bytes only the operands that no host reads remain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from whichgpu.catalog.engines.record import Fusion
from whichgpu.estimate.time.lower.eager.call import Call, LoweringOptions, elements
from whichgpu.estimate.time.lower.fused.bottleneck_stage import fuse_bottleneck_stage
from whichgpu.estimate.time.operators import Number, Op

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
    chains: bool = False  # whether elementwise operators of one size without a host are fused into one another


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


COMPILED = FusionRule(BATCH_NORMS | LAYER_NORMS, ELEMENTWISE | {"addcmul"}, rebuilt=_generated, chains=True)
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
    if not options.training:
        remaining = [
            [_without_indices(op, call, options) for op in ops] for (call, _), ops in zip(lowered, remaining, strict=True)
        ]
    alone = [ops[-1].read if ops else 0.0 for ops in remaining]
    for place, (call, ops) in enumerate(lowered):
        if call.name in rules.folded:
            remaining[place] = []
        elif ops and call.name in rules.guests and (joined := hosts.get(_key(call))):
            remaining[place] = []
            _join(remaining, joined, call, options, alone)
    if rules.chains:
        _fuse_chains(lowered, remaining, rules)
    if fusion == "tensorrt" and options.quantised_unit == "int8":
        return fuse_bottleneck_stage([op for ops in remaining for op in ops])
    return [op for ops in remaining for op in ops]


def _fuse_chains(lowered: Sequence[LoweredCall], remaining: list[list[Op]], rules: FusionRule) -> None:
    """Merge the elementwise operators of one size that no norm took in: one kernel after each GEMM or convolution.

    The kernel also adds the bias of a convolution, which the compiler splits off (torch/_inductor/kernel/conv.py).
    """
    chains: dict[tuple[object, ...], list[int]] = {}
    producers: dict[tuple[object, ...], list[int]] = {}
    for place, (call, ops) in enumerate(lowered):
        if ops and remaining[place]:
            kind = chains if call.name in rules.guests else producers if call.name in GEMMS else {}
            kind.setdefault(_key(call), []).append(place)
    for key, places in chains.items():
        before = producers.get(key, [])
        kernels = sum(float(op.count) for place in places for op in remaining[place])
        count = sum(float(remaining[place][0].count) for place in before) or max(
            float(op.count) for place in places for op in remaining[place]
        )
        if count > kernels:
            continue  # Some results are not followed by such an operator.
        calls = [lowered[place][0] for place in places]
        narrowest = min(calls, key=lambda call: call.width)
        size = elements(narrowest.outputs[0]) * narrowest.width
        others = sum(sum(elements(shape) for shape in call.inputs[1:]) * call.width * call.count for call in calls) / count
        first = remaining[places[calls.index(narrowest)]][0]
        for place in places:
            remaining[place] = []
        for place in before:
            remaining[place] = [op for op in remaining[place] if op.kind != "elementwise"]
        host_calls = sum(float(op.calls) * float(op.count) for place in places for op in lowered[place][1]) / kernels
        merged = replace(first, kind="elementwise", role="", read=size + smaller(others, size), write=size)
        remaining[places[0]] = [replace(merged, count=count, calls=min(host_calls, float(first.calls)))]


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


def _without_indices(op: Op, call: Call, options: LoweringOptions) -> Op:
    """Return an operator of an inference pass: engines that fuse store no positions of maxima, and pool quantised values."""
    if op.role != "max_pool2d_with_indices":
        return op
    width = options.quantised_width if options.quantised_unit else call.width
    return replace(op, read=op.read * (width / call.width), write=elements(call.outputs[0]) * width)


def _join(remaining: list[list[Op]], hosts: Sequence[int], call: Call, options: LoweringOptions, alone: Sequence[Number]) -> None:
    """Add a fused operator's further operands to the last kernel of each it is fused into; a cast halves what that moves.

    A kernel reads at most one tensor more than it reads alone: further operands are results of the operators fused with it.
    """
    width = options.quantised_width if options.quantised_unit else call.width
    others = sum(elements(shape) for shape in call.inputs[1:]) * width * call.count
    times = sum(float(remaining[place][-1].count) for place in hosts)
    cast = call.name == "_to_copy" and options.amp
    share = min(1.0, call.count / times) / 2
    for place in hosts:
        *first, last = remaining[place]
        if cast and call.dtype == "float32":
            last = replace(last, read=last.read * (1 - share))
        elif cast:
            last = replace(last, write=last.write * (1 - share))
        limit = alone[place] + elements(call.outputs[0]) * width
        remaining[place] = [*first, replace(last, read=smaller(last.read + others / times, limit))]


def smaller(one: Number, other: Number) -> Number:
    """Return the smaller number, or the smaller of each pair of two arrays' numbers."""
    if isinstance(one, float) and isinstance(other, float):
        return min(one, other)
    return np.minimum(one, other)
