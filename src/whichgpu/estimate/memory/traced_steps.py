"""The steps of a traced model: the order in which its tensors come and go, made once, and their sizes for a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from whichgpu.estimate.allocation_sequence import ALLOCATE, AllocationSequence, Array, exact_sizes
from whichgpu.estimate.allocator import Replay
from whichgpu.estimate.memory.training.optimizer import STATES, optimizer_bytes, step_temporary
from whichgpu.workload.tables import OperatorTable, load_table
from whichgpu.workload.workload import Workload


@dataclass(frozen=True, slots=True)
class StepRecipe:
    """All that decides the events of a step but the batch. Precisions and layouts that allocate alike are one."""

    table: str
    image: int
    training: bool
    trace: str  # the traced precision (`precisions.trace_of`)
    weights: float  # bytes of a weight against the traced ones
    space: float  # bytes of a convolution's workspace against its operands'
    optimizer: str
    fused: bool
    stepped: bool
    accumulated: bool
    shards: tuple[tuple[str, int], ...] = ()  # parts of which this GPU holds one of so many shares (ZeRO)

    @property
    def asked(self) -> Workload:
        """The optimizer as a request asks for it."""
        return Workload(
            "train", self.table, optimizer=self.optimizer, optimizer_fused=self.fused, include_optimizer_step=self.stepped
        )

    @property
    def width(self) -> int:
        """Bytes of a parameter."""
        return 2 if self.trace == "bf16" else 4


def replay_recipe(recipe: StepRecipe, batch: int) -> Replay:
    """What the caching allocator holds over two steps."""
    table = load_table(recipe.table, recipe.image)
    # None of these decides the order.
    plain = replace(recipe, image=table.image, weights=1.0, space=float(recipe.space > 0), shards=())
    steps = _steps(plain)
    kinds, spaces = _sized(recipe, table, batch)
    sizes = exact_sizes([*kinds, *spaces, *steps.fixed])[steps.source]
    for label, over in recipe.shards:
        sizes = np.where(steps.labels == label, np.maximum(-(-sizes // over), 1), sizes)
    return steps.course.replay(sizes)


@dataclass(frozen=True, slots=True)
class _Steps:
    """Two steps. Each birth's size is found at its `source`: among kinds of allocations, their workspaces, then `fixed` ones."""

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
    """Births and deaths of two steps, with what each is for."""

    def __init__(self, recipe: StepRecipe, table: OperatorTable) -> None:
        self.moves: list[int] = []
        self.labels: list[str] = []
        self.source: list[int] = []
        self.fixed: list[int] = []
        self._recipe, self._kinds = recipe, table.kinds
        self._spaced = [recipe.space > 0 and any(kind.convolution) for kind in table.kinds]

    def build(self, before: Sequence[int], step: Sequence[int]) -> None:
        """Both steps, after what is there before them."""
        recipe = self._recipe
        standing = self._play(before, [])
        gradients = self._play(step, standing)
        if recipe.stepped:
            self._optimize(gradients)
        if not recipe.accumulated:
            self.moves += gradients
        self._play(step, standing, recipe.accumulated)
        if recipe.stepped:
            self._work(gradients)

    def _born(self, label: str, source: int) -> int:
        self.moves.append(ALLOCATE)
        self.labels.append(label)
        self.source.append(source)
        return len(self.source) - 1

    def _play(self, moves: Sequence[int], standing: Sequence[int], adding: bool = False) -> list[int]:
        """Play moves after what is standing; gives those born that live on. `adding`: gradients go into older ones at once."""
        born, alive = list(standing), set()
        for move in moves:
            if move % 2:
                number = born[-1 - move // 2]
                alive.discard(number)
                self.moves.append(number)
                continue
            kind = move // 2
            label = self._kinds[kind].label
            number = self._born(label, kind)
            born.append(number)
            if adding and label == "gradients":
                self.moves.append(number)
            else:
                alive.add(number)
            if self._spaced[kind]:
                self.moves.append(self._born("workspace", len(self._kinds) + kind))
        return sorted(alive)

    def _optimize(self, gradients: Sequence[int]) -> None:
        """States that the first step leaves behind, in the order of the parameters: gradients come in reverse."""
        recipe = self._recipe
        copies = max(1, STATES.get(recipe.optimizer, 1))
        for number in reversed(gradients):
            state = optimizer_bytes(recipe.asked, self._gradient(number), recipe.width) // copies
            for _ in range(copies if state else 0):
                self._extra("optimizer", state)

    def _work(self, gradients: Sequence[int]) -> None:
        """What an optimizer that is not fused holds for a moment."""
        extras = [step_temporary(self._recipe.asked, self._gradient(number)) for number in gradients]
        self.moves += [self._extra("temporary", extra) for extra in extras if extra]

    def _gradient(self, number: int) -> int:
        """Bytes of a gradient, which are those of its weight whatever the batch."""
        return max(1, self._kinds[self.source[number]].size[0])

    def _extra(self, label: str, size: int) -> int:
        self.fixed.append(size)
        return self._born(label, 2 * len(self._kinds) + len(self.fixed) - 1)


def _sized(recipe: StepRecipe, table: OperatorTable, batch: int) -> tuple[list[int], list[int]]:
    """Bytes of each kind of allocation, and of its workspace; what a sample needs grows with the area of the image."""
    space, share = recipe.space, recipe.weights
    area = 1 if recipe.image == table.image else (recipe.image / table.image) ** 2
    sizes = [kind.size[0] + kind.size[1] * batch * area for kind in table.kinds]
    if share != 1:
        sizes = [size * share if kind.label == "weights" else size for kind, size in zip(table.kinds, sizes, strict=True)]
    operands = (kind.convolution for kind in table.kinds)
    spaces = [round(space * (base + slope * batch * area)) if space else 0 for base, slope in operands]
    return [max(1, round(size)) for size in sizes], spaces
