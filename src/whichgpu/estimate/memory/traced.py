"""Memory of a model known by its operator table: its steps rebuilt for a batch and replayed through the caching allocator."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from whichgpu.base.messages import Message, msg
from whichgpu.base.units import MIB
from whichgpu.catalog.gpu import Gpu
from whichgpu.estimate.allocator import replay
from whichgpu.estimate.memory.optimizer import STATES, optimizer_bytes, step_temporary
from whichgpu.estimate.memory.overhead import workspace
from whichgpu.estimate.memory.parts import MemoryEstimate, estimate
from whichgpu.workload.shapes import Traced
from whichgpu.workload.tables import TRACE_OF_PRECISION, Affine, OperatorTable, at, load_table
from whichgpu.workload.workload import Workload

# Workspace of a dense convolution wider than 1x1, as a multiple of its operands' bytes: true fp32 has its operands turned around
# and partial sums kept, TF32 some of that, 16-bit kernels next to nothing. Fitted on 18 training steps of twelve torchvision
# models (H200, PyTorch 2.11, cuDNN's own choice of algorithm; fitted 2026-11-15).
CONVOLUTION_WORKSPACE = {"fp32": 3.0, "tf32": 0.65, "fp32-default": 0.65}
# In channels-first order the tensor cores' kernels turn all their operands around first.
CONTIGUOUS_WORKSPACE = 1.0
# Device memory less what the allocator reserved, the same steps: 771 to 789 MiB on 132 SMs, of which 527 MiB before any kernel.
CONTEXT_PER_SM = 4 * MIB
KERNELS = 248 * MIB
SMS = 132  # where no GPU is named
# Bytes of a weight in precisions that no trace has; their activations are taken as 16-bit.
NARROW_WEIGHTS = {"fp8": 1.0, "int8": 1.0, "int4": 0.53, "nvfp4": 0.57}

# 90% ranges, as factors: measured over estimated was 0.995 to 1.024 allocated and 0.91 to 1.04 on the device, a little widened
# for architectures not among the eighteen.
SPREAD, SPREAD_DEVICE = (0.98, 1.03), (0.93, 1.06)
SPREAD_RESIZED = 0.10  # added on both sides where the image is not the table's
SPREAD_NARROW = 0.25

PART_OF_LABEL = {"input": "activations"}


@dataclass(frozen=True, slots=True)
class Peak:
    """Bytes at the fullest moment, by part, and what the allocator then holds of the device."""

    parts: dict[str, float]
    reserved: float

    @property
    def allocated(self) -> float:
        """All parts together."""
        return sum(self.parts.values())


@dataclass(frozen=True, slots=True)
class Recipe:
    """All that decides the events of a step but the batch."""

    table: str
    image: int
    training: bool
    precision: str
    channels_last: bool
    optimizer: str
    fused: bool
    stepped: bool
    accumulated: bool


def traced_memory(workload: Workload, shape: Traced, gpu: Gpu | None) -> MemoryEstimate:
    """Peak of a training step or a forward pass in PyTorch eager."""
    table = load_table(shape.table, workload.image or shape.image or None)
    recipe = Recipe(
        table=shape.table,
        image=workload.image or shape.image or table.image,
        training=workload.training,
        precision=workload.precision or "fp32",
        channels_last=workload.memory_format != "contiguous",
        optimizer=workload.optimizer or "sgd-momentum",
        fused=workload.optimizer_fused,
        stepped=workload.include_optimizer_step,
        accumulated=workload.accumulation > 1,
    )
    peak = _shared(_between(recipe, workload.local_batch), workload, table)
    libraries = workspace(gpu) // (1 if workload.training else 2)  # one for each thread: forward, backward
    parts = {name: int(size) for name, size in peak.parts.items()}
    parts["temporary"] = parts.get("temporary", 0) + round(peak.allocated) - sum(parts.values())  # bytes lost to rounding
    parts["workspace"] = parts.get("workspace", 0) + libraries
    parts["slack"] = round(peak.reserved) - round(peak.allocated)
    parts["context"] = CONTEXT_PER_SM * (gpu.sms if gpu and gpu.sms else SMS) + KERNELS
    wider = SPREAD_RESIZED * (recipe.image != table.image) + SPREAD_NARROW * (recipe.precision not in TRACE_OF_PRECISION)
    return estimate(
        parts,
        (SPREAD[0] - wider, SPREAD[1] + wider),
        (SPREAD_DEVICE[0] - wider, SPREAD_DEVICE[1] + wider),
        sources=("h200-training",),
        warnings=_warnings(workload, recipe, table),
    )


def _warnings(workload: Workload, recipe: Recipe, table: OperatorTable) -> tuple[Message, ...]:
    said = []
    if recipe.image != table.image:
        said.append(msg("warning.image-scaled", model=table.name, image=recipe.image, traced=table.image))
    if recipe.precision not in TRACE_OF_PRECISION:
        said.append(msg("warning.precision-not-traced", precision=recipe.precision))
    layout = workload.parallel
    ignored = {
        "checkpointing": workload.training and workload.checkpointing != "none",
        "lora_rank": workload.lora_rank is not None,
        "parallel": max(layout.tp, layout.pp, layout.ep, layout.cp) > 1,
    }
    said += [msg("warning.not-in-tables", field=field) for field, wanted in ignored.items() if wanted]
    return tuple(said)


def _shared(peak: Peak, workload: Workload, table: OperatorTable) -> Peak:
    """ZeRO's share (arXiv 1910.02054) of states, gradients and weights; stage 3 gathers the two largest layers at most."""
    layout = workload.parallel
    parts = dict(peak.parts)
    for stage, name in enumerate(("optimizer", "gradients", "weights"), start=1):
        if layout.zero >= stage and name in parts:
            parts[name] /= layout.dp
    if layout.zero >= 3:
        largest = sorted(kind.size[0] for kind in table.kinds if kind.label == "weights")[-2:]
        parts["temporary"] = parts.get("temporary", 0) + min(sum(largest), peak.parts["weights"] - parts["weights"])
    saved = peak.allocated - sum(parts.values())
    return Peak(parts, peak.reserved - saved)


