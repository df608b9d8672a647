"""Steps of a traced model: the order of its allocations, built once, and the sizes of the allocations at a batch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import msgspec
import numpy as np
from msgspec.structs import replace

from whichgpu.estimate.allocation_sequence import ALLOCATE, AllocationSequence, Array, exact_sizes
from whichgpu.estimate.allocator import Replay
from whichgpu.estimate.memory.training.optimizer import STATES, optimizer_bytes, step_temporary
from whichgpu.workload.tables import OperatorTable, load_table
from whichgpu.workload.workload import Workload


class StepRecipe(msgspec.Struct, frozen=True):
    """Settings that determine the allocations of a step, except the batch; also the key of cached allocation sequences."""

    table: str
    image: int
    training: bool
    trace: str  # precision in which the model was traced (`precisions.trace_of`)
    weights: float  # ratio of a weight's bytes to its bytes in the trace
    space: float  # ratio of a convolution's workspace bytes to its operands' bytes
    optimizer: str
    fused: bool
    stepped: bool  # the optimizer step is included
    accumulated: bool  # gradients are accumulated over micro-batches
    shards: tuple[tuple[str, int], ...] = ()  # parts that ZeRO shards, and over how many GPUs
    frames: float = 1.0  # ratio of a video's latent frames to those of the trace
    adapters: int = 0  # parameters of LoRA adapters, which alone are trained; 0 if all weights are

    @property
    def optimizer_request(self) -> Workload:
        """A request that has this recipe's optimizer settings."""
        return Workload(
            "train", self.table, optimizer=self.optimizer, optimizer_fused=self.fused, include_optimizer_step=self.stepped
        )

    @property
    def width(self) -> int:
        """Bytes of a parameter element."""
        return 2 if self.trace == "bf16" else 4


def replay_recipe(recipe: StepRecipe, batch: int) -> Replay:
    """Replay the allocations of two steps of a traced model at a batch size through the caching allocator."""
    table = load_table(recipe.table, recipe.image)
    # These fields do not change the order of allocations, so recipes that differ in them share the cached steps.
    steps = _steps(
        replace(recipe, image=table.image, weights=1.0, space=float(recipe.space > 0), shards=(), frames=1.0, adapters=0)
    )
    kinds, spaces = _kind_sizes(recipe, table, batch)
    fixed = [-(-one * recipe.adapters // table.parameters) for one in steps.fixed] if recipe.adapters else steps.fixed
    sizes = exact_sizes([*kinds, *spaces, *fixed])[steps.source]
    for label, over in recipe.shards:
        sizes = np.where(steps.labels == label, np.maximum(-(-sizes // over), 1), sizes)
    return steps.course.replay(sizes)


class _Steps(msgspec.Struct, frozen=True):
    """Allocations and frees of two steps; `source` indexes each size in one list: sizes by kind, workspaces by kind, `fixed`."""

    course: AllocationSequence
    source: Array
    fixed: Sequence[int]
    labels: Array


@lru_cache(maxsize=64)
def _steps(recipe: StepRecipe) -> _Steps:
    table = load_table(recipe.table, recipe.image)
    run = table.run(recipe.training, recipe.trace)
    writer = _Writer(recipe, table)
    writer.build(run.moves[: run.before], run.moves[run.before :])
    course = AllocationSequence(writer.moves, writer.labels)
    return _Steps(course, np.array(writer.source, dtype=np.int64), writer.fixed, np.array(writer.labels))


class _Writer:
    """Writes the allocations and frees of two steps of a traced model, each labelled with its part of memory."""

    def __init__(self, recipe: StepRecipe, table: OperatorTable) -> None:
        self.moves: list[int] = []
        self.labels: list[str] = []
        self.source: list[int] = []
        self.fixed: list[int] = []
        self._recipe, self._kinds = recipe, table.kinds
        self._has_workspace = [recipe.space > 0 and any(kind.convolution) for kind in table.kinds]

    def build(self, before: Sequence[int], step: Sequence[int]) -> None:
        """Write the allocations made `before` the steps, such as weights, then `step` twice with the optimizer."""
        recipe = self._recipe
        persistent = self._write(before, [])
        gradients = self._write(step, persistent)
        if recipe.stepped:
            self._allocate_states(gradients)
        if not recipe.accumulated:
            self.moves += gradients
        self._write(step, persistent, recipe.accumulated)
        if recipe.stepped:
            self._write_step_temporaries(gradients)

    def _allocate(self, label: str, source: int) -> int:
        self.moves.append(ALLOCATE)
        self.labels.append(label)
        self.source.append(source)
        return len(self.source) - 1

    def _write(self, moves: Sequence[int], persistent: Sequence[int], accumulating: bool = False) -> list[int]:
        """Append traced allocations and frees, and return the numbers of the tensors still allocated after them."""
        tensors, live = list(persistent), set()
        for move in moves:
            if move % 2:
                number = tensors[-1 - move // 2]
                live.discard(number)
                self.moves.append(number)
                continue
            kind = move // 2
            label = self._kinds[kind].label
            number = self._allocate(label, kind)
            tensors.append(number)
            if accumulating and label == "gradients":
                self.moves.append(number)
            else:
                live.add(number)
            if self._has_workspace[kind]:
                self.moves.append(self._allocate("workspace", len(self._kinds) + kind))
        return sorted(live)

    def _allocate_states(self, gradients: Sequence[int]) -> None:
        """Allocate optimizer states in the order of the parameters, which is the reverse of the order of gradients."""
        recipe = self._recipe
        copies = max(1, STATES.get(recipe.optimizer, 1))
        for number in reversed(gradients):
            state = optimizer_bytes(recipe.optimizer_request, self._gradient_bytes(number), recipe.width) // copies
            for _ in range(copies if state else 0):
                self._allocate_fixed("optimizer", state)

    def _write_step_temporaries(self, gradients: Sequence[int]) -> None:
        """Allocate and free the temporaries of an optimizer that is not fused."""
        sizes = [step_temporary(self._recipe.optimizer_request, self._gradient_bytes(number)) for number in gradients]
        self.moves += [self._allocate_fixed("temporary", size) for size in sizes if size]

    def _gradient_bytes(self, number: int) -> int:
        """Return the bytes of gradient `number`, which do not depend on the batch."""
        return max(1, self._kinds[self.source[number]].size[0])

    def _allocate_fixed(self, label: str, size: int) -> int:
        self.fixed.append(size)
        return self._allocate(label, 2 * len(self._kinds) + len(self.fixed) - 1)


def _kind_sizes(recipe: StepRecipe, table: OperatorTable, batch: int) -> tuple[list[int], list[int]]:
    """Return the bytes of each kind of traced allocation and of its workspace; those per sample grow with the image's area."""
    space, share = recipe.space, recipe.weights
    area = recipe.frames * (1 if recipe.image == table.image else (recipe.image / table.image) ** 2)
    sizes = [kind.size[0] + kind.size[1] * batch * area for kind in table.kinds]
    if recipe.adapters:  # Adapters have the trained share of the weights' bytes, and so do their gradients.
        trained = recipe.adapters / table.parameters
        share += trained
        sizes = [size * trained if kind.label == "gradients" else size for kind, size in zip(table.kinds, sizes, strict=True)]
    if share != 1:
        sizes = [size * share if kind.label == "weights" else size for kind, size in zip(table.kinds, sizes, strict=True)]
    operands = (kind.convolution for kind in table.kinds)
    spaces = [round(space * (base + slope * batch * area)) if space else 0 for base, slope in operands]
    return [max(1, round(size)) for size in sizes], spaces
