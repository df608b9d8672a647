"""Replay of two training steps in the caching allocator; the second starts with optimizer states and cached segments.

Forward saves activations block by block; backward frees them while weight gradients grow; the optimizer step comes last. The peak
is at the loss for a large vocabulary and long batch, at the end of backward for a large model and short batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from whichgpu.estimate.allocator import Replay
from whichgpu.estimate.memory.training.allocation_log import AllocationLog
from whichgpu.estimate.memory.training.tape import SavedTensors, TapeBlock


class BlockRun(msgspec.Struct, frozen=True):
    """A block of the model with autocast's 16-bit copies of its weights, and whether it is checkpointed.

    `gathered` are the bytes that ZeRO 3 gathers from other GPUs before the block runs and frees after it.
    """

    block: TapeBlock
    casts: tuple[int, ...] = ()
    checkpointed: bool = False
    gathered: int = 0


class TrainingRun(msgspec.Struct, frozen=True):
    """A training step: bytes of each tensor on this GPU, and the model's blocks in order."""

    stretches: Sequence[BlockRun]
    weights: Sequence[int]
    adapters: Sequence[int] = ()
    states: Sequence[int] = ()  # optimizer states
    tables: Sequence[int] = ()  # gradients of embedding tables, allocated last
    tied: int = 0  # bytes of the head's gradient of a tied embedding, which is added to the embedding's
    accumulated: Sequence[int] = ()  # gradients of earlier micro-batches
    step_temporary: int = 0
    fixed: dict[str, int] = msgspec.field(default_factory=dict)  # bytes by label allocated throughout, such as workspaces
    scattered: int = 1  # GPUs over which a block's weight gradients are reduce-scattered (ZeRO 2 and 3)
    previous: int = 0  # bytes of the step before that live until the forward pass reaches the last block, the loss


def replay_training(training: TrainingRun, pools: bool = True) -> Replay:
    """Return the peaks over two steps and the bytes by part at the peak; without `pools` reserved bytes are not computed."""
    log = AllocationLog()
    for label, size in training.fixed.items():
        if size:
            log.new(size, label)
    for label, sizes in (("weights", training.weights), ("adapters", training.adapters), ("gradients", training.accumulated)):
        log.new_all(sizes, label)
    if not pools:  # If segments are not replayed, all that a first step leaves behind is the optimizer states.
        log.new_all(training.states, "optimizer")
    gradients: list[int] = []
    replayer = _BlockReplayer(log)
    for step in range(2 if pools else 1):
        log.free_all(gradients)
        gradients = _step(replayer, training)
        if pools and step == 0:
            log.new_all(training.states, "optimizer")
        if training.step_temporary:
            log.free(log.new(training.step_temporary, "temporary"))
    return log.replay(pools)


class _ForwardResult(msgspec.Struct):
    run: BlockRun
    entry: int | None
    saved: SavedTensors | None
    casts: list[int]


class _BlockReplayer:
    """Replays a model's blocks (layers, embedding, head) into an allocation log, reusing each block's recorded segments."""

    def __init__(self, log: AllocationLog) -> None:
        self.log = log

    def forward(self, block: TapeBlock, entry: int | None, saving: bool = True) -> tuple[int, SavedTensors]:
        """Replay a block's forward pass from its recorded log segment; return its output and saved tensors."""
        segment, exit, saved = block.forward_segment(entry is not None, saving)
        numbers = self.log.write(segment, [] if entry is None else [entry])
        live, extras = ({id: numbers[place] for id, place in places.items()} for places in (saved.live, saved.extras))
        return numbers[exit], SavedTensors(live, extras)

    def backward(self, block: TapeBlock, saved: SavedTensors, gradient: int) -> tuple[int | None, list[int]]:
        """Replay a block's backward pass from its recorded segment; return the input's gradient and the weight gradients."""
        segment, input_gradient, weights = block.backward_segment(tuple(saved.live), tuple(saved.extras))
        numbers = self.log.write(segment, [gradient, *saved.live.values(), *saved.extras.values()])
        return None if input_gradient is None else numbers[input_gradient], [numbers[place] for place in weights]