def _between(recipe: Recipe, batch: int) -> Peak:
    """The peak at a batch, on a line between the nearest of 1, 2, 3, 4, 6, 8, 12, …: fragmentation jumps, a fit must not."""
    low = 1
    while _next(low) <= batch:
        low = _next(low)
    first, share = _steady(recipe, low), (batch - low) / (_next(low) - low)
    if not share:
        return first
    second = _steady(recipe, _next(low))
    mixed = {
        name: (1 - share) * first.parts.get(name, 0) + share * second.parts.get(name, 0) for name in first.parts | second.parts
    }
    return Peak(mixed, (1 - share) * first.reserved + share * second.reserved)


def _next(batch: int) -> int:
    """The rung after this one: halves between powers of two."""
    if batch < 3:
        return batch + 1
    return batch * 4 // 3 if batch % 3 == 0 else batch * 3 // 2


def _below(batch: int) -> int:
    """The rung before this one."""
    if batch < 4:
        return batch - 1
    return batch * 2 // 3 if batch % 3 == 0 else batch * 3 // 4


@lru_cache(maxsize=512)
def _steady(recipe: Recipe, batch: int) -> Peak:
    """The peak at a rung, never under that of a smaller one.

    Where most of it, and a good deal, grows with the batch, a rung outdoes fragmentation: one look back will do.
    """
    here = _peak(recipe, batch)
    if batch == 1:
        return here
    grows = sum(here.parts.get(name, 0) for name in ("activations", "temporary"))
    growing = grows > max(0.6 * here.allocated, 256 * MIB)
    below = (_peak if growing else _steady)(recipe, _below(batch))
    most = here if here.allocated >= below.allocated else below
    return Peak(most.parts, max(here.reserved, below.reserved))


@lru_cache(maxsize=512)
def _peak(recipe: Recipe, batch: int) -> Peak:
    """Two steps through the allocator: the second has optimizer states from its start."""
    table = load_table(recipe.table, recipe.image)
    steps = _Steps(recipe, table, batch)
    found = replay(steps.events, steps.labels)
    parts: dict[str, float] = {}
    for label, size in found.breakdown.items():
        part = PART_OF_LABEL.get(label, label)
        parts[part] = parts.get(part, 0) + size
    # Blocks whose rest is too small to be cut off count whole: the difference belongs to those who asked for them.
    share = found.peak_allocated / sum(parts.values())
    return Peak({name: size * share for name, size in parts.items()}, float(found.peak_reserved))


