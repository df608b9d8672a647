"""A tape of operators: the output of each operator, the tensors it saves for backward, and its weight gradient.

A block (a layer, an embedding, a head with its loss) is written onto a tape operator by operator. `TapeBlock.forward` and
`TapeBlock.backward` replay it into an allocation log as PyTorch's autograd does: a tensor lives until its last use or, if an
operator saved it, until that operator's backward; a gradient lives from the operator that computes it to the one that uses it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from whichgpu.estimate.memory.training.allocation_log import AllocationLog, LogSegment


class TapeTensor(msgspec.Struct, frozen=True):
    """A tensor on the tape: `count` elements of `width` bytes."""

    id: int
    count: int
    width: int

    @property
    def size(self) -> int:
        """Size in bytes."""
        return self.count * self.width


class TapeOperator(msgspec.Struct, frozen=True):
    """One operator on the tape; `saved` are the tensors it saves for backward."""

    inputs: tuple[TapeTensor, ...]
    output: TapeTensor
    saved: tuple[TapeTensor, ...]
    extra: int = 0  # bytes saved besides tensors on the tape: masks, statistics
    backward_temporary: int = 0  # bytes allocated during its backward
    parameter_gradient: int = 0  # bytes of its weight gradient
    passes: bool = False  # the output's gradient is passed to the inputs without a copy
    kernel: bool = False  # a compiler cannot fuse it away: a GEMM, attention, a lookup or a residual sum
    in_place: bool = False  # the gradient of its first input overwrites that input, which it saved
    forward_temporary: int = 0  # bytes allocated while its forward is prepared, such as a dequantised weight


class Tape(msgspec.Struct):
    """Operators of a block of a model (such as a layer) in order, appended one by one."""

    nodes: list[TapeOperator] = msgspec.field(default_factory=list)
    next_id: int = 0

    def value(self, count: int, width: int) -> TapeTensor:
        """Return a new tensor: an input of the block or an operator's output."""
        self.next_id += 1
        return TapeTensor(self.next_id, count, width)

    def op(
        self,
        inputs: tuple[TapeTensor, ...],
        count: int,
        width: int,
        saved: tuple[TapeTensor, ...] = (),
        *,
        save_output: bool = False,
        extra: int = 0,
        backward_temporary: int = 0,
        parameter_gradient: int = 0,
        passes: bool = False,
        kernel: bool = False,
        forward_temporary: int = 0,
    ) -> TapeTensor:
        """Append an operator with `count` output elements of `width` bytes and what its backward needs; return its output."""
        output = self.value(count, width)
        all_saved = (*saved, output) if save_output else saved
        node = TapeOperator(
            inputs, output, all_saved, extra, backward_temporary, parameter_gradient, passes, kernel, False, forward_temporary
        )
        self.nodes.append(node)
        return output


class SavedTensors(msgspec.Struct):
    """Log numbers of what a block saved for its backward: tensors by id on the tape; masks and statistics by operator."""

    live: dict[int, int]
    extras: dict[int, int]