class _GatheredWeights:
    """Weights that ZeRO 3 gathers: those of the running block, and of the next one."""

    def __init__(self, log: AllocationLog, runs: Sequence[BlockRun]) -> None:
        self._log, self._sizes = log, [run.gathered for run in runs]
        self._tensors: dict[int, int] = {}

    def gather(self, *indices: int) -> None:
        """Allocate the full weights of these blocks, if they are not gathered yet."""
        for index in indices:
            if 0 <= index < len(self._sizes) and self._sizes[index] and index not in self._tensors:
                self._tensors[index] = self._log.new(self._sizes[index], "temporary")

    def free(self, index: int) -> None:
        """Free the gathered weights of a block."""
        if index in self._tensors:
            self._log.free(self._tensors.pop(index))


def _step(replayer: _BlockReplayer, training: TrainingRun) -> list[int]:
    log = replayer.log
    results: list[_ForwardResult] = []
    gathered = _GatheredWeights(log, training.stretches)
    x: int | None = None
    previous = log.new(training.previous, "activations") if training.previous else None
    for index, run in enumerate(training.stretches):
        if previous is not None and index == len(training.stretches) - 1:
            log.free(previous)
        gathered.gather(index, index + 1)
        casts = log.new_all(run.casts, "cast_weights")
        entry = x
        x, saved = replayer.forward(run.block, entry, saving=not run.checkpointed)
        if run.checkpointed and run.gathered:  # Autocast caches copies of persistent weights, not of gathered ones.
            log.free_all(casts)
        results.append(_ForwardResult(run, entry, None if run.checkpointed else saved, casts))
        gathered.free(index)
    for result in results:  # No autograd graph keeps the 16-bit copies of a checkpointed block after the forward pass.
        if result.run.checkpointed and not result.run.gathered:
            log.free_all(result.casts)
    gradient, gradients = x, []
    for index in range(len(results) - 1, -1, -1):
        if gradient is None:
            break
        gathered.gather(index, index - 1)
        gradient, new_gradients = _backward(replayer, results[index], gradient)
        gradients += _reduced(log, new_gradients, results[index].run.block.weights, training)
        gathered.free(index)
    for index in range(len(results)):
        gathered.free(index)
    if gradient is not None:
        log.free(gradient)
    for size in training.tables:
        gradients += _reduced(log, [log.new(size, "gradients")], [size], training)
    if training.tied:
        log.free(log.new(training.tied, "temporary"))
    return gradients


def _reduced(log: AllocationLog, gradients: list[int], sizes: Sequence[int], training: TrainingRun) -> list[int]:
    """Return the gradients this GPU keeps: its shard after a reduce-scatter, or none if accumulated into earlier ones."""
    if training.scattered > 1 and gradients:
        shard = log.new(-(-sum(sizes) // training.scattered), "gradients")
        log.free_all(gradients)
        gradients = [shard]
    if training.accumulated:
        log.free_all(gradients)
        return []
    return gradients


def _backward(replayer: _BlockReplayer, result: _ForwardResult, gradient: int) -> tuple[int | None, list[int]]:
    log = replayer.log
    block, casts, saved = result.run.block, result.casts, result.saved
    if saved is None:  # A checkpointed block is recomputed from its saved input.
        casts = log.new_all(result.run.casts, "cast_weights")
        output, saved = replayer.forward(block, None)
        log.free(output)
        saved.live.pop(block.exit.id, None)
    input_gradient, weight_gradients = replayer.backward(block, saved, gradient)
    if result.run.checkpointed and result.entry is not None:
        log.free(result.entry)
    log.free_all(casts)
    return input_gradient, weight_gradients