class _Steps:
    """Births and deaths of two steps for a batch, with what each is for."""

    def __init__(self, recipe: Recipe, table: OperatorTable, batch: int) -> None:
        self.events: list[tuple[int, int]] = []
        self.labels: dict[int, str] = {}
        self._sizes: list[int] = []  # by id
        self._recipe = recipe
        traced = TRACE_OF_PRECISION.get(recipe.precision, "bf16")
        self._width = 2 if traced == "bf16" else 4  # bytes of a parameter
        self._kinds = _sized(recipe, table, batch)
        run = table.run(recipe.training, traced)
        self._build(run.moves[: run.before], run.moves[run.before :])

    def _build(self, before: Sequence[int], step: Sequence[int]) -> None:
        recipe = self._recipe
        standing = self._play(before, [])
        gradients = self._play(step, standing)
        if recipe.training and recipe.stepped:
            self._optimize(gradients)
        adding = recipe.training and recipe.accumulated
        if not adding:
            self._free(gradients)
        self._play(step, standing, adding)
        if recipe.training and recipe.stepped:
            self._work(gradients)

    def _born(self, label: str, size: int) -> int:
        id = len(self._sizes)
        self._sizes.append(size)
        self.labels[id] = label
        self.events.append((id, size))
        return id

    def _free(self, ids: Iterable[int]) -> None:
        self.events += [(id, -self._sizes[id]) for id in ids]

    def _play(self, moves: Sequence[int], standing: Sequence[int], adding: bool = False) -> list[int]:
        """Play moves after what is standing; ids of those born that live on. `adding`: gradients go into older ones at once."""
        born, alive = list(standing), set()
        for move in moves:
            if move % 2:
                id = born[-1 - move // 2]
                alive.discard(id)
                self._free((id,))
                continue
            label, size, space = self._kinds[move // 2]
            id = self._born(label, size)
            born.append(id)
            if adding and label == "gradients":
                self._free((id,))
            else:
                alive.add(id)
            if space:
                self._free((self._born("workspace", space),))
        return sorted(alive)

    def _optimize(self, gradients: Sequence[int]) -> None:
        """States that the first step leaves behind, in the order of the parameters: gradients come in reverse."""
        asked = _asked(self._recipe)
        copies = max(1, STATES.get(self._recipe.optimizer, 1))
        for id in reversed(gradients):
            state = optimizer_bytes(asked, self._sizes[id], self._width) // copies
            for _ in range(copies if state else 0):
                self._born("optimizer", state)

    def _work(self, gradients: Sequence[int]) -> None:
        """What an optimizer that is not fused holds for a moment."""
        asked = _asked(self._recipe)
        extras = [step_temporary(asked, self._sizes[id]) for id in gradients]
        self._free([self._born("temporary", extra) for extra in extras if extra])


def _sized(recipe: Recipe, table: OperatorTable, batch: int) -> list[tuple[str, int, int]]:
    """Label, bytes and bytes of workspace of each kind of allocation; what a sample needs grows with the area of the image."""
    area = (recipe.image / table.image) ** 2
    narrow = recipe.precision not in TRACE_OF_PRECISION
    weights = NARROW_WEIGHTS.get(recipe.precision, 2.0) / 2 if narrow else 1.0
    space = max(CONVOLUTION_WORKSPACE.get(recipe.precision, 0.0), 0.0 if recipe.channels_last else CONTIGUOUS_WORKSPACE)

    def size(value: Affine) -> float:
        return at(value, batch) if area == 1 else value[0] + value[1] * batch * area

    return [
        (
            kind.label,
            max(1, round(size(kind.size) * (weights if kind.label == "weights" else 1))),
            round(space * size(kind.convolution)),
        )
        for kind in table.kinds
    ]


def _asked(recipe: Recipe) -> Workload:
    return Workload(
        "train", recipe.table, optimizer=recipe.optimizer, optimizer_fused=recipe.fused, include_optimizer_step=recipe.stepped
    )