class TapeBlock(msgspec.Struct, frozen=True, eq=False):
    """A finished tape with its input and output; `hold` are tensors the caller keeps until the end, such as the logits."""

    nodes: tuple[TapeOperator, ...]
    entry: TapeTensor
    exit: TapeTensor
    hold: tuple[TapeTensor, ...] = ()
    segments: dict[Any, Any] = msgspec.field(default_factory=dict)  # recorded log segments

    @property
    def weights(self) -> tuple[int, ...]:
        """Bytes of each weight gradient in order, which are also the bytes of each weight in a block without adapters."""
        return tuple(node.parameter_gradient for node in self.nodes if node.parameter_gradient)

    @property
    def saved_bytes(self) -> int:
        """Bytes that the block saves between forward and backward."""
        values = {value.id: value.size for node in self.nodes for value in node.saved}
        return sum(values.values()) + sum(node.extra for node in self.nodes)

    @property
    def dequantised_inputs(self) -> int:
        """Bytes of the inputs that operators with a dequantised weight save."""
        values = {value.id: value.size for node in self.nodes if node.forward_temporary for value in node.saved}
        return sum(values.values())

    def forward_segment(self, has_entry: bool, saving: bool) -> tuple[LogSegment, int, SavedTensors]:
        """Return the forward pass as a log segment, its output and saved tensors; with `has_entry` tensor 0 is the input."""
        key = has_entry, saving
        if key not in self.segments:
            log = AllocationLog()
            exit, saved = self.forward(log, log.new(1, "") if has_entry else None, saving)
            self.segments[key] = log.segment(int(has_entry)), exit, saved
        segment: tuple[LogSegment, int, SavedTensors] = self.segments[key]
        return segment

    def backward_segment(self, live: tuple[int, ...], extras: tuple[int, ...]) -> tuple[LogSegment, int | None, list[int]]:
        """Return the backward pass as a log segment, and the gradients; its outside tensors: output gradient, then saved ones."""
        key = live, extras
        if key not in self.segments:
            log = AllocationLog()
            gradient, *within = (log.new(1, "") for _ in range(1 + len(live) + len(extras)))
            saved = SavedTensors(dict(zip(live, within, strict=False)), dict(zip(extras, within[len(live) :], strict=True)))
            input_gradient, weights = self.backward(log, saved, gradient)
            self.segments[key] = log.segment(1 + len(live) + len(extras)), input_gradient, weights
        segment: tuple[LogSegment, int | None, list[int]] = self.segments[key]
        return segment

    def forward(self, log: AllocationLog, entry: int | None, saving: bool = True) -> tuple[int, SavedTensors]:
        """Replay the forward pass from the input `entry`; return output and saved tensors. The input is freed unless saved."""
        last_use = {value.id: index for index, node in enumerate(self.nodes) for value in node.inputs}
        last_use |= {value.id: len(self.nodes) for value in self.hold}
        saved = {value.id for node in self.nodes for value in node.saved} if saving else set()
        live: dict[int, int] = {} if entry is None else {self.entry.id: entry}
        extras: dict[int, int] = {}
        label = "activations" if saving else "temporary"
        for index, node in enumerate(self.nodes):
            if node.forward_temporary:
                log.free(log.new(node.forward_temporary, "temporary"))
            live[node.output.id] = log.new(node.output.size, label)
            if saving and node.extra:
                extras[index] = log.new(node.extra, label)
            for value in {*node.inputs, node.output} - {self.entry, self.exit}:
                if last_use.get(value.id, -1) <= index and value.id not in saved and value.id in live:
                    log.free(live.pop(value.id))
        for value in self.hold:
            if value.id not in saved and value.id in live:
                log.free(live.pop(value.id))
        if entry is not None and saving and self.entry.id not in saved:
            log.free(live.pop(self.entry.id))
        return live[self.exit.id], SavedTensors(live, extras)

    def backward(self, log: AllocationLog, saved_tensors: SavedTensors, gradient: int) -> tuple[int | None, list[int]]:
        """Replay the backward pass from the output's gradient; return the input's gradient and the weight gradients."""
        uses: dict[int, int] = {}
        for node in self.nodes:
            for value in node.saved:
                uses[value.id] = uses.get(value.id, 0) + 1
        flow = _Flow(log, self.exit, gradient)
        weights: list[int] = []
        for index in range(len(self.nodes) - 1, -1, -1):
            node = self.nodes[index]
            incoming = flow.take(node.output)
            scratch = log.new(node.backward_temporary, "temporary") if node.backward_temporary else None
            if node.parameter_gradient:
                weights.append(log.new(node.parameter_gradient, "gradients"))
            for value in node.inputs:
                if node.in_place and value.id in saved_tensors.live:
                    flow.give(value, flow.adopt(saved_tensors.live.pop(value.id)))
                elif node.passes and incoming is not None:
                    flow.give(value, flow.share(incoming))
                else:
                    flow.give(value, flow.new(value))
            if scratch is not None:
                log.free(scratch)
            if incoming is not None:
                flow.release(incoming)
            if index in saved_tensors.extras:
                log.free(saved_tensors.extras[index])
            for value in node.saved:
                uses[value.id] -= 1
                if uses[value.id] == 0 and value.id in saved_tensors.live:
                    log.free(saved_tensors.live.pop(value.id))
        return flow.take(self.entry), weights


class _Flow:
    """Gradient tensors allocated during a backward pass, each with the number of operators that still need it."""

    def __init__(self, log: AllocationLog, exit: TapeTensor, gradient: int) -> None:
        self._log = log
        self._of = {exit.id: gradient}
        self._holders = {gradient: 1}

    def new(self, value: TapeTensor) -> int:
        buffer = self._log.new(value.size, "temporary")
        self._holders[buffer] = 1
        return buffer

    def adopt(self, buffer: int) -> int:
        """Take over a saved tensor, which the gradient overwrites."""
        self._holders[buffer] = 1
        return buffer

    def share(self, buffer: int) -> int:
        self._holders[buffer] += 1
        return buffer

    def release(self, buffer: int) -> None:
        self._holders[buffer] -= 1
        if self._holders[buffer] == 0:
            self._log.free(buffer)

    def give(self, value: TapeTensor, buffer: int) -> None:
        """Set a tensor's gradient, or add `buffer` to the gradient it has, in place unless other operators still need that."""
        first = self._of.get(value.id)
        if first is None:
            self._of[value.id] = buffer
            return
        if self._holders[first] > 1:
            self._of[value.id] = self.new(value)
            self.release(first)
        self.release(buffer)

    def take(self, value: TapeTensor) -> int | None:
        return self._of.pop(value.id, None)
