"""A tape of operators: what each makes, what it keeps for its backward pass, what gradient it leaves.

Lowering code writes a block (a layer, an embedding, a head with its loss) onto a tape operator by operator, as the framework
runs it. `Block.forward` and `Block.backward` then play it into a ledger the way PyTorch's autograd does: a tensor lives until
its last use or, if an operator saved it, until that operator's backward; gradients live from the operator that makes them to
the one that takes them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from whichgpu.estimate.memory.training.allocation_log import AllocationLog, LogSegment


@dataclass(frozen=True, slots=True)
class TapeTensor:
    """A tensor on the tape: `count` elements of `width` bytes."""

    id: int
    count: int
    width: int

    @property
    def size(self) -> int:
        """Bytes."""
        return self.count * self.width


@dataclass(frozen=True, slots=True)
class TapeOperator:
    """One operator. `saved` is kept for backward; `passes` hands its output's gradient on without a copy."""

    inputs: tuple[TapeTensor, ...]
    output: TapeTensor
    saved: tuple[TapeTensor, ...]
    extra: int = 0  # bytes kept beside the saved tensors: masks, statistics
    backward_temporary: int = 0  # bytes alive while its backward runs
    parameter_gradient: int = 0  # bytes of weight gradient it leaves behind
    passes: bool = False


@dataclass(slots=True)
class Tape:
    """A block being written."""

    nodes: list[TapeOperator] = field(default_factory=list)
    next_id: int = 0

    def value(self, count: int, width: int) -> TapeTensor:
        """A tensor that comes from outside, or one to be an operator's output."""
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
    ) -> TapeTensor:
        """Append an operator and return its output."""
        output = self.value(count, width)
        kept = (*saved, output) if save_output else saved
        self.nodes.append(TapeOperator(inputs, output, kept, extra, backward_temporary, parameter_gradient, passes))
        return output


@dataclass(slots=True)
class SavedTensors:
    """What a block's forward left for its backward: the ledger's ids of tensors that live on, and of masks and the like."""

    live: dict[int, int]
    extras: dict[int, int]


@dataclass(frozen=True, slots=True)
class TapeBlock:
    """A finished tape with its input and output. `hold` names values that stay in hand until the end, such as the logits."""

    nodes: tuple[TapeOperator, ...]
    entry: TapeTensor
    exit: TapeTensor
    hold: tuple[TapeTensor, ...] = ()
    played: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)  # passages, by how it was played

    @property
    def weights(self) -> tuple[int, ...]:
        """Bytes of each weight gradient, in order; for a block written without adapters, of each weight."""
        return tuple(node.parameter_gradient for node in self.nodes if node.parameter_gradient)

    @property
    def kept(self) -> int:
        """Bytes held between forward and backward."""
        values = {value.id: value.size for node in self.nodes for value in node.saved}
        return sum(values.values()) + sum(node.extra for node in self.nodes)

    def forward_passage(self, entered: bool, saving: bool) -> tuple[LogSegment, int, SavedTensors]:
        """Its way forward to be written into any ledger: the first number is the input's, where it is handed one."""
        key = entered, saving
        if key not in self.played:
            ledger = AllocationLog()
            exit, left = self.forward(ledger, ledger.new(1, "") if entered else None, saving)
            self.played[key] = ledger.passage(int(entered)), exit, left
        found: tuple[LogSegment, int, SavedTensors] = self.played[key]
        return found

    def backward_passage(self, live: tuple[int, ...], extras: tuple[int, ...]) -> tuple[LogSegment, int | None, list[int]]:
        """Its way backward: the first numbers are those of the gradient, and of what forward left of these."""
        key = live, extras
        if key not in self.played:
            ledger = AllocationLog()
            gradient, *within = (ledger.new(1, "") for _ in range(1 + len(live) + len(extras)))
            passed = SavedTensors(dict(zip(live, within, strict=False)), dict(zip(extras, within[len(live) :], strict=True)))
            back, weights = self.backward(ledger, passed, gradient)
            self.played[key] = ledger.passage(1 + len(live) + len(extras)), back, weights
        found: tuple[LogSegment, int | None, list[int]] = self.played[key]
        return found

    def forward(self, ledger: AllocationLog, entry: int | None, saving: bool = True) -> tuple[int, SavedTensors]:
        """Play it forward from the ledger's `entry`; gives the output's id. The input is freed unless saved."""
        last_use = {value.id: index for index, node in enumerate(self.nodes) for value in node.inputs}
        last_use |= {value.id: len(self.nodes) for value in self.hold}
        saved = {value.id for node in self.nodes for value in node.saved} if saving else set()
        live: dict[int, int] = {} if entry is None else {self.entry.id: entry}
        extras: dict[int, int] = {}
        label = "activations" if saving else "temporary"
        for index, node in enumerate(self.nodes):
            live[node.output.id] = ledger.new(node.output.size, label)
            if saving and node.extra:
                extras[index] = ledger.new(node.extra, label)
            for value in {*node.inputs, node.output} - {self.entry, self.exit}:
                if last_use.get(value.id, -1) <= index and value.id not in saved and value.id in live:
                    ledger.free(live.pop(value.id))
        for value in self.hold:
            if value.id not in saved and value.id in live:
                ledger.free(live.pop(value.id))
        if entry is not None and saving and self.entry.id not in saved:
            ledger.free(live.pop(self.entry.id))
        return live[self.exit.id], SavedTensors(live, extras)

    def backward(self, ledger: AllocationLog, passed: SavedTensors, gradient: int) -> tuple[int | None, list[int]]:
        """Play it backward from the gradient of its output; gives the gradient of its input and the weights' gradients."""
        uses: dict[int, int] = {}
        for node in self.nodes:
            for value in node.saved:
                uses[value.id] = uses.get(value.id, 0) + 1
        flow = _Flow(ledger, self.exit, gradient)
        weights: list[int] = []
        for index in range(len(self.nodes) - 1, -1, -1):
            node = self.nodes[index]
            incoming = flow.take(node.output)
            scratch = ledger.new(node.backward_temporary, "temporary") if node.backward_temporary else None
            if node.parameter_gradient:
                weights.append(ledger.new(node.parameter_gradient, "gradients"))
            for value in node.inputs:
                if node.passes and incoming is not None:
                    flow.give(value, flow.share(incoming))
                else:
                    flow.give(value, flow.new(value))
            if scratch is not None:
                ledger.free(scratch)
            if incoming is not None:
                flow.release(incoming)
            if index in passed.extras:
                ledger.free(passed.extras[index])
            for value in node.saved:
                uses[value.id] -= 1
                if uses[value.id] == 0 and value.id in passed.live:
                    ledger.free(passed.live.pop(value.id))
        return flow.take(self.entry), weights


class _Flow:
    """Gradients on their way: who holds which buffer of the ledger."""

    def __init__(self, ledger: AllocationLog, exit: TapeTensor, gradient: int) -> None:
        self._ledger = ledger
        self._of = {exit.id: gradient}
        self._holders = {gradient: 1}

    def new(self, value: TapeTensor) -> int:
        buffer = self._ledger.new(value.size, "temporary")
        self._holders[buffer] = 1
        return buffer

    def share(self, buffer: int) -> int:
        self._holders[buffer] += 1
        return buffer

    def release(self, buffer: int) -> None:
        self._holders[buffer] -= 1
        if self._holders[buffer] == 0:
            self._ledger.free(buffer)

    def give(self, value: TapeTensor, buffer: int) -> None:
        """Hand a tensor its gradient. A second one is added to the first, in place where nobody else holds that."""
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
