"""A block of operators as TorchInductor compiles it: pointwise operators are fused into the kernels that use their results.

What a compiled step saves was read off with saved-tensor hooks on an H200 (PyTorch 2.11): inputs of GEMMs, queries, keys, values
and output of attention, the residual stream before each norm, results of GEMMs that an activation reads, masks and statistics.
Copies in fp32 and results inside a norm, an activation or a rotation are never written to memory, nor are their gradients.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

import msgspec

from whichgpu.estimate.memory.training.tape import TapeBlock, TapeOperator, TapeTensor

ALIGNED = 8  # elements: 16-bit GEMMs whose inner length is no multiple of this are padded (TorchInductor's pad_mm)


class _Fused(msgspec.Struct, frozen=True):
    """What a fused operator leaves to the operator that uses its result."""

    inputs: tuple[TapeTensor, ...] = ()
    saved: tuple[TapeTensor, ...] = ()
    extra: int = 0
    parameter_gradient: int = 0


def compiled_block(block: TapeBlock) -> TapeBlock:
    """Return the block with every operator fused whose result no other kernel reads from memory or saves."""
    written = {block.entry.id, block.exit.id} | {node.output.id for node in block.nodes if node.kernel}
    written |= {value.id for node in block.nodes if node.kernel for value in node.saved}
    fused: dict[int, _Fused] = {}
    copies: dict[tuple[int, int], TapeTensor] = {}  # by tensor and width: one cast serves all who read it
    nodes = []
    for node in block.nodes:
        parts = {value.id: fused.get(value.id) or _Fused((value,)) for value in node.inputs}
        fused |= {id: _Fused(part.inputs) for id, part in parts.items() if id in fused}  # The rest is left to its first reader.
        inputs = _distinct(one for part in parts.values() for one in part.inputs)
        is_cast = not node.kernel and not node.saved and len(inputs) == 1 and node.output.count == inputs[0].count
        copy = copies.setdefault((inputs[0].id, node.output.width), node.output) if is_cast else node.output
        if copy is not node.output and copy.id in written:
            fused[node.output.id] = _Fused((copy,))
            continue
        saved = (one for value in node.saved for one in _sources(value, parts, written, inputs))
        whole = _Fused(
            inputs,
            _distinct([*(one for part in parts.values() for one in part.saved), *saved]),
            node.extra + _mask(node, written) + sum(part.extra for part in parts.values()),
            node.parameter_gradient + sum(part.parameter_gradient for part in parts.values()),
        )
        if node.output.id not in written:
            fused[node.output.id] = whole
            continue
        nodes.append(
            TapeOperator(
                whole.inputs,
                node.output,
                whole.saved,
                whole.extra,
                node.backward_temporary if node.kernel else 0,
                whole.parameter_gradient,
                node.passes and node.kernel,
                node.kernel,
            )
        )
    return TapeBlock(tuple(nodes), block.entry, block.exit)


def _mask(node: TapeOperator, written: Container[int]) -> int:
    """Return the bytes of the mask, one an element, that a fused ReLU saves beside its output."""
    return node.output.count if node.output in node.saved and not node.kernel and node.output.id in written else 0


def _sources(
    value: TapeTensor, parts: Mapping[int, _Fused], written: Container[int], inputs: tuple[TapeTensor, ...]
) -> tuple[TapeTensor, ...]:
    """Return the tensors in memory from which a tensor that an operator saves is computed again: itself if it is in memory."""
    if value.id in parts:
        return parts[value.id].inputs
    return (value,) if value.id in written else inputs


def compiled_head(block: TapeBlock, vocabulary: int) -> TapeBlock:
    """Return the output head and loss compiled: the gradient of the logits overwrites them, unless it has to be padded."""
    compiled = compiled_block(block)
    *nodes, loss = compiled.nodes
    if vocabulary % ALIGNED and loss.saved[0].width < 4:
        loss = msgspec.structs.replace(loss, backward_temporary=sum(value.size for value in loss.saved))
    else:
        loss = msgspec.structs.replace(loss, in_place=True)
    return TapeBlock((*nodes, loss), compiled.entry, compiled.exit)


def head_beside_compiled_layers(block: TapeBlock) -> TapeBlock:
    """Return the output head as run eagerly before a compiled loss: its fp32 logits are written, and so is their gradient."""
    *head, upcast, _, loss = block.nodes
    nodes = (*head, upcast, msgspec.structs.replace(loss, inputs=(upcast.output,), saved=(upcast.output,)))
    return TapeBlock(nodes, block.entry, block.exit, hold=(upcast.output,))


def _distinct(values: Iterable[TapeTensor]) -> tuple[TapeTensor, ...]:
    return tuple(dict.fromkeys(values))
