"""A training step played through the caching allocator, twice: the second time finds the optimizer's states and used segments.

Forward adds what each block keeps; backward takes it away block by block while weight gradients grow; the optimizer step comes
last. Which of these is the peak depends on the model: the loss for a large vocabulary and long batch, the end of backward for a
large model and short batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from whichgpu.estimate.allocator import Replay
from whichgpu.estimate.memory.training.allocation_log import AllocationLog
from whichgpu.estimate.memory.training.tape import SavedTensors, TapeBlock


@dataclass(frozen=True, slots=True)
class BlockRun:
    """A block of the model with the 16-bit copies autocast makes of its weights, and whether it is checkpointed.

    `gathered` are the bytes ZeRO 3 fetches from the other GPUs before the block runs, and drops after it.
    """

    block: TapeBlock
    casts: tuple[int, ...] = ()
    checkpointed: bool = False
    gathered: int = 0


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """Everything a step needs: bytes of each tensor as this GPU holds it, and the model's stretches in order."""

    stretches: Sequence[BlockRun]
    weights: Sequence[int]
    adapters: Sequence[int] = ()
    states: Sequence[int] = ()  # of the optimizer
    tables: Sequence[int] = ()  # gradients of embedding tables, made last
    tied: int = 0  # a second gradient of a table shared with the head, added to the first
    accumulated: Sequence[int] = ()  # gradients that exist before the step
    step_temporary: int = 0
    fixed: dict[str, int] = field(default_factory=dict)  # workspaces, activations of other micro-batches in flight
    scattered: int = 1  # GPUs over which a block's weight gradients are spread as soon as they are there (ZeRO 2 and 3)


def replay_training(training: TrainingRun, pools: bool = True) -> Replay:
    """Peaks of two steps, with what each part held at the fullest moment; without `pools` nothing is told of the allocator's."""
    ledger = AllocationLog()
    for label, size in training.fixed.items():
        if size:
            ledger.new(size, label)
    for label, sizes in (("weights", training.weights), ("adapters", training.adapters), ("gradients", training.accumulated)):
        for size in sizes:
            ledger.new(size, label)
    if not pools:  # all that the first step leaves then
        _remember(ledger, training)
    gradients: list[int] = []
    player = _Player(ledger)
    for turn in range(2 if pools else 1):
        ledger.free_all(gradients)
        gradients = _step(player, training)
        if pools and turn == 0:
            _remember(ledger, training)
        if training.step_temporary:
            ledger.free(ledger.new(training.step_temporary, "temporary"))
    return ledger.replay(pools)


def _remember(ledger: AllocationLog, training: TrainingRun) -> None:
    """The optimizer's states come to be."""
    for size in training.states:
        ledger.new(size, "optimizer")


@dataclass(slots=True)
class _Visited:
    stretch: BlockRun
    entry: int | None
    passed: SavedTensors | None
    casts: list[int]


class _Player:
    """Plays blocks into a ledger; a block played before in the same way is written again."""

    def __init__(self, ledger: AllocationLog) -> None:
        self.ledger = ledger

    def forward(self, block: TapeBlock, entry: int | None, saving: bool = True) -> tuple[int, SavedTensors]:
        """`Block.forward` here."""
        passage, exit, left = block.forward_passage(entry is not None, saving)
        here = self.ledger.write(passage, [] if entry is None else [entry])
        return here[exit], SavedTensors(
            *({name: here[number] for name, number in kept.items()} for kept in (left.live, left.extras))
        )

    def backward(self, block: TapeBlock, passed: SavedTensors, gradient: int) -> tuple[int | None, list[int]]:
        """`Block.backward` here."""
        passage, back, weights = block.backward_passage(tuple(passed.live), tuple(passed.extras))
        here = self.ledger.write(passage, [gradient, *passed.live.values(), *passed.extras.values()])
        return None if back is None else here[back], [here[number] for number in weights]


class _Gathered:
    """Weights that ZeRO 3 has whole for a while: those of the block that runs, and of the one to run next."""

    def __init__(self, ledger: AllocationLog, stretches: Sequence[BlockRun]) -> None:
        self._ledger, self._sizes = ledger, [stretch.gathered for stretch in stretches]
        self._here: dict[int, int] = {}

    def fetch(self, *places: int) -> None:
        """Whole weights of these blocks, where they are not there yet."""
        for place in places:
            if 0 <= place < len(self._sizes) and self._sizes[place] and place not in self._here:
                self._here[place] = self._ledger.new(self._sizes[place], "temporary")

    def drop(self, place: int) -> None:
        """Back to this GPU's share."""
        if place in self._here:
            self._ledger.free(self._here.pop(place))


def _step(player: _Player, training: TrainingRun) -> list[int]:
    ledger = player.ledger
    visited: list[_Visited] = []
    whole = _Gathered(ledger, training.stretches)
    x: int | None = None
    for place, stretch in enumerate(training.stretches):
        whole.fetch(place, place + 1)
        casts = [ledger.new(size, "cast_weights") for size in stretch.casts]
        entry = x
        x, passed = player.forward(stretch.block, entry, saving=not stretch.checkpointed)
        if stretch.checkpointed and stretch.gathered:  # autocast caches copies of weights that stay, not of gathered ones
            ledger.free_all(casts)
        visited.append(_Visited(stretch, entry, None if stretch.checkpointed else passed, casts))
        whole.drop(place)
    for visit in visited:  # no graph holds the copies of a checkpointed block past forward
        if visit.stretch.checkpointed and not visit.stretch.gathered:
            ledger.free_all(visit.casts)
    gradient, gradients = x, []
    for place in range(len(visited) - 1, -1, -1):
        if gradient is None:
            break
        whole.fetch(place, place - 1)
        gradient, made = _back(player, visited[place], gradient)
        gradients += _settled(ledger, made, visited[place].stretch.block.weights, training)
        whole.drop(place)
    for place in range(len(visited)):
        whole.drop(place)
    if gradient is not None:
        ledger.free(gradient)
    for size in training.tables:
        gradients += _settled(ledger, [ledger.new(size, "gradients")], [size], training)
    if training.tied:
        ledger.free(ledger.new(training.tied, "temporary"))
    return gradients


def _settled(ledger: AllocationLog, made: list[int], sizes: Sequence[int], training: TrainingRun) -> list[int]:
    """Gradients as this GPU keeps them: its share of their sum over all GPUs, for which all of them must be there first.

    Where there are some of earlier micro-batches, they are added to those at once, and nothing new stays.
    """
    if training.scattered > 1 and made:
        share = ledger.new(-(-sum(sizes) // training.scattered), "gradients")
        ledger.free_all(made)
        made = [share]
    if training.accumulated:
        ledger.free_all(made)
        return []
    return made


def _back(player: _Player, visit: _Visited, gradient: int) -> tuple[int | None, list[int]]:
    ledger = player.ledger
    block, casts, passed = visit.stretch.block, visit.casts, visit.passed
    if passed is None:  # run it again to have what backward needs; its input was kept for that
        casts = [ledger.new(size, "cast_weights") for size in visit.stretch.casts]
        again, passed = player.forward(block, None)
        ledger.free(again)
        passed.live.pop(block.exit.id, None)
    back, made = player.backward(block, passed, gradient)
    if visit.stretch.checkpointed and visit.entry is not None:
        ledger.free(visit.entry)
    ledger.free_all(casts)
    return back, made
